"""Which names of the notebook a cell needs, which it assigns, and all of that packed to be sent (DESIGN section 4)."""

from .cellnames import CellNames, analyse
from .collect import Capture, collect

__all__ = ["Capture", "CellNames", "analyse", "collect"]
