"""`collect`: what a cell needs of the notebook, checked and packed to be sent (DESIGN section 4).

Nothing leaves the notebook here. Whatever must not or cannot go is refused here, with its name.
"""

from __future__ import annotations

import builtins
import hashlib
import re
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpucluster.api.errors import InvalidRequest
from gpucluster.api.schemas import INPUT_LIMIT_BYTES, InputManifest
from gpucluster.worker import pickling
from gpucluster.worker.namespace import global_names

from .cell import Transform
from .cellnames import CellNames, analyse, describe_hidden
from .code import functions_behind, held_by, is_from
from .credentials import credential_in, credential_in_text
from .sizes import SizeEstimate, readable

#: Names that IPython keeps in the namespace. What the user's own cells made of them is sent all the same.
_IPYTHON_NAMES = frozenset({"In", "_ih", "_oh", "_dh", "get_ipython", "exit", "quit", "open", "display"})
_HISTORY_OF_INPUTS = re.compile(r"_i+|_i\d+")
#: The last results: a cell that uses them means their values, a cell that assigns `_` means nothing by it.
_LAST_RESULTS = frozenset({"_", "__", "___"})
_IMMUTABLE = (int, float, complex, str, bytes, type(None), range, types.ModuleType, types.BuiltinFunctionType)
_HIDES_NAMES = frozenset({"eval", "exec", "globals"})


@dataclass
class Capture:
    """What goes with a cell.

    names           name -> "value", "function", "class" or "module"
    manifest        None when the cell needs nothing of the notebook
    blobs           by SHA-256; views of the live objects: send them before the notebook goes on
    outputs         names to bring back
    mutable_inputs  names to compare before and after the cell
    undefined       names that the cell reads and nothing defines; each has its warning, `not_defined(name)`
    """

    names: dict[str, str] = field(default_factory=dict)
    manifest: InputManifest | None = None
    blobs: dict[str, bytes | memoryview] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    mutable_inputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    total_bytes: int = 0


def not_defined(name: str) -> str:
    """The warning about a name that is nowhere defined."""
    return f"{name} is not defined, neither in this notebook nor in the cell"


def collect(
    source: str,
    user_ns: Mapping[str, Any],
    *,
    include: Sequence[str] = (),
    outputs: Sequence[str] = (),
    limit_bytes: int = INPUT_LIMIT_BYTES,
    digest_budget_bytes: int = 256 << 20,
    transform: Transform | None = None,
    first_line: int = 1,
) -> Capture:
    """Find, check and pickle what the cell `source` needs of `user_ns`; `include` and `outputs` add names (`--in`, `--out`).

    Raises SyntaxError as `analyse` does, and InvalidRequest, whose field is the name in question, for what looks like a
    credential, cannot travel, is not there although asked for, or does not fit into `limit_bytes`.
    """
    cell = analyse(source, transform=transform, first_line=first_line)
    collector = _Collector(cell, user_ns, include, limit_bytes)
    collector.gather()
    collector.check_size()
    pickled = collector.pickle()
    return collector.capture(source, pickled, outputs, digest_budget_bytes)


