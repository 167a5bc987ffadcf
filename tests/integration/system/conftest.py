"""Whole ways through the product with real parts. Each test gets a place of its own or shares one of its module; that
nothing of a place lives on is checked whenever one is given back.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.place import Place, place


@pytest.fixture
def here() -> Iterator[Place]:
    """A place of the test's own, nothing running."""
    with place() as made:
        yield made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Place]:
    """A place with a scheduler, shared by the tests of a module that do it no harm."""
    with place() as made:
        yield made.serve()
