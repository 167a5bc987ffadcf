"""The cluster as a whole: greeting, status, queues, nodes, topology; administrators: a node's health, the end of the service."""

from __future__ import annotations

import asyncio

from ...engine.events import NodeHealthSet
from ...model.errors import Unavailable
from ...model.jobs import Program, ProgramKind
from ...model.topology import NodeHealth
from .. import discovery
from ..schemas import PROTOCOL_MAX, PROTOCOL_MIN, Done, Hello, NodeRequest, StatusView, WarmRequest
from ..visibility import require_admin
from .base import ApiHandler, checked_reason

#: The status does not wait longer than this for the store.
STATUS_PATIENCE_S = 0.5


class HelloHandler(ApiHandler):
    """`GET /v1/hello`"""

    def get(self) -> None:
        self.known_queries()
        parts = self.parts
        self.answer(
            Hello(
                version=parts.identity.version,
                protocol=(PROTOCOL_MIN, PROTOCOL_MAX),
                cluster=parts.config.name,
                principal=self.principal.id,
                principal_name=self.principal.name,
                simulated=parts.is_simulated(),
                default_queue=parts.config.default_queue,
                boot_id=discovery.boot_id(),
                pid=parts.identity.pid,
            )
        )


class StatusHandler(ApiHandler):
    """`GET /v1/status`"""

    async def get(self) -> None:
        self.known_queries()
        parts = self.parts
        counts = await asyncio.to_thread(parts.store.counts_by_state)
        gpus_used, unsettled = await self._gpus_used()
        gpus = [gpu for node in parts.state.nodes.values() for gpu in node.gpus]
        self.answer(
            StatusView(
                cluster=parts.config.name,
                version=parts.identity.version,
                pid=parts.identity.pid,
                started_us=parts.identity.started_us,
                data_dir=parts.identity.data_dir,
                address=parts.identity.address,
                simulated=parts.is_simulated(),
                nodes=len(parts.state.nodes),
                gpus=len(gpus),
                gpus_used=gpus_used,
                gpus_healthy=sum(gpu.health.value == "ok" for gpu in gpus),
                jobs=counts,
                notes=[*parts.notes(), *unsettled],
                seq=parts.feed.last_seq,
            )
        )

    async def _gpus_used(self) -> tuple[int, list[str]]:
        """GPUs held by jobs as far as that is stored; where the store is in trouble, the number that was last known.

        The status answers in any case: it is where one looks for what the matter is.
        """
        parts = self.parts
        try:
            await self.settle(STATUS_PATIENCE_S)
        except Unavailable as error:
            return parts.last_known.gpus_used, [error.reason]
        parts.last_known.gpus_used = sum(len(books.held) for books in parts.state.space)
        return parts.last_known.gpus_used, []


class QueuesHandler(ApiHandler):
    """`GET /v1/queues`"""

    async def get(self) -> None:
        self.known_queries()
        await self.settle()
        self.answer(self.parts.views.queues(self.principal))


class NodesHandler(ApiHandler):
    """`GET /v1/nodes`"""

    async def get(self) -> None:
        self.known_queries()
        await self.settle()
        self.answer(self.parts.views.nodes(self.principal))


class TopologyHandler(ApiHandler):
    """`GET /v1/topology`"""

    async def get(self) -> None:
        self.known_queries()
        await self.settle()
        self.answer(self.parts.views.topology(self.principal))


class NodeHandler(ApiHandler):
    """`POST /v1/nodes/{name}`: administrators."""

    async def post(self, name: str) -> None:
        require_admin(self.principal, "changing a node's health")
        request = self.decode(NodeRequest)
        reason = checked_reason(request.reason)
        await self.parts.driver.submit(
            NodeHealthSet(name, NodeHealth(request.health), self.principal.id, self.principal.name, reason)
        )
        self.parts.log.info(
            "%s set node %s to %s: %s",
            self.principal.id,
            name,
            request.health,
            reason or "no reason given",
        )
        await self.settle()
        self.answer(self.parts.views.node(self.parts.state.nodes[name], self.principal))


class WarmHandler(ApiHandler):
    """`POST /v1/warm`: a hint, so it is taken at once and never fails."""

    async def post(self) -> None:
        request = self.decode(WarmRequest)
        program = Program(
            kind=ProgramKind.CELL,
            source="",
            interpreter=request.interpreter,
            cwd=request.cwd,
            sys_path=tuple(request.sys_path),
            env=request.env,
        )
        await self.parts.backend.warm(program, self.principal.id)
        self.answer(Done())


class StopHandler(ApiHandler):
    """`POST /v1/stop`: the service ends; what runs goes on and is adopted by the next one. Administrators."""

    def post(self) -> None:
        require_admin(self.principal, "stopping the scheduler")
        self.answer(Done())
        self.parts.request_stop(f"{self.principal.name} asked for it")
