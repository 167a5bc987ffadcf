"""PyTorch tensors and modules; with a declared stand-in for a GPU's tensors, with PyTorch itself where it is installed."""

from __future__ import annotations

import pickle
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from gpucluster.worker import namespace, pickling
from gpucluster.worker.digest import digest

#: Declared: behaves like PyTorch's tensors on a GPU.
FAKE_TORCH = """
class Device:
    def __init__(self, kind):
        self.type = kind

class Tensor:
    def __init__(self, values, device="cuda", requires_grad=False):
        self.values, self.device, self.requires_grad = values, Device(device), requires_grad

    def detach(self):
        return Tensor(self.values, self.device.type)

    def cpu(self):
        return Tensor(self.values, "cpu")

    def requires_grad_(self, wanted):
        self.requires_grad = wanted
        return self

class Parameter(Tensor):
    def __init__(self, data, requires_grad=True):
        super().__init__(data.values, data.device.type, requires_grad)

class nn:
    pass

nn.Parameter = Parameter
"""


def test_tensors_on_a_gpu_travel_as_cpu_tensors_with_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = types.ModuleType("torch")
    exec(FAKE_TORCH, torch.__dict__)
    monkeypatch.setitem(sys.modules, "torch", torch)
    weight = torch.Parameter(torch.Tensor([1, 2]))
    pickled = pickling.dump({"net": {"w": weight, "same": weight}, "b": torch.Tensor([3])}, ns={})
    namespace.bind({})
    loaded = pickling.load(pickled.pickle)
    assert loaded["net"]["w"] is loaded["net"]["same"]
    assert (loaded["net"]["w"].device.type, loaded["net"]["w"].requires_grad) == ("cpu", True)
    assert type(loaded["net"]["w"]) is torch.Parameter
    assert (type(loaded["b"]), loaded["b"].requires_grad) == (torch.Tensor, False)
    assert weight.device.type == "cuda"
    assert pickled.notes == (
        "tensors on a GPU travel as CPU tensors; move them with .to(device) where they are used",
    )


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    namespace.bind({})
    return module


def round_trip(objects: dict[str, Any]) -> dict[str, Any]:
    pickled = pickling.dump(objects, ns={})
    assert not pickled.failed
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyTorch warns of memory that must not be written to
        return pickling.load(pickled.pickle, [bytes(buffer) for buffer in pickled.buffers])


def test_modules_go_out_of_band_and_share_what_they_shared(torch: Any) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.BatchNorm1d(300))
    pickled = pickling.dump({"net": net, "w": net[0].weight, "d": net[0].weight.data}, ns={})
    assert [buffer.nbytes for buffer in pickled.buffers] == [200 * 300 * 4]
    loaded = pickling.load(pickled.pickle, pickled.buffers)
    assert loaded["net"][0].weight is loaded["w"]
    assert isinstance(loaded["w"], torch.nn.Parameter)
    assert loaded["w"].requires_grad
    assert torch.equal(loaded["w"], net[0].weight)
    loaded["d"][0, 0] = 7
    assert loaded["w"][0, 0] == 7


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "int8", "uint8", "int64", "bool", "complex64"]
)
def test_every_kind_of_number_comes_through(torch: Any, dtype: str) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    for value in (tensor, tensor.T, tensor[1:, ::2], tensor[:0], tensor[0, 0], tensor.expand(2, 3, 4)):
        loaded = round_trip({"t": value})["t"]
        assert (loaded.dtype, loaded.shape) == (value.dtype, value.shape)
        assert torch.equal(loaded, value)


def test_views_of_one_storage_go_on_sharing_it(torch: Any) -> None:
    base = torch.zeros(100)
    loaded = round_trip({"base": base, "view": base[10:90].reshape(8, 10), "all": base.view(10, 10)})
    loaded["view"][0, 0] = loaded["all"][0, 0] = 5
    assert (loaded["base"][10], loaded["base"][0]) == (5, 5)


def test_small_part_of_a_big_tensor_goes_alone(torch: Any) -> None:
    base = torch.zeros(1_000_000)
    assert pickling.dump({"x": base[:10]}, ns={}).total_bytes < 10_000
    assert round_trip({"x": base[:10]})["x"].untyped_storage().nbytes() == 40


def test_tensors_that_are_more_than_their_memory_go_as_pytorch_sends_them(torch: Any) -> None:
    marked = torch.zeros(3)
    marked.mark = "kept"
    sparse = torch.eye(3).to_sparse()
    loaded = round_trip(
        {"marked": marked, "sparse": sparse, "conj": torch.ones(2, dtype=torch.complex64).conj()}
    )
    assert loaded["marked"].mark == "kept"
    assert torch.equal(loaded["sparse"].to_dense(), torch.eye(3))
    assert torch.equal(loaded["conj"], torch.ones(2, dtype=torch.complex64))


def test_optimizer_keeps_its_parameters(torch: Any) -> None:
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    loaded = round_trip({"net": net, "optimizer": optimizer})
    before = loaded["net"].weight.detach().clone()
    loaded["net"](torch.ones(1, 4)).sum().backward()
    loaded["optimizer"].step()
    assert not torch.equal(loaded["net"].weight, before)


def test_loaded_tensors_can_be_pickled_by_others(torch: Any) -> None:
    loaded = round_trip({"net": torch.nn.Linear(200, 300)})["net"]
    assert torch.equal(pickle.loads(pickle.dumps(loaded)).weight, loaded.weight)


def changed_weight(net: Any) -> None:
    net.weight.data[0, 0] += 1


def trained_mode(net: Any) -> None:
    net.eval()


@pytest.mark.parametrize("change", [changed_weight, trained_mode, lambda net: net.bias.requires_grad_(False)])
def test_module_is_changed_by_training_not_by_use(torch: Any, change: Callable[[Any], None]) -> None:
    net = torch.nn.Linear(10, 10)
    before = digest(net, 1 << 20)
    net(torch.zeros(1, 10)).sum().backward()
    assert digest(net, 1 << 20) == before
    change(net)
    assert digest(net, 1 << 20) != before


def test_tensor_of_every_layout_has_a_digest(torch: Any) -> None:
    base = torch.zeros(100, 100, dtype=torch.bfloat16)
    for tensor in (base, base.T, base[::3], base[:0], base[0, 0], torch.eye(3).to_sparse()):
        before = digest([tensor], 1 << 20)
        assert digest([tensor], 1 << 20) == before
        if tensor.layout == torch.strided and tensor.numel():
            tensor += 1
            assert digest([tensor], 1 << 20) != before
    assert digest(torch.zeros(1000), 3000) is None
