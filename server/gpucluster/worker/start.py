"""Entry of the bundle: `python start.py worker|supervisor|forkserver …`. The runtime copies it beside `gpucluster/`.

Each part is loaded only when it is asked for.
"""

from __future__ import annotations

import os
import sys

USAGE = "usage: start.py worker <task folder> <message fd> | supervisor <task folder> | forkserver <fd>"


def start(command: str, *arguments: str) -> int:
    if command == "worker":
        from gpucluster.worker import main as worker

        worker.main(list(arguments))
    if command == "supervisor":
        from gpucluster.runtimes.supervisor import main as supervisor

        return supervisor.main(arguments[0])
    if command == "forkserver":
        from gpucluster.runtimes.supervisor import forkserver

        return forkserver.main(int(arguments[0]))
    sys.exit(USAGE)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(start(*sys.argv[1:]) if len(sys.argv) > 2 else USAGE)