class _Collector:
    def __init__(
        self, cell: CellNames, user_ns: Mapping[str, Any], include: Sequence[str], limit_bytes: int
    ) -> None:
        self._cell = cell
        self._ns = user_ns
        self._include = tuple(include)
        self._limit = limit_bytes
        self._objects: dict[str, Any] = {}
        self._assigned_by_functions: dict[str, None] = {}
        self._left_out: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._warnings: dict[str, None] = {}
        self._undefined: list[str] = []

    # ---- which names

    def gather(self) -> None:
        for name in self._include:
            if name not in self._ns:
                raise InvalidRequest(
                    name,
                    "is not defined in this notebook",
                    "Run the cell that defines it, or leave it out of --in.",
                )
            self._objects[name] = self._ns[name]
        for name in self._cell.reads:
            if self._is_wanted(name):
                self._add(name)
        for name in list(self._objects):
            self._add_what_uses(name, self._objects[name])

    def _is_wanted(self, name: str) -> bool:
        if name in self._objects:
            return False
        if name not in self._ns:
            is_known = hasattr(builtins, name) or name in _IPYTHON_NAMES or name == "Out"
            if not (is_known or name in self._cell.perhaps or self._cell.may_get_names):
                self._undefined.append(name)
                self._warn(not_defined(name))
            return False
        return not self._is_ipythons_own(name)

    def _is_ipythons_own(self, name: str) -> bool:
        if name in _LAST_RESULTS:
            return False
        if name.startswith("__") and name.endswith("__"):
            return not is_from(self._ns, self._ns[name])
        if name not in _IPYTHON_NAMES and not _HISTORY_OF_INPUTS.fullmatch(name):
            return False
        if is_from(self._ns, self._ns[name]):
            return False
        if name in ("In", "_ih", "_oh", "_dh") or name.startswith("_i"):
            self._warn(f"{name} is this notebook's own history and was not sent; --in {name} adds it")
        return True

    def _add(self, name: str) -> None:
        value = self._ns[name]
        keys = self._cell.subscripts.get(name, {None})
        if name == "Out" and None not in keys and isinstance(value, dict):
            value = {key: value[key] for key in keys if key in value}
        reason = credential_in(name, value) if name not in self._include else None
        if reason is not None and self._may_do_without(name):
            self._leave_out(name, f"it looks like a credential ({reason}); --in {name} sends it")
            return
        if reason is not None:
            raise InvalidRequest(
                name,
                f"looks like a credential ({reason}) and would be stored with the job",
                f"Read it inside the cell, hand it over with --env, or send it all the same with --in {name}.",
            )
        self._objects[name] = value

    def _may_do_without(self, name: str) -> bool:
        """Whether the cell assigns the name itself, most likely before it uses it: `for f in …: …` with an open f here."""
        if name in self._include:
            return False
        return name in self._cell.perhaps or (name in self._cell.assigns and name not in self._cell.reads)

    def _leave_out(self, name: str, reason: str) -> None:
        self._warn(f"{name} was not sent: {reason}")
        self._left_out.add(name)
        self._objects.pop(name, None)

    def _add_what_uses(self, name: str, value: Any) -> None:
        """The notebook names that a function or class of the notebook uses go along, and what these use."""
        for function in functions_behind(self._ns, value):
            if name not in self._include:
                _refuse_credentials_in(name, function)
            if function.__globals__ is not self._ns:
                continue
            names = global_names(function.__code__)
            self._assigned_by_functions.update(dict.fromkeys(names.writes))
            hiding = next((used for used in names.reads if used in _HIDES_NAMES), None)
            if hiding:
                self._warn(
                    f"{name} calls {hiding}(…): names inside it were not searched; add those it needs with --in"
                )
            for used in (*names.reads, *names.writes):
                if self._is_to_follow(used):
                    self._add(used)
                    self._add_what_uses(used, self._objects.get(used))

    def _is_to_follow(self, name: str) -> bool:
        if name not in self._ns or name in self._objects or name in self._left_out:
            return False
        return not self._is_ipythons_own(name)

    def _warn(self, text: str) -> None:
        self._warnings.setdefault(text)

    # ---- sizes and pickling

    def check_size(self) -> None:
        estimate = SizeEstimate()
        self._sizes = {name: estimate.of(value) for name, value in self._objects.items()}
        total = sum(self._sizes.values())
        if total > self._limit:
            raise self._too_big(f"about {readable(total)}")

    def _too_big(self, total: str) -> InvalidRequest:
        by_size = sorted(self._sizes, key=self._sizes.__getitem__, reverse=True)
        listed = ", ".join(
            f"{name} {readable(self._sizes[name])}" for name in by_size[:3] if self._sizes[name]
        )
        return InvalidRequest(
            by_size[0],
            f"the inputs of this cell take {total}, over the budget of {readable(self._limit)} ({listed})",
            "Load it inside the cell from a file, send a part of it, or raise the budget: "
            "%config GPUClusterMagics.input_limit = BYTES.",
        )

    def pickle(self) -> pickling.Pickled:
        """Pickle the names; those that functions deep inside some value use are found on the way and join them."""
        while True:
            pickled = self._pickle_once()
            obstructed = [name for name in pickled.failed if self._may_do_without(name)]
            if pickled.failed and not obstructed:
                raise _refusal(pickled.failed)
            for name in obstructed:
                self._leave_out(name, pickled.failed[name])
            found = [name for name in pickled.used_globals if self._is_to_follow(name)]
            if not found and not obstructed:
                return pickled
            for name in found:
                self._add(name)
                self._add_what_uses(name, self._objects.get(name))
            self.check_size()

    def _pickle_once(self) -> pickling.Pickled:
        try:
            return pickling.dump(
                self._objects,
                ns=self._ns,  # type: ignore[arg-type]
                known=self._left_out,
                submodules=self._submodules(),
                limit_bytes=self._limit,
            )
        except pickling.OverLimit:
            raise self._too_big(f"more than {readable(self._limit)}") from None

    def _submodules(self) -> dict[str, list[str]]:
        """Submodules that the cell reaches through a module that it gets, and that `import` of that one need not bring."""
        found: dict[str, list[str]] = {}
        for name, value in self._objects.items():
            if not isinstance(value, types.ModuleType):
                continue
            for chain in self._cell.attributes.get(name, ()):
                path = value.__name__
                for part in chain:
                    path = f"{path}.{part}"
                    if path not in sys.modules:
                        break
                    found.setdefault(value.__name__, []).append(path)
        return {name: list(dict.fromkeys(paths)) for name, paths in found.items()}

    # ---- the result

    def capture(
        self, source: str, pickled: pickling.Pickled, outputs: Sequence[str], digest_budget_bytes: int
    ) -> Capture:
        wanted = [name for name in self._cell.assigns if name not in _LAST_RESULTS]
        wanted += [name for name in self._assigned_by_functions if name not in self._objects]
        wanted += outputs
        mutable = [name for name in self._objects if name not in wanted and self._may_change(name)]
        big = [name for name in mutable if self._sizes.get(name, 0) > digest_budget_bytes]
        wanted += [name for name in big if self._comes_back_whole(name, digest_budget_bytes)]
        mutable = [name for name in mutable if name not in big]  # the others have been told
        self._warn_of_hidden()
        if (what := credential_in_text(source)) is not None:
            self._warn(f"the text of the cell holds {what}; it is stored with the job")
        result = Capture(
            names={name: _kind(value) for name, value in self._objects.items()},
            outputs=tuple(dict.fromkeys(wanted)),
            mutable_inputs=tuple(name for name in mutable if name not in wanted),
            notes=pickled.notes,
            warnings=tuple(self._warnings),
            undefined=tuple(self._undefined),
        )
        if self._objects:
            _pack(result, pickled)
        return result

    def _may_change(self, name: str) -> bool:
        value = self._objects[name]
        if name in self._assigned_by_functions:
            return True
        if isinstance(value, (types.FunctionType, type)):
            return not pickling.is_importable(value)
        if isinstance(value, (tuple, frozenset)):
            return not all(isinstance(part, _IMMUTABLE) for part in value)
        return not isinstance(value, _IMMUTABLE)

    def _comes_back_whole(self, name: str, budget_bytes: int) -> bool:
        """What becomes of an input that is too big to be compared; says it."""
        size = readable(self._sizes[name])
        if name in self._cell.mutates:
            self._warn(f"{name} ({size}) is changed by the cell and is brought back whole")
            return True
        self._warn(
            f"{name} ({size}) is too big to be compared before and after (over {readable(budget_bytes)}): "
            f"if the job changes it in place, that is not brought back; --out {name} does"
        )
        return False

    def _warn_of_hidden(self) -> None:
        for place in self._cell.hidden:
            if place.names is None:
                self._warn(describe_hidden(place, None))
                continue
            if place.brings:
                names = [name for name in place.names if name not in self._cell.assigns]
            else:
                here = [name for name in place.names if name in self._ns and not self._is_ipythons_own(name)]
                names = [
                    name for name in here if name not in self._objects and name not in self._cell.assigns
                ]
            if names:
                self._warn(describe_hidden(place, names))
        for module in self._cell.stars:
            self._warn(
                f"names that `from {module} import *` brings stay in the job; import them here too, or name them in --out"
            )


