"""`Job`, functions, and the looking magics, from a kernel and from a plain process."""

from __future__ import annotations

import asyncio
import pickle
import threading

import pytest

from jupyter_gpucluster import Executor, Job, JobCancelled, JobFailed, submit
from jupyter_gpucluster.connection import disconnect
from jupyter_gpucluster.errors import WaitTimeout

from .frontend import Kernel


@pytest.fixture
def here(scheduler, monkeypatch):
    """This process as a user's script beside the scheduler."""
    for key in ("GPUCLUSTER_DATA", "GPUCLUSTER_RUNTIME"):
        monkeypatch.setenv(key, scheduler.env[key])
    yield scheduler
    disconnect()


def double(x, plus=0):
    print("doubling", x)
    return 2 * x + plus


def fail():
    print("about to fail")
    raise ValueError("on purpose")


def forever():
    import time

    print("begun", flush=True)
    time.sleep(3600)


def test_function_runs_as_a_job(here):
    job = submit(double, 21, kwargs={"plus": 1}, gpus=0, name="twice")
    assert job.result(60) == 43
    assert job.name == "twice"
    assert job.logs() == "doubling 21\n"
    assert job.state == "succeeded"
    assert job.outputs.stdout == "doubling 21\n"


def test_job_is_found_again_by_number_and_id_and_after_a_pickle(here):
    job = submit(double, 2, gpus=0)
    again = [
        Job(job.number),
        Job(str(job.number)),
        Job(f"#{job.number}"),
        Job(job.id),
        pickle.loads(pickle.dumps(job)),
    ]
    assert all(each == job and each.result(60) == 4 for each in again)


def test_failure_raises_with_the_remote_error_and_the_last_lines(here):
    job = submit(fail, gpus=0)
    with pytest.raises(JobFailed) as caught:
        job.result(60)
    assert (caught.value.ename, caught.value.evalue) == ("ValueError", "on purpose")
    assert "about to fail" in str(caught.value)
    assert 'raise ValueError("on purpose")' in str(caught.value)
    assert f"gpucluster logs {job.number}" in str(caught.value)
    assert "%logs" not in str(caught.value)
    assert isinstance(job.exception(), JobFailed)


def test_wait_gives_up_after_its_time_and_cancel_ends_the_job(here):
    job = submit(forever, gpus=0)
    assert job.wait(0.2) is False
    with pytest.raises(WaitTimeout):
        job.result(0.1)
    job.cancel()
    assert job.wait(60)
    with pytest.raises(JobCancelled):
        job.result()


def test_await_does_not_block_the_loop(here):
    async def main():
        job = submit(double, 4, gpus=0)
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticker = asyncio.create_task(tick())
        value = await job
        ticker.cancel()
        return value, ticks

    value, ticks = asyncio.run(main())
    assert value == 8
    assert ticks > 0


def test_await_can_be_given_up(here):
    async def main():
        job = submit(forever, gpus=0)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_waiting(job), 0.3)
        return job

    job = asyncio.run(main())
    assert not job.done()
    job.cancel()
    job.wait(60)


async def _waiting(job):
    return await job


