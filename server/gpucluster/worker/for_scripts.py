"""`gpucluster` for the scripts of a command job: the installed one where there is one, else what came with the task.

The bundle holds this file as `scripts/gpucluster/__init__.py`, and the folder `scripts` stands last on PYTHONPATH. All of
PYTHONPATH comes before site-packages, though; so an installed gpucluster, which is whole, is looked for from here.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder


def _find(name: str, own_file: str) -> ModuleSpec | None:
    scripts = os.path.dirname(os.path.dirname(os.path.abspath(own_file)))
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry) != scripts]
    installed = PathFinder.find_spec(name, elsewhere)
    if installed is not None and installed.origin is not None:  # else a folder that happens to be called so
        return installed
    return PathFinder.find_spec(name, [os.path.dirname(scripts)])


def _become(name: str) -> None:
    """Be the package that was found."""
    module = sys.modules[name]
    spec = _find(name, __file__)
    if spec is None or spec.loader is None or spec.origin is None:
        raise ImportError("the job's gpucluster is gone", name=name)
    module.__spec__ = spec
    module.__loader__ = spec.loader
    module.__file__ = spec.origin
    module.__path__ = spec.submodule_search_locations or []
    spec.loader.exec_module(module)


if __name__ == "gpucluster":
    _become(__name__)
