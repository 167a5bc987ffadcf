"""Progress read off the libraries that a cell uses. A hook is a function that gets a module right after its import.

So nothing is imported that the cell does not import itself, and it costs nothing where a library is not used.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

#: module -> (module of this package, function in it)
HOOKS: dict[str, tuple[str, str]] = {
    "tqdm.std": ("tqdm", "hook_std"),
    "tqdm.notebook": ("tqdm", "hook_notebook"),
}


def install() -> None:
    """Hook the libraries of HOOKS, those that are imported already at once. Called once, in the worker."""
    for name in HOOKS:
        module = sys.modules.get(name)
        if module is not None:
            _run_hook(name, module)
    sys.meta_path.insert(0, _Finder())


def _run_hook(name: str, module: ModuleType) -> None:
    """A hook that does not fit the library's version costs its progress, not the import; and it says so."""
    hook_module, function = HOOKS[name]
    try:
        getattr(importlib.import_module(f"{__name__}.{hook_module}"), function)(module)
    except Exception as error:
        warnings.warn(f"the progress of {name} will not be shown: {error!r}", RuntimeWarning, stacklevel=2)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a hooked module as everybody else does, and has the hook run after it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in HOOKS:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """The module's own loader, with the hook behind `exec_module`."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _run_hook(module.__name__, module)
