"""Who may see and do what (DESIGN section 4, *Visibility* and *Control*). The one place where this is decided.

- A job's name, owner, resources and state: its owner, administrators, all who may submit to its queue, and whom it is
  shared with. To anybody else it is occupied capacity only.
- Its code, logs, outputs, progress and reasons: its owner and whom they share with.
- Control: its owner and administrators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..model.errors import Forbidden, NotFound
from ..model.jobs import Job, Share
from ..model.principals import Principal
from ..model.queues import ROOT, QueueSpec
from ..policy.admission import may_submit

#: Levels of the queue tree that are looked at: enough for any, and an end for a tree that is none.
MAX_DEPTH = 100


@dataclasses.dataclass(frozen=True)
class Rights:
    """What a principal may do with one job."""

    see: bool  # name, owner, resources, state
    read: bool  # code, logs, outputs
    control: bool


class Visibility:
    """Answers for the queue tree of the moment. `find_queue` gives a queue by name, None when there is none of it."""

    def __init__(self, find_queue: Callable[[str], QueueSpec | None]) -> None:
        self._find_queue = find_queue

    def may_submit(self, principal: Principal, queue: str) -> bool:
        """Whether the queue takes jobs of this principal. An unknown queue takes none."""
        spec = self._find_queue(queue)
        return spec is not None and (may_submit(spec, principal) or self.administers(principal, queue))

    def administers(self, principal: Principal, queue: str) -> bool:
        """Administrators of the cluster, and those of the queue or of one above it."""
        if principal.is_admin:
            return True
        name: str | None = queue
        for _ in range(MAX_DEPTH):
            spec = self._find_queue(name) if name else None
            if spec is None:
                return False
            if principal.is_named(spec.admin_users):
                return True
            name = spec.parent if spec.name != ROOT else None
        return False

    def rights(self, principal: Principal, owner: str, queue: str, share: Share) -> Rights:
        """`owner` is a principal id."""
        mine = owner == principal.id
        in_queue = self.may_submit(principal, queue)
        read = mine or share is Share.EVERYONE or (share is Share.QUEUE and in_queue)
        return Rights(see=read or in_queue, read=read, control=mine or self.administers(principal, queue))

    def rights_on(self, principal: Principal, job: Job) -> Rights:
        return self.rights(principal, job.owner.id, job.spec.queue, job.spec.share)

    def require_seen(self, principal: Principal, job: Job) -> Rights:
        """Raises NotFound, as for a job that does not exist: a stranger does not learn that it does."""
        rights = self.rights_on(principal, job)
        if not rights.see:
            raise no_such_job(job.number)
        return rights

    def require_read(self, principal: Principal, job: Job) -> Rights:
        """Raises NotFound or Forbidden."""
        rights = self.require_seen(principal, job)
        if not rights.read:
            raise Forbidden(
                f"code, logs and outputs of job {job.number} are {job.owner.name}'s",
                hint="Its owner can share it: %share, or --share queue|everyone at submission.",
            )
        return rights

    def require_control(self, principal: Principal, job: Job) -> Rights:
        """Raises NotFound or Forbidden."""
        rights = self.require_seen(principal, job)
        if not rights.control:
            raise Forbidden(
                f"job {job.number} is {job.owner.name}'s: only they and administrators control it"
            )
        return rights


def require_admin(principal: Principal, what: str) -> None:
    """Raises Forbidden."""
    if not principal.is_admin:
        raise Forbidden(f"{what} is for administrators of the cluster")


def no_such_job(job: str | int) -> NotFound:
    return NotFound(f"there is no job {job}", hint="`gpucluster jobs` lists the jobs that you may see.")
