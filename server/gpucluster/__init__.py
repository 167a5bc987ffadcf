"""The scheduler of jupyter-gpucluster: service, engine, policy and what runs on the nodes.

The package is extended over `sys.path`: inside a task, the worker's own bundle stands first on the path and holds
only `gpucluster.worker` and the supervisor; whatever else of `gpucluster` is installed there stays importable.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)


def __getattr__(name: str) -> str:
    # Looked up on demand: reading the installed metadata takes longer than all else here, and a task never needs it.
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("jupyter-gpucluster")
        except PackageNotFoundError:
            return "0+source"  # run from a source tree that was never installed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
