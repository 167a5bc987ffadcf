"""The small process around one task that outlives agent and scheduler. Standard library only, Python 3.9 and later.

It ships to the node in the bundle, beside `gpucluster.worker`, and is started by a fork server (`forkserver.py`) or by
hand (`python start.py supervisor <task folder>`). One thread, one loop over file descriptors.
"""
