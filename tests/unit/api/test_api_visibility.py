from __future__ import annotations

import itertools

import pytest

from gpucluster.api.errors import Forbidden, NotFound
from gpucluster.api.visibility import Visibility
from gpucluster.model.jobs import Job, JobSpec, Program, ProgramKind, Share, TaskRole
from gpucluster.model.principals import Principal
from gpucluster.model.queues import ROOT, QueueSpec


def person(name: str, *groups: str, admin: bool = False) -> Principal:
    return Principal(issuer="unix", subject=f"uid-{name}", name=name, groups=groups, is_admin=admin)


ANN, BOB, EVE, ROOT_USER = (
    person("ann", "vision"),
    person("bob", "vision"),
    person("eve"),
    person("root", admin=True),
)
LEAD = person("lead")
QUEUES = {
    spec.name: spec
    for spec in (
        QueueSpec(name=ROOT, parent=None),
        QueueSpec(name="team", admin_users=("lead",), submit_users=()),
        QueueSpec(name="vision", parent="team", submit_users=("@vision",)),
        QueueSpec(name="open"),
    )
}
VISIBILITY = Visibility(QUEUES.get)


def job(share: Share = Share.OWNER, queue: str = "vision") -> Job:
    spec = JobSpec(name="secret plan", queue=queue, roles=(TaskRole(),), share=share)
    return Job(id="j", number=7, owner=ANN, spec=spec, program=Program(kind=ProgramKind.CELL, source="x"))


#: who, share -> see, read, control
TABLE = {
    (ANN, Share.OWNER): (True, True, True),
    (BOB, Share.OWNER): (True, False, False),
    (EVE, Share.OWNER): (False, False, False),
    (LEAD, Share.OWNER): (True, False, True),
    (ROOT_USER, Share.OWNER): (True, False, True),
    (BOB, Share.QUEUE): (True, True, False),
    (EVE, Share.QUEUE): (False, False, False),
    (LEAD, Share.QUEUE): (True, True, True),
    (ROOT_USER, Share.QUEUE): (True, True, True),
    (BOB, Share.EVERYONE): (True, True, False),
    (EVE, Share.EVERYONE): (True, True, False),
}


@pytest.mark.parametrize(("who", "share"), TABLE, ids=lambda value: getattr(value, "name", str(value)))
def test_rights_follow_owner_queue_and_share(who: Principal, share: Share) -> None:
    rights = VISIBILITY.rights_on(who, job(share))
    assert (rights.see, rights.read, rights.control) == TABLE[who, share]


def test_who_may_read_may_see() -> None:
    people, shares, queues = (ANN, BOB, EVE, LEAD, ROOT_USER), Share, (*QUEUES, "removed")
    for who, share, queue in itertools.product(people, shares, queues):
        rights = VISIBILITY.rights_on(who, job(share, queue))
        assert rights.see or not rights.read


def test_stranger_does_not_learn_that_a_job_exists() -> None:
    with pytest.raises(NotFound) as unknown:
        VISIBILITY.require_control(EVE, job())
    assert "secret plan" not in str(unknown.value)
    assert "ann" not in str(unknown.value)


def test_who_sees_a_job_is_told_why_not_more() -> None:
    with pytest.raises(Forbidden, match="are ann's"):
        VISIBILITY.require_read(BOB, job())
    with pytest.raises(Forbidden, match="only they and administrators"):
        VISIBILITY.require_control(BOB, job())


def test_owner_keeps_a_job_whose_queue_was_removed() -> None:
    rights = VISIBILITY.rights_on(ANN, job(queue="removed"))
    assert (rights.see, rights.read, rights.control) == (True, True, True)
    assert not VISIBILITY.may_submit(ANN, "removed")


def test_names_are_users_principal_ids_groups_or_all() -> None:
    assert ANN.is_named(("ann",))
    assert ANN.is_named(("unix:uid-ann",))
    assert ANN.is_named(("@vision",))
    assert EVE.is_named(("*",))
    assert not ANN.is_named(("vision", "@ann", "bob"))


def test_administration_is_inherited_down_the_tree_and_survives_a_loop() -> None:
    assert VISIBILITY.administers(LEAD, "vision")
    assert not VISIBILITY.administers(LEAD, "open")
    loop = {"a": QueueSpec(name="a", parent="b"), "b": QueueSpec(name="b", parent="a")}
    assert not Visibility(loop.get).administers(LEAD, "a")
