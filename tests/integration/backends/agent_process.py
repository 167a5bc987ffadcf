"""A scheduler's backend as a process of its own, to be killed: takes shell scripts on its standard input, tells events."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .lab import Lab, shell


def main() -> None:
    lab = Lab(Path(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        attempt_id = lab.start(shell(json.loads(line)))
        print(attempt_id, flush=True)


if __name__ == "__main__":
    main()
