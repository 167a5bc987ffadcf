"""The resource vector: an open mapping from resource name to an integer amount.

Names and units (DESIGN section 6):

- ``gpu``: GPUs of any type, in thousandths of a GPU (2 GPUs = 2000)
- ``gpu/<type>``: GPUs of one type, in thousandths. Where a typed amount stands, ``gpu`` holds the sum over the types
- ``cpu``: thousandths of a CPU core
- ``memory``: bytes
- anything else that cluster.yaml names: its own integer unit

A name that is absent counts as 0. Vectors are immutable; arithmetic gives new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

GPU = "gpu"
CPU = "cpu"
MEMORY = "memory"
WHOLE_GPU = 1000  # one GPU in thousandths
WHOLE_CPU = 1000  # one core in thousandths


def gpu_of_type(gpu_type: str) -> str:
    """The resource name of GPUs of one type."""
    return f"{GPU}/{gpu_type}"


class Resources(Mapping[str, int]):
    """An immutable resource vector. Zero amounts are dropped, so equality is by meaning."""

    __slots__ = ("_amounts",)

    def __init__(self, amounts: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        items = amounts.items() if isinstance(amounts, Mapping) else amounts
        self._amounts: dict[str, int] = {name: amount for name, amount in items if amount}

    def __getitem__(self, name: str) -> int:
        return self._amounts.get(name, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __contains__(self, name: object) -> bool:
        return name in self._amounts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self._amounts == other._amounts

    def __hash__(self) -> int:
        return hash(frozenset(self._amounts.items()))

    def __repr__(self) -> str:
        return f"Resources({self._amounts!r})"

    def __add__(self, other: Resources) -> Resources:
        total = dict(self._amounts)
        for name, amount in other._amounts.items():
            total[name] = total.get(name, 0) + amount
        return Resources(total)

    def __sub__(self, other: Resources) -> Resources:
        total = dict(self._amounts)
        for name, amount in other._amounts.items():
            total[name] = total.get(name, 0) - amount
        return Resources(total)

    def __mul__(self, factor: int) -> Resources:
        return Resources({name: amount * factor for name, amount in self._amounts.items()})

    __rmul__ = __mul__

    def fits_in(self, capacity: Resources) -> bool:
        """True when every amount here is at most the one in `capacity` (absent there = 0)."""
        return all(amount <= capacity[name] for name, amount in self._amounts.items())

    def lacking_in(self, capacity: Resources) -> list[str]:
        """Names of which `capacity` has too little, sorted."""
        return sorted(name for name, amount in self._amounts.items() if amount > capacity[name])

    def is_nonnegative(self) -> bool:
        return all(amount >= 0 for amount in self._amounts.values())

    @property
    def gpus(self) -> int:
        """Whole GPUs, rounded up from thousandths."""
        return -(-self[GPU] // WHOLE_GPU)

    def to_dict(self) -> dict[str, int]:
        return dict(self._amounts)


def sum_resources(vectors: Iterable[Resources]) -> Resources:
    """The sum of any number of vectors; the empty sum is the zero vector."""
    total: dict[str, int] = {}
    for vector in vectors:
        for name, amount in vector.items():
            total[name] = total.get(name, 0) + amount
    return Resources(total)
