"""HTML for notebooks: small templates beside this file, every value escaped, colours from Jupyter's theme."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("jupyter_gpucluster"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: Any) -> str:
    """The template filled with `values`."""
    return _environment().get_template(template).render(**values)


def style() -> str:
    """The styles of all templates, for a page that shows several of them."""
    return _environment().get_template("style.css").render()
