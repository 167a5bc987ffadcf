"""What comes back into the notebook."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from gpucluster.api.schemas import ResultManifest
from gpucluster.worker import pickling
from jupyter_gpucluster.binding import bind_results, summary_line


def result(
    objects: dict[str, Any], ns: dict[str, Any] | None = None, **about: Any
) -> tuple[ResultManifest, dict[str, Any]]:
    """A result as the worker stores it, and its blobs."""
    pickled = pickling.dump(objects, ns=ns or {})
    contents: list[bytes] = [pickled.pickle, *(buffer.tobytes() for buffer in pickled.buffers)]
    blobs = {hashlib.sha256(content).hexdigest(): content for content in contents}
    first, *rest = blobs
    names = tuple(name for name in objects if name != "<value>")
    return ResultManifest(
        pickle=first, buffers=tuple(rest), names=names, has_value="<value>" in objects, **about
    ), blobs


def test_names_are_bound_and_the_value_is_told() -> None:
    manifest, blobs = result({"x": [1], "<value>": None})
    ns: dict[str, Any] = {}
    bound = bind_results(manifest, blobs.__getitem__, ns)
    assert ns == {"x": [1]}
    assert (bound.bound, bound.has_value, bound.value) == (("x",), True, None)


def test_only_the_wanted_names_are_bound() -> None:
    manifest, blobs = result({"x": 1, "y": 2, "<value>": 3}, missing={"z": "why", "w": "not"})
    ns: dict[str, Any] = {}
    bound = bind_results(manifest, blobs.__getitem__, ns, ["y", "z"])
    assert ns == {"y": 2}
    assert bound.missing == {"z": "why"}
    assert bound.value == 3


def test_changed_input_is_bound_under_every_name_it_had() -> None:
    manifest, blobs = result({"a": [1, 2]}, changed=("a",))
    old = [1]
    ns: dict[str, Any] = {"a": old, "b": old, "c": [1], "_": old, "_3": old}
    bound = bind_results(manifest, blobs.__getitem__, ns)
    assert ns["a"] is ns["b"]
    assert ns["a"] == [1, 2]
    assert ns["c"] == [1]
    assert ns["_"] is ns["_3"] is old
    assert (bound.changed, bound.aliases) == (("a",), {"b": "a"})


def test_small_values_that_happen_to_be_one_object_are_no_aliases() -> None:
    manifest, blobs = result({"n": 2}, changed=("n",))
    ns: dict[str, Any] = {"n": 1, "m": 1}
    bind_results(manifest, blobs.__getitem__, ns)
    assert ns == {"n": 2, "m": 1}


def test_name_that_the_cell_deleted_goes_here_too_and_its_aliases_stay() -> None:
    manifest, blobs = result({"y": 2}, deleted=("x", "gone"))
    value = [1]
    ns: dict[str, Any] = {"x": value, "z": value}
    bound = bind_results(manifest, blobs.__getitem__, ns)
    assert ns == {"y": 2, "z": [1]}
    assert bound.deleted == ("x",)
    ns["x"] = 5
    assert bind_results(manifest, blobs.__getitem__, ns, ["y"]).deleted == ()
    assert ns["x"] == 5


def test_result_without_names_binds_nothing() -> None:
    nothing: dict[str, bytes] = {}
    bound = bind_results(ResultManifest(missing={"x": "why"}, notes=("note",)), nothing.__getitem__, {})
    assert (bound.bound, bound.missing, bound.has_value, bound.notes) == ((), {"x": "why"}, False, ("note",))


def test_damaged_result_binds_nothing_and_says_so() -> None:
    manifest, blobs = result({"x": [1] * 100})
    ns: dict[str, Any] = {"x": 0}
    cut = {sha: content[:-9] for sha, content in blobs.items()}
    with pytest.raises(pickling.CannotLoad, match="cut off or damaged"):
        bind_results(manifest, cut.__getitem__, ns)
    assert ns == {"x": 0}


def test_functions_live_in_the_notebook_even_when_bound_elsewhere() -> None:
    there: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(): return K", there)
    manifest, blobs = result({"f": there["f"]}, there)
    notebook: dict[str, Any] = {"K": 5}
    target: dict[str, Any] = {}
    bind_results(manifest, blobs.__getitem__, target, home=notebook)
    assert target["f"]() == 5


def test_summary_names_what_went_in_came_out_and_was_changed() -> None:
    assert summary_line(["net", "X"], ["history"], ["net"]) == "in: net, X · out: history · changed: net"
    assert summary_line([], ["a", "net"], ["net"], ["f"]) == "out: a · changed: net · not back: f"
    assert summary_line(map(str, range(12))) == "in: 0, 1, 2, 3, 4, 5, 6, 7, +4"
    assert summary_line(["x", "y"], deleted=["x"]) == "in: x, y · deleted: x"
    assert summary_line() == ""
