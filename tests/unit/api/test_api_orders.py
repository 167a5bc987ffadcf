"""Orders: what one task of a gang is told agrees with what the others are told."""

from __future__ import annotations

from pathlib import Path

from support.engine_bench import gpu_queue, make_job, make_node, make_spec
from support.store_samples import new_id

from gpucluster.api.orders import OrderMaker
from gpucluster.engine.core import Engine
from gpucluster.engine.events import JobSubmitted
from gpucluster.engine.instructions import StartTask
from gpucluster.store.secrets import Secrets


def test_tasks_of_a_gang_are_told_one_meeting_point_and_other_gangs_another(tmp_path: Path) -> None:
    engine = Engine(queues=[gpu_queue("default")], nodes=[make_node("n0", 8)], new_id=new_id)
    asked: list[list[int]] = []

    def meeting_point(placements) -> tuple[str, int]:  # type: ignore[no-untyped-def]
        asked.append([placement.rank for placement in placements])
        return "10.0.0.7", 20_000 + len(asked)

    jobs = [make_job(make_spec(tasks=3), new_id()) for _ in range(2)]
    step = engine.step(1, [JobSubmitted(job) for job in jobs])
    make = OrderMaker(lambda: engine.state, Secrets(tmp_path), meeting_point)
    orders = [make(start) for start in step.instructions if isinstance(start, StartTask)]
    told = {job.id: {(o.master_addr, o.master_port) for o in orders if o.job_id == job.id} for job in jobs}
    assert sorted(told.values(), key=str) == [{("10.0.0.7", 20_001)}, {("10.0.0.7", 20_002)}]
    assert asked == [[0, 1, 2], [0, 1, 2]]
    assert {(order.world_size, order.local_world_size) for order in orders} == {(3, 3)}
