"""Failures, interrupts, coming back: how a cell's job ends when it does not simply end well."""

from __future__ import annotations

import os
import signal
import threading

from .frontend import Kernel, Once, eventually

SLEEPER = """
import os, time
print('begun', flush=True)
while not os.path.exists({flag!r}):
    time.sleep(0.02)
value = 5
print('ended')
value
"""


def sleeper(tmp_path, options: str = "") -> tuple[str, object]:
    flag = tmp_path / "go"
    return f"%%submit {options}" + SLEEPER.format(flag=str(flag)), flag


def begun(cell) -> bool:
    return "begun" in cell.stdout


def test_exception_shows_the_workers_traceback_with_the_cells_lines(kernel: Kernel):
    kernel.run("def inner(x):\n    return 1 / x")
    cell = kernel.run("%%submit\nprint('before')\nvalue = inner(0)")
    assert (cell.status, cell.ename) == ("error", "JobFailed")
    assert cell.stdout == "before\n"
    assert "ZeroDivisionError" in cell.error
    assert "value = inner(" in cell.error
    assert "return 1 " in cell.error
    assert f"in job {cell.card['number']} (attempt 1) on node-" in cell.error
    assert "jupyter_gpucluster" not in cell.error
    assert cell.card["state"] == "failed"


def test_what_a_cell_had_assigned_before_it_failed_stays_as_it_would_have_here(kernel: Kernel):
    kernel.run("log = []")
    cell = kernel.run("%%submit\nnet = 5\nlog.append(net)\n1 / 0\nlate = 1")
    assert (cell.status, cell.ename) == ("error", "JobFailed")
    assert cell.card["summary"] == "in: log · out: net · changed: log"
    assert "the cell failed; these are the names it had assigned before" in cell.card_text
    assert cell.stderr == ""
    assert kernel.run("net, log, 'late' in globals()").result == "(5, [5], False)"
    kernel.run("del net")
    assert kernel.run(f"%attach {cell.card['number']}").ename == "JobFailed"
    assert kernel.run("net").result == "5"


def test_failing_rank_of_a_gang_is_named_and_shown(kernel: Kernel):
    cell = kernel.run("""
        %%submit --tasks 2
        import os, time
        if os.environ['RANK'] == '1':
            raise ValueError('rank one')
        time.sleep(3600)
        """)  # fmt: skip
    number = cell.card["number"]
    assert "ValueError: rank one" in cell.error
    assert f"in job {number} (attempt 1, rank 1) on node-0 — %logs {number} --rank 1" in cell.error
    assert "rank one" in kernel.run(f"%logs {number} --rank 1").stderr


def test_job_that_waits_for_a_failed_one_says_so(kernel: Kernel):
    kernel.run("%%submit --no-wait --as first\n1 / 0")
    cell = kernel.run("%%submit --after first\n2")
    assert cell.ename == "JobFailed"
    assert "which has failed" in cell.error
    assert f"%why {cell.card['number']}" in cell.error


def test_run_all_stops_after_a_failure(kernel: Kernel):
    first = kernel.client.execute("%%submit\nraise RuntimeError('no')", stop_on_error=True)
    second = kernel.client.execute("reached = True", stop_on_error=True)
    assert kernel.collect(first).status == "error"
    assert kernel.reply(second)["status"] == "aborted"


