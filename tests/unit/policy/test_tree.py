"""The queue tree's books: guarantees, maxima, shares (docs/policies/capacity-queues.md)."""

from __future__ import annotations

import pytest

from gpucluster.model.errors import InvalidRequest, NotFound
from gpucluster.model.queues import QueueSpec
from gpucluster.model.resources import Resources
from gpucluster.policy.tree import QueueTree

CLUSTER = Resources({"gpu": 16000, "gpu/A100": 8000, "gpu/T4": 8000, "cpu": 64000})


def tree(*specs: QueueSpec) -> QueueTree:
    return QueueTree(specs, CLUSTER)


def queue(name: str, parent: str = "root", gpu: int | None = None, **more: object) -> QueueSpec:
    guaranteed = None if gpu is None else {"gpu": gpu * 1000, "cpu": gpu * 4000}
    return QueueSpec(name=name, parent=parent, guaranteed=guaranteed, **more)  # type: ignore[arg-type]


def test_use_counts_at_every_level_and_comes_back() -> None:
    books = tree(queue("lab"), queue("vision", "lab"))
    books.take("vision", {"gpu": 3000})
    assert [books[name].used for name in ("vision", "lab", "root")] == [{"gpu": 3000}] * 3
    books.release("vision", {"gpu": 3000})
    assert [books[name].used for name in ("vision", "lab", "root")] == [{}] * 3


def test_unset_inner_queue_is_guaranteed_what_its_children_are() -> None:
    books = tree(queue("lab"), queue("vision", "lab", 4), queue("nlp", "lab", 2), queue("spare", "lab"))
    assert books["lab"].guaranteed_amount("gpu") == 6000
    assert books.is_within_guarantee("spare", {"gpu": 6000})
    assert not books.is_within_guarantee("spare", {"gpu": 7000})


def test_unset_leaf_stands_on_its_nearest_set_ancestor() -> None:
    books = tree(queue("lab", gpu=8), queue("vision", "lab"))
    stands_on = books.stands_on("vision")
    assert stands_on is not None
    assert stands_on.name == "lab"
    assert books.is_within_guarantee("vision", {"gpu": 8000})
    assert not books.is_within_guarantee("vision", {"gpu": 9000})


def test_explicit_zero_is_zero() -> None:
    books = tree(queue("lab", gpu=8), queue("guests", "lab", 0))
    assert not books.is_within_guarantee("guests", {"gpu": 1000})


def test_queue_without_any_guarantee_has_no_claims() -> None:
    books = tree(queue("a"), queue("b", gpu=8))
    assert not books.is_within_guarantee("a", {"gpu": 1000})


def test_childs_guarantee_counts_only_as_far_as_its_parents() -> None:
    books = tree(queue("lab", gpu=4), queue("vision", "lab", 8))
    assert books.is_within_guarantee("vision", {"gpu": 4000})
    assert not books.is_within_guarantee("vision", {"gpu": 5000})


def test_guarantee_above_the_cluster_is_cut_down_to_it() -> None:
    books = tree(queue("a", gpu=100))
    assert books.is_within_guarantee("a", {"gpu": 16000})
    assert not books.is_within_guarantee("a", {"gpu": 17000})


def test_type_that_a_guarantee_does_not_name_gets_what_the_named_ones_leave() -> None:
    books = tree(QueueSpec(name="a", guaranteed={"gpu": 4000, "gpu/A100": 3000}))
    assert books["a"].guaranteed_amount("gpu/T4") == 1000
    assert books.is_within_guarantee("a", {"gpu": 1000, "gpu/T4": 1000})
    assert not books.is_within_guarantee("a", {"gpu": 2000, "gpu/T4": 2000})


def test_maximum_of_any_ancestor_binds() -> None:
    books = tree(queue("lab", max={"gpu": 4000}), queue("a", "lab"), queue("b", "lab", max={"gpu": 3000}))
    books.take("a", {"gpu": 3000})
    excesses = books.over_max("b", {"gpu": 2000})
    assert [(excess.queue, excess.used, excess.limit) for excess in excesses] == [("lab", 3000, 4000)]
    assert books.headroom("b", "gpu") == 1000
    assert books.headroom("b", "cpu") is None


def test_dominant_share_is_the_largest_part_of_the_cluster_over_the_weight() -> None:
    books = tree(queue("a", weight=2), queue("b"))
    books.take("a", {"gpu": 4000, "cpu": 32000})
    assert books.weighted_share(books["a"]) == 0.25
    books.take("b", {"gpu": 4000, "gpu/A100": 4000})
    assert books.weighted_share(books["b"]) == 0.5, "half of all A100"


def test_borrowed_is_what_is_used_above_the_guarantee() -> None:
    books = tree(queue("a", gpu=2), queue("b"))
    books.take("a", {"gpu": 5000})
    assert books.borrowed("a") == Resources({"gpu": 3000})
    assert books.borrowed("b") == Resources()


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([queue("a"), queue("a")], "two queues are named 'a'"),
        ([queue("a", "nobody")], "unknown parent 'nobody'"),
        ([queue("a", "b"), queue("b", "a")], "their own ancestors"),
    ],
)
def test_tree_that_is_none_is_refused(specs: list[QueueSpec], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        tree(*specs)


def test_queues_may_be_given_in_any_order() -> None:
    books = tree(queue("vision", "lab"), queue("lab"))
    assert [leaf.name for leaf in books.leaves()] == ["vision"]


def test_unknown_queue_is_not_found() -> None:
    with pytest.raises(NotFound):
        tree()["nobody"]
