"""Hooks run right after the import of what they are for, and never spoil it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gpucluster.worker import hooks


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "some_library").mkdir()
    (tmp_path / "some_library" / "__init__.py").write_text("")
    (tmp_path / "some_library" / "bars.py").write_text("class Bar:\n    value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(hooks, "HOOKS", {"some_library.bars": ("test_hook", "change")})
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield "some_library.bars"
    for name in ("some_library.bars", "some_library", "gpucluster.worker.hooks.test_hook"):
        sys.modules.pop(name, None)


def provide(change: object) -> None:
    module = ModuleType("gpucluster.worker.hooks.test_hook")
    module.change = change  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


def set_value(module: ModuleType) -> None:
    module.Bar.value = 2


def test_a_hook_runs_after_the_import(library: str) -> None:
    provide(set_value)
    hooks.install()
    assert "some_library" not in sys.modules
    module = importlib.import_module(library)
    assert module.Bar.value == 2
    assert inspect.getsource(module.Bar) == "class Bar:\n    value = 1\n"


def test_what_is_imported_already_is_hooked_at_once(library: str) -> None:
    module = importlib.import_module(library)
    provide(set_value)
    hooks.install()
    assert module.Bar.value == 2


def test_a_hook_that_fails_says_so_and_leaves_the_library_usable(library: str) -> None:
    def fail(module: ModuleType) -> None:
        raise AttributeError("no such method in this version")

    provide(fail)
    hooks.install()
    with pytest.warns(RuntimeWarning, match="progress of some_library.bars will not be shown"):
        module = importlib.import_module(library)
    assert module.Bar.value == 1


def test_an_error_in_the_library_itself_is_its_own(library: str, tmp_path: Path) -> None:
    (tmp_path / "some_library" / "bars.py").write_text("raise RuntimeError('broken library')")
    provide(set_value)
    hooks.install()
    with pytest.raises(RuntimeError, match="broken library"):
        importlib.import_module(library)
    assert library not in sys.modules


def test_a_missing_library_is_missing_as_ever(library: str, tmp_path: Path) -> None:
    (tmp_path / "some_library" / "bars.py").unlink()
    provide(set_value)
    hooks.install()
    with pytest.raises(ModuleNotFoundError, match=r"some_library\.bars"):
        importlib.import_module(library)
