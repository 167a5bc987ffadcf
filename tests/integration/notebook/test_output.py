"""What a job writes and displays, as the notebook shows it."""

from __future__ import annotations

from support.cell_page import visible

from .frontend import CARD, Kernel


def test_card_is_first_and_ends_with_the_last_state(kernel: Kernel):
    cell = kernel.run("%%submit --name c\nprint('x')")
    assert CARD in cell.outputs[0]["data"]
    assert {"text/html", "text/plain"} <= set(cell.outputs[0]["data"])
    assert cell.states[-1] == "succeeded"
    assert "succeeded" in cell.card_text


def test_streams_keep_their_order(kernel: Kernel):
    cell = kernel.run(
        "%%submit\nimport sys\nfor n in range(3):\n    print('out', n)\n    print('err', n, file=sys.stderr)"
    )
    streams = [(each["name"], each["text"]) for each in cell.outputs if each["output_type"] == "stream"]
    assert streams == [(name, f"{name[3:]} {n}\n") for n in range(3) for name in ("stdout", "stderr")]


def test_carriage_returns_and_colours_look_as_written(kernel: Kernel):
    cell = kernel.run(
        "%%submit\nprint('\\r 10%', end='')\nprint('\\r\\x1b[32m100%\\x1b[0m')\nprint('ünïcode ✓')"
    )
    assert visible(cell.stdout) == "\x1b[32m100%\x1b[0m\nünïcode ✓\n"


def test_plots_and_rich_displays_appear_in_their_place(kernel: Kernel):
    cell = kernel.run(
        "%%submit\nimport matplotlib.pyplot as plt\nfrom IPython.display import HTML, display\n"
        "print('before')\nplt.plot([1, 2])\nplt.show()\ndisplay(HTML('<b>bold</b>'))\nprint('after')"
    )
    kinds = [each.get("name") or sorted(each["data"])[0] for each in cell.outputs[1:]]
    assert kinds == ["stdout", "image/png", "text/html", "stdout"], cell.describe()


def test_display_ids_are_updated_in_place_and_do_not_clash_with_the_notebooks_own(kernel: Kernel):
    own = kernel.run("from IPython.display import display\nhandle = display('own', display_id='same')")
    cell = kernel.run(
        "%%submit\nfrom IPython.display import display, update_display\ndisplay('first', display_id='same')\n"
        "print('between')\nupdate_display('second', display_id='same')"
    )
    assert [each["data"]["text/plain"] for each in cell.outputs[1:] if "data" in each] == ["'second'"]
    assert own.outputs[0]["data"]["text/plain"] == "'own'"


def test_clear_output_clears_the_jobs_output_and_not_the_card(kernel: Kernel):
    for wait in (True, False):
        cell = kernel.run(
            f"%%submit\nfrom IPython.display import clear_output\nprint('old')\nclear_output(wait={wait})\nprint('new')"
        )
        assert CARD in cell.outputs[0]["data"], cell.describe()
        assert sum(CARD in each.get("data", {}) for each in cell.outputs) == 1
        assert cell.stdout == "new\n"
        assert cell.card["state"] == "succeeded"


def test_progress_reports_reach_the_card(kernel: Kernel):
    cell = kernel.run(
        "%%submit\nfrom gpucluster.worker import report\nimport time\nfor step in range(1, 6):\n"
        "    report(step, total=5, loss=1 / step)\n    time.sleep(0.1)"
    )
    kernel.run(f"from jupyter_gpucluster import Job\nprogress = Job({cell.card['number']}).progress")
    job = kernel.run("progress.step, progress.total, progress.metrics")
    assert job.result == "(5, 5, {'loss': 0.2})"


def test_tqdm_bar_is_shown_and_becomes_progress(kernel: Kernel):
    cell = kernel.run(
        "%%submit --as bar\nfrom tqdm import tqdm\nfor _ in tqdm(range(7), desc='epochs'):\n    pass"
    )
    assert "7/7" in cell.stderr
    assert kernel.run("bar.progress.step, bar.progress.total").result == "(7, 7)"


def test_long_output_is_shown_by_head_and_tail_and_kept_whole_in_the_log(kernel: Kernel):
    kernel.run("%config GPUClusterMagics.output_limit = 20_000")
    cell = kernel.run("%%submit --as long\nfor n in range(20_000):\n    print('line', n)")
    assert cell.stdout.startswith("line 0\nline 1\n")
    assert cell.stdout.endswith("line 19999\n")
    assert len(cell.stdout) < 21_000
    assert "bytes are not shown here" in cell.stderr
    assert kernel.run("len(long.logs().splitlines()), long.logs(tail=1)").result == "(20000, 'line 19999')"


def test_outputs_of_a_job_are_a_notebooks_outputs(kernel: Kernel):
    kernel.run("%%submit --as job\nprint('text')\nfrom IPython.display import HTML\nHTML('<i>x</i>')")
    shown = kernel.run("job.outputs")
    assert shown.stdout == "text\n"
    assert any("<i>x</i>" in each.get("data", {}).get("text/html", "") for each in shown.outputs)
    assert kernel.run("job.outputs.stdout, [each['output_type'] for each in job.outputs]").result == (
        "('text\\n', ['stream', 'execute_result'])"
    )


def test_captured_cell_keeps_its_outputs_to_whoever_captures(kernel: Kernel):
    kernel.run("%%capture caught\n%submit print('quiet')")
    assert kernel.run("caught.stdout").result == "'quiet\\n'"