def _refusal(failed: Mapping[str, str]) -> InvalidRequest:
    """About the name that is itself the obstacle, rather than one that only holds or uses it."""
    name = next((name for name, reason in failed.items() if not reason.startswith(name)), next(iter(failed)))
    others = [f"{other}: {reason}" for other, reason in failed.items() if other != name]
    return InvalidRequest(name, failed[name], "\n".join(["Nor can these go:", *others]) if others else None)


def _refuse_credentials_in(name: str, function: types.FunctionType) -> None:
    """Its closure and defaults go along with a function, where nobody sees them."""
    for held, value in held_by(function).items():
        reason = credential_in(held, value)
        if reason is not None:
            raise InvalidRequest(
                name,
                f"holds {held}, which looks like a credential ({reason}) and would be stored with the job",
                f"Read it inside the cell, hand it over with --env, or send it all the same with --in {name}.",
            )


def _kind(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return "function"
    return "value"


def _pack(result: Capture, pickled: pickling.Pickled) -> None:
    """Name the blobs by their content and write the manifest."""

    def blob(content: bytes | memoryview) -> str:
        sha = hashlib.sha256(content).hexdigest()
        result.blobs[sha] = content
        return sha

    result.total_bytes = pickled.total_bytes
    result.manifest = InputManifest(
        pickle=blob(pickled.pickle),
        buffers=tuple(blob(buffer) for buffer in pickled.buffers),
        names=tuple(result.names),
        total_bytes=pickled.total_bytes,
    )
