"""The database (SQLAlchemy Core; SQLite embedded, PostgreSQL shared) and the blobs. What the engine writes, the API reads.

`from gpucluster.store import Store` loads SQLAlchemy only when asked, so that light parts (filesystem.py) stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Store"]


def __getattr__(name: str) -> Any:
    if name == "Store":
        from .store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
