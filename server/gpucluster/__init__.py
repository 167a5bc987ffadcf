"""The scheduler of jupyter-gpucluster: service, engine, policy and what runs on the nodes.

The package is extended over `sys.path`: inside a task, the worker's own bundle stands first on the path and holds
only `gpucluster.worker` and the supervisor; whatever else of `gpucluster` is installed there stays importable.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
