"""What runs inside a task. Ships alone into any image with Python ≥ 3.9 and depends on the standard library only;
uses IPython and cloudpickle when they are there.

In a cell or script of a job::

    from gpucluster.worker import report
    report(step, total=100, loss=0.3)
"""

from .reporting import report

__all__ = ["report"]
