"""`gpucluster serve` of a later version: it speaks no protocol that the supervisors of this one know."""

from __future__ import annotations

import sys

from gpucluster.cli import main
from gpucluster.worker import protocol

if __name__ == "__main__":
    protocol.PROTOCOL_MIN, protocol.PROTOCOL_MAX = 98, 99
    sys.exit(main(["serve", *sys.argv[1:]]))