def test_result_from_other_threads(here):
    job = submit(double, 5, gpus=0)
    values = []
    threads = [threading.Thread(target=lambda: values.append(job.result(60))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [10] * 4


def test_executor_maps_like_any_other(here):
    with Executor(gpus=0, name="mapped") as pool:
        assert list(pool.map(double, range(3))) == [0, 2, 4]
        future = pool.submit(fail)
        assert isinstance(future.exception(60), JobFailed)


def test_await_in_a_cell(kernel: Kernel):
    kernel.run("%%submit --no-wait --as job --gpus 0\n6 * 7")
    assert kernel.run("await job").result == "42"


def test_function_of_the_notebook_as_a_job(kernel: Kernel):
    kernel.run("from jupyter_gpucluster import submit\noffset = 5\ndef add(x):\n    return x + offset")
    assert kernel.run("submit(add, 1, gpus=0).result()").result == "6"


def test_credential_that_a_function_uses_is_stopped_before_sending(kernel: Kernel, scheduler):
    before = len(scheduler.client.jobs(limit=100).jobs)
    kernel.run(
        "from jupyter_gpucluster import Executor, submit\ntoken = 'abcd1234efgh'\ndef uses(): return token"
    )
    for code in ("submit(uses, gpus=0)", "Executor(gpus=0).submit(uses)"):
        cell = kernel.run(code)
        assert (cell.status, cell.ename) == ("error", "InvalidRequest")
        assert "token: looks like a credential" in cell.error
        assert "include=['token']" in cell.error
        assert "abcd1234" not in cell.error
    assert len(scheduler.client.jobs(limit=100).jobs) == before
    allowed = kernel.run("submit(uses, gpus=0, include='token').result()")
    assert allowed.result == "'abcd1234efgh'"


def test_names_hidden_in_a_function_go_when_included(kernel: Kernel):
    kernel.run("from jupyter_gpucluster import submit\nhidden = 3\ndef uses(): return eval('hidden + 1')")
    assert kernel.run("submit(uses, gpus=0, include=['hidden']).result()").result == "4"


def test_looking_magics_show_tables(kernel: Kernel):
    kernel.run("%%submit --name looked-at\n1")
    jobs = kernel.run("%jobs --limit 5")
    assert "looked-at" in jobs.result
    assert "<table" in jobs.outputs[0]["data"]["text/html"]
    assert "research" in kernel.run("%queues").result
    topology = kernel.run("%topology").result
    assert "node-0" in topology
    assert "simulated" in topology
    assert kernel.run("mine = %jobs\nmine[0].name").result == "'looked-at'"


def test_why_share_cancel_and_logs_take_numbers_and_names(kernel: Kernel):
    kernel.run(
        "%%submit --no-wait --as job --gpus 0\nimport time\nprint('begun', flush=True)\ntime.sleep(3600)"
    )
    number = kernel.run("job.number").result
    assert str(number) in kernel.run(f"%share {number} everyone").stdout
    assert kernel.run("job.view().share").result == "'everyone'"
    assert kernel.run("%why job").result
    kernel.run("while 'begun' not in job.logs():\n    pass")
    assert kernel.run(f"%logs {number}").stdout.splitlines()[-1] == "begun"
    assert "job" in kernel.run("%cancel job").stdout
    kernel.run("job.wait()")
    assert "cancelled" in kernel.run(f"%cancel {number}").stdout


def test_how_limits_are_kept_is_told_where_one_looks(kernel: Kernel):
    cell = kernel.run("%%submit --memory 512M --cpus 1 --gpus 0 --as job\n1")
    limits = cell.card["limits"]
    assert limits.startswith("memory 512.0 MiB ")
    assert "1 CPU core " in limits
    assert f"limits: {limits}" in cell.card_text
    assert kernel.run("%logs job").stdout.splitlines()[0] == f"— limits: {limits} —"
    assert kernel.run("%why job").result.endswith(f" Limits: {limits}.")
    assert kernel.run("%%submit --gpus 0\n1").card["limits"] == ""


def test_unknown_job_is_a_clear_error(kernel: Kernel):
    for magic in ("attach", "why", "logs", "cancel"):
        cell = kernel.run(f"%{magic} 999999")
        assert cell.status == "error"
        assert "999999" in cell.error
        assert "Traceback" not in cell.error
    assert "which job?" in kernel.run("%cancel").stderr
    assert "which job?" in kernel.run("%share").stderr


def test_latest_job_is_meant_where_none_is_named(kernel: Kernel):
    cell = kernel.run("%%submit --gpus 0 --name newest\nprint('said')\nnet = 7")
    number = cell.card["number"]
    kernel.run("del net")
    attached = kernel.run("%attach")
    assert (attached.card["number"], attached.stdout) == (number, "said\n")
    assert kernel.run("net").result == "7"
    logged = kernel.run("%logs").stdout.splitlines()
    assert (logged[0], logged[-1]) == (f"job {number} newest:", "said")
    why = kernel.run("%why")
    assert why.stdout == f"job {number} newest:\n"
    assert "succeeded" in why.result
    assert kernel.run("found = %jobs -n 1\n[each.number for each in found]").result == f"[{number}]"


def test_errors_of_ours_are_a_line_or_two_without_our_frames(kernel: Kernel):
    kernel.run(
        "from jupyter_gpucluster import Executor, Job, submit\njob = submit(len, [1], gpus=0)\njob.wait()"
    )
    for code, text in (
        ("Job(999999)", "NotFound: there is no job 999999\n%jobs lists the jobs that you may see."),
        ("submit(len, [1], tier='3')", "InvalidRequest: tier: '3' is not one of 0, 1, 2"),
        ("submit(len, [1], gpu_memory='3G')", "NotSupported: gpu_memory: GPU memory as a resource comes with a later version"),
        ("Executor(time='soon')", "InvalidRequest: time: 'soon' is not a duration\nWrite for example 90s, 30m, 2h or 1h30m."),
        ("job['x']", f"NotBack: x: job {kernel.run('job.number').result} brought back no names"),
    ):  # fmt: skip
        assert kernel.run(code).error == text
    deep = kernel.run("def find():\n    return Job(999999)\nfind()").error.splitlines()
    assert len(deep) == 3
    assert deep[2].startswith("in find, Cell In[")
    assert deep[2].endswith(", line 2")


def test_widget_shows_what_the_card_shows_and_the_end_of_the_log(kernel: Kernel):
    kernel.run("""
        %%submit --no-wait --as job --gpus 0 --name shown
        from gpucluster.worker import report
        for n in range(1, 6):
            report(n, total=5, loss=1 / n)
        print('\\x1b[32mgreen\\x1b[0m\\n\\r10%\\r<b>99%</b>')
        """)  # fmt: skip
    kernel.run("w = job.widget()\njob.wait()\nw._thread.join(30)")
    log = kernel.run("print(w._log.value)").stdout
    assert ">green\n&lt;b&gt;99%&lt;/b&gt;\n" in log
    assert "%logs" in log
    card = kernel.run("print(w._headline.value)").stdout
    for said in (
        "shown",
        "succeeded",
        "step 5/5",
        "first step after",
        "no GPU",
        'aria-label="loss went from',
    ):
        assert said in card
    assert kernel.run("w._cancel.disabled, w._cancel.tooltip").result == "(True, 'it has ended')"


def test_widget_of_a_failed_job_ends_with_its_error(kernel: Kernel):
    kernel.run("%%submit --no-wait --as job --gpus 0\nraise ValueError('on purpose')")
    kernel.run("w = job.widget()\njob.wait()\nw._thread.join(30)")
    assert kernel.run("'ValueError: on purpose' in w._log.value, 'failed' in w._headline.value").result == (
        "(True, True)"
    )


def test_widget_cancels_when_asked_twice(kernel: Kernel):
    kernel.run("%%submit --no-wait --as job --gpus 0\nimport time\ntime.sleep(600)")
    kernel.run("w = job.widget()\nw._cancel.click()")
    buttons = "[button.description for button in w.children[-1].children if button.layout.display != 'none']"
    number = kernel.run("job.number").result
    assert kernel.run(buttons).result == f"['Cancel job {number}', 'Let it run']"
    kernel.run("w._keep.click()")
    assert kernel.run(buttons).result == "['Cancel']"
    assert kernel.run("job.state in ('pending', 'starting', 'running')").result == "True"
    kernel.run("w._cancel.click()\nw._really.click()\njob.wait(60)\nw._thread.join(30)")
    assert kernel.run("job.state, w._cancel.disabled, 'cancelled' in w._headline.value").result == (
        "('cancelled', True, True)"
    )


def test_closed_widget_leaves_no_thread(kernel: Kernel):
    kernel.run("%%submit --no-wait --as job --gpus 0\nimport time\ntime.sleep(600)")
    assert (
        kernel.run("w = job.widget()\nw.close()\nw._thread.join(30)\nw._thread.is_alive()").result == "False"
    )
    kernel.run("job.cancel()")
