from __future__ import annotations

from gpucluster.runtimes.environment import fixed_variables


def test_what_a_fork_cannot_change_is_told_from_what_it_can() -> None:
    fixed = {
        "OMP_NUM_THREADS": "1",
        "LD_LIBRARY_PATH": "/x",
        "PYTHONPATH": "/y",
        "LANG": "C",
        "MALLOC_ARENA_MAX": "1",
    }
    assert (
        fixed_variables({**fixed, "CUDA_VISIBLE_DEVICES": "", "RANK": "0", "WANDB_MODE": "offline"}) == fixed
    )
