"""From the product names that NVML reports to the short GPU types that people ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .settings import GpuTypeSettings

#: Words of a product name that say nothing about the kind of GPU.
_NOISE = re.compile(
    r"\b(NVIDIA|Tesla|GeForce|Quadro|Graphics|Device|Generation|(Laptop|Max Q) GPU|(Server|(Max Q )?Workstation) Edition"
    r"|\d+\s*GB|PCIe?|SXM\d?|HBM\w*|NVL|OAM|MIG.*)\b",
    re.IGNORECASE,
)
#: The data centre GPUs, by the one word that names them. "H100" must not swallow "GH200", so whole words only.
_DATA_CENTRE = re.compile(
    r"\b(GB200|GH200|GB300|B300|B200|B100|H200|H100|H800|H20|L40S|L40|L20|L4|L2|A100|A800|A40|A30|A16|A10G?|A2|T4G?|V100|P100|P40|P4|K80|M60|M40)\b"
)
_RTX = re.compile(r"\bRTX\s*(PRO\s*)?(A?\d{4,5})(\s*(?:Ti|SUPER|Ada|D|Blackwell))*\b", re.IGNORECASE)


def gpu_type(product: str, types: Iterable[GpuTypeSettings] = ()) -> str:
    """The type of a product: the site's own (cluster.yaml gpu_types), else the usual short name, else the name cleaned.

    ("NVIDIA A100-SXM4-80GB" → "A100", "NVIDIA GeForce RTX 4090" → "RTX-4090", "NVIDIA TITAN V" → "TITAN-V")
    """
    for known in types:
        if product.casefold() in {name.casefold() for name in known.products}:
            return known.name
    words = product.replace("-", " ").replace("_", " ")
    match = _DATA_CENTRE.search(words)
    if match and not _RTX.search(words):
        return match[1]
    kept = re.sub(r"[^A-Za-z0-9.]+", "-", _NOISE.sub(" ", words)).strip("-.")
    return kept[:63] or "GPU"
