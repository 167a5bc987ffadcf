"""PyTorch tensors on their way to another process. PyTorch is never imported here; it is there when a tensor is.

PyTorch's own way writes a copy of the storage into the pickle. Here the memory of a CPU tensor goes out of band like that
of a NumPy array, without a copy, and tensors that share memory share it over there. A tensor that is a small part of a
big storage takes along its part only. Tensors of a GPU travel as CPU tensors.
"""

from __future__ import annotations

import sys
from typing import Any

#: A view goes alone when the storage behind it is larger by this factor.
_PART_OF_STORAGE = 2


def is_tensor_type(kind: type) -> bool:
    """Whether objects of this type are PyTorch tensors."""
    return any(
        base.__name__ == "Tensor" and base.__module__.partition(".")[0] == "torch" for base in kind.__mro__
    )


def is_on_gpu(tensor: Any) -> bool:
    return tensor.device.type not in ("cpu", "meta")


def reduce_tensor(tensor: Any, storages: dict[int, Any]) -> Any:
    """A reduction of a CPU or GPU tensor; NotImplemented for what only PyTorch itself knows how to send.

    `storages` keeps one array for each storage that a pickle holds, so that what shares it goes on sharing it.
    """
    if is_on_gpu(tensor):
        return _make_from_cpu, (tensor.detach().cpu(), tensor.requires_grad, _is_parameter(tensor))
    if not _is_plain(tensor):
        return NotImplemented
    flat = tensor.detach()
    storage = flat.untyped_storage()
    if storage.nbytes() > _PART_OF_STORAGE * flat.nelement() * flat.element_size():
        flat = flat.clone()
        storage = flat.untyped_storage()
    key = storage.data_ptr()
    array = storages.get(key) if key else None
    if array is None or array.nbytes != storage.nbytes():
        torch = sys.modules["torch"]
        array = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        storages[key or id(array)] = array
    layout = (flat.dtype, flat.storage_offset(), tuple(flat.shape), flat.stride())
    return _make_tensor, (array, layout, tensor.requires_grad, _is_parameter(tensor))


def _is_plain(tensor: Any) -> bool:
    """Whether the tensor is its memory and nothing more."""
    torch = sys.modules["torch"]
    return (
        hasattr(tensor, "untyped_storage")
        and type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.is_quantized
        and not (tensor.is_conj() or tensor.is_neg())
        and not getattr(tensor, "__dict__", None)
    )


def _is_parameter(tensor: Any) -> bool:
    return type(tensor).__name__ == "Parameter"


def _make_from_cpu(on_cpu: Any, requires_grad: bool, is_parameter: bool) -> Any:
    if is_parameter:
        return sys.modules["torch"].nn.Parameter(on_cpu, requires_grad)
    return on_cpu.requires_grad_(requires_grad)


def _make_tensor(array: Any, layout: tuple[Any, ...], requires_grad: bool, is_parameter: bool) -> Any:
    import torch

    dtype, *where = layout
    storage = torch.from_numpy(array).untyped_storage()
    return _make_from_cpu(torch.empty(0, dtype=dtype).set_(storage, *where), requires_grad, is_parameter)


def content_of(tensor: Any) -> Any:
    """The memory of a tensor as a flat array of bytes on the CPU, for a digest; NotImplemented for what has none."""
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.is_quantized:
        return NotImplemented
    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy() if flat.nelement() else b""