def test_exit_code_and_signals_are_told(kernel: Kernel):
    cell = kernel.run(
        "%%submit --as gone\nimport os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    assert cell.status == "error"
    assert cell.ename in ("JobFailed", "JobLost")
    assert f"%logs {cell.card['number']}" in cell.error
    caught = kernel.run(
        "try:\n    gone.result()\nexcept Exception as error:\n    print(type(error).__name__, str(error))"
    )
    assert "last words" in caught.stdout


def test_interrupt_detaches_and_the_job_goes_on(kernel: Kernel, tmp_path, scheduler):
    code, flag = sleeper(tmp_path)
    cell = kernel.run(code, Once(begun, kernel.interrupt))
    assert (cell.status, cell.ename) == ("error", "Detached")
    number = cell.card["number"]
    assert (
        f"Detached from job {number}; it goes on. %attach {number} comes back, %cancel {number} ends it."
        in cell.error
    )
    assert scheduler.client.job(number).state == "running"
    flag.touch()
    attached = kernel.run(f"%attach {number}")
    assert (attached.status, attached.stdout, attached.result) == ("ok", "begun\nended\n", "5")
    assert kernel.run("value").result == "5"


def test_interrupt_of_a_wait_for_a_handle_is_one_line_and_the_job_goes_on(kernel: Kernel, tmp_path):
    code, flag = sleeper(tmp_path, "--no-wait --gpus 0 --as job")
    number = kernel.run(code).card["number"]
    for call in ("job.result()", "job.wait()"):
        waiting = f"print('waits', flush=True)\ntry:\n    {call}\nexcept Exception:\n    print('swallowed')"
        cell = kernel.run(
            waiting,
            Once(lambda cell: "waits" in cell.stdout, lambda: threading.Timer(0.5, kernel.interrupt).start()),
        )
        assert cell.error == (
            f"KeyboardInterrupt: no longer waiting for job {number}; it goes on. %cancel {number} ends it."
        )
        assert "swallowed" not in cell.stdout
    flag.touch()
    assert kernel.run("job.result()").result == "5"


def test_run_all_stops_after_an_interrupt(kernel: Kernel, tmp_path, scheduler):
    code, flag = sleeper(tmp_path)
    first = kernel.client.execute(code)
    second = kernel.client.execute("reached = True")
    cell = kernel.collect(first, Once(begun, kernel.interrupt))
    assert cell.status == "error"
    assert kernel.reply(second)["status"] == "aborted"
    flag.touch()
    eventually(lambda: scheduler.client.job(cell.card["number"]).state == "succeeded", "the job ends")


def test_interrupt_cancels_where_the_notebook_says_so(kernel: Kernel, tmp_path):
    code, _ = sleeper(tmp_path)
    kernel.run("%config GPUClusterMagics.interrupt = 'cancel'")
    cell = kernel.run(code, Once(begun, kernel.interrupt))
    assert (cell.status, cell.ename) == ("error", "JobCancelled")
    assert cell.card["state"] == "cancelled"


def test_interrupt_while_pending_detaches_too(kernel: Kernel, tmp_path, scheduler):
    code, _ = sleeper(tmp_path, "--tasks 2 --gpus 8 --as block --no-wait")
    kernel.run(code)
    cell = kernel.run("%%submit --gpus 8\n1", Once(lambda cell: "pending" in cell.states, kernel.interrupt))
    assert (cell.status, cell.ename) == ("error", "Detached"), cell.describe()
    assert "queue" in cell.card_text
    kernel.run(f"%cancel {cell.card['number']} block")
    eventually(
        lambda: scheduler.client.job(cell.card["number"]).state == "cancelled", "the waiting job is cancelled"
    )
    kernel.run("block.wait()")


def test_interrupt_before_the_acknowledgement_withdraws(kernel: Kernel, scheduler):
    pid = scheduler.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        msg_id = kernel.client.execute("%%submit --name withdrawn\n1")
        eventually(lambda: kernel.manager.is_alive(), "alive")
        import time

        time.sleep(1.0)  # the request is on its way; nothing tells us when
        kernel.interrupt()
        time.sleep(0.3)
    finally:
        os.kill(pid, signal.SIGCONT)
    cell = kernel.collect(msg_id)
    assert (cell.status, cell.ename) == ("error", "Withdrawn"), cell.describe()
    jobs = [job for job in scheduler.client.jobs(limit=100).jobs if job.name == "withdrawn"]
    assert all(job.state == "cancelled" for job in jobs)


def test_job_is_followed_in_another_kernel_with_the_same_output_and_result(
    kernel: Kernel, start_kernel, tmp_path
):
    cell = kernel.run(
        "%%submit\nfrom IPython.display import HTML, display, update_display, clear_output\nimport sys\nprint('one')\n"
        "clear_output()\nprint('two')\ndisplay(HTML('<b>1</b>'), display_id='d')\nprint('err', file=sys.stderr)\n"
        "update_display(HTML('<b>2</b>'), display_id='d')\nnames = {'a': [1, 2]}\nnames"
    )
    other = start_kernel()
    attached = other.run(f"%attach {cell.card['number']}")
    assert attached.body == cell.body
    assert attached.result == "{'a': [1, 2]}"
    assert other.run("names").result == "{'a': [1, 2]}"


def test_attach_to_a_failed_job_fails_the_same_way(kernel: Kernel, start_kernel):
    cell = kernel.run("%%submit\nraise ValueError('as before')")
    attached = start_kernel().run(f"%attach {cell.card['number']}")
    assert attached.ename == "JobFailed"
    assert attached.error == cell.error


def test_two_kernels_at_once_do_not_mix(start_kernel):
    first, second = start_kernel(), start_kernel()
    code = "%%submit --gpus 1\nfor n in range(5):\n    print({name!r}, n, flush=True)\nwho = {name!r}"
    messages = [
        kernel.client.execute(code.format(name=name)) for kernel, name in ((first, "a"), (second, "b"))
    ]
    cells = [kernel.collect(message) for kernel, message in zip((first, second), messages, strict=True)]
    for cell, name in zip(cells, "ab", strict=True):
        assert cell.stdout == "".join(f"{name} {n}\n" for n in range(5))


def test_kernel_killed_while_waiting_loses_nothing(kernel: Kernel, start_kernel, tmp_path):
    code, flag = sleeper(tmp_path, "--name survivor")
    numbers: list[int] = []

    def die(cell):
        if begun(cell) and not numbers:
            numbers.append(cell.card["number"])
            kernel.kill()
            raise KernelGone

    class KernelGone(Exception):
        pass

    try:
        kernel.run(code, die)
    except KernelGone:
        flag.touch()
    other = start_kernel()
    attached = other.run(f"%attach {numbers[0]}")
    assert (attached.stdout, attached.result) == ("begun\nended\n", "5")


def test_scheduler_killed_while_a_cell_waits_goes_unnoticed(kernel: Kernel, scheduler, tmp_path):
    code, flag = sleeper(tmp_path)

    def restart():
        scheduler.kill()
        scheduler.start()
        flag.touch()

    cell = kernel.run(code, Once(begun, restart))
    assert (cell.status, cell.stdout, cell.result) == ("ok", "begun\nended\n", "5"), cell.describe()


def test_second_attempt_follows_a_visible_seam(kernel: Kernel, tmp_path):
    marker = tmp_path / "tried"
    cell = kernel.run(
        f"%%submit --retries 1\nfrom pathlib import Path\nmarker = Path({str(marker)!r})\nfirst = not marker.exists()\n"
        "marker.touch()\nprint('first' if first else 'second')\nif first:\n    raise RuntimeError('flaky')"
    )
    assert cell.status == "ok", cell.describe()
    before, seam, after = cell.stdout.partition("— attempt 2")
    assert (before, seam) == ("first\n", "— attempt 2")
    assert "(attempt 1 failed" in after
    assert after.endswith("second\n")
    assert "flaky" in cell.stderr


def test_no_scheduler_fails_fast_and_clearly(start_kernel):
    kernel = start_kernel(GPUCLUSTER_ADDRESS="unix:/nonexistent/s.sock")
    cell = kernel.run("%%submit\n1")
    assert (cell.status, cell.ename) == ("error", "Unreached")
    assert "no scheduler answers at unix:/nonexistent/s.sock" in cell.error
    assert "Traceback" not in cell.error
