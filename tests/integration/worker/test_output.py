"""What a cell prints, shows and starts arrives whole and in the order of writing."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

from gpucluster.worker.frames import Kind

from .harness import INTERPRETER, SERVER, Workers


def test_prints_displays_and_child_processes_keep_their_order(workers: Workers) -> None:
    run = workers.run(
        """
import os, subprocess, sys
print("one")
print("two", file=sys.stderr)
display("three")
print("four")
os.system("echo five")
print("six")
!echo seven
subprocess.run(["echo", "eight"])
print("nine")
subprocess.run("echo ten >&2", shell=True)
print("eleven")
"twelve"
"""
    )
    assert run.story() == [
        "one\n",
        "two\n",
        "<display 'three'>",
        "four\nfive\nsix\nseven\neight\nnine\n",
        "ten\n",
        "eleven\n",
        "<display 'twelve'>",
    ]
    assert run.code == 0


def test_order_with_child_processes_holds_every_time(workers: Workers) -> None:
    run = workers.run("import os\nfor i in range(50):\n    print('p', i)\n    os.system(f'echo c {i}')")
    expected = [f"{who} {number}" for number in range(50) for who in ("p", "c")]
    assert run.stdout.splitlines() == expected


def test_output_of_c_code_keeps_its_order_with_prints(workers: Workers) -> None:
    run = workers.run(
        "import os\nfor i in range(100):\n    print('python', i)\n    os.system('')\n    os.write(1, b'c\\n')"
    )
    assert run.stdout == "".join(f"python {number}\nc\n" for number in range(100))


def test_bytes_that_are_no_text_arrive_as_they_are(workers: Workers) -> None:
    run = workers.run("import sys\nsys.stdout.buffer.write(bytes(range(256)))\nsys.stdout.flush()\nNone")
    assert run.bytes_of(Kind.STDOUT) == bytes(range(256))


def test_surrogates_of_file_names_come_out_as_their_bytes(workers: Workers) -> None:
    run = workers.run("print('caf\\udce9'); print('half \\ud800')")
    assert run.bytes_of(Kind.STDOUT) == b"caf\xe9\nhalf \\ud800\n"


def test_ten_megabytes_arrive_whole(workers: Workers) -> None:
    run = workers.run("for i in range(130_000):\n    print(f'{i:08d}', 'x' * 70)")
    assert run.stdout.splitlines() == [f"{number:08d} {'x' * 70}" for number in range(130_000)]


def test_one_huge_print_is_cut_between_characters(workers: Workers) -> None:
    run = workers.run("print('aé€😀' * 100_000)")
    parts = [payload.decode() for kind, payload in run.events if kind == Kind.STDOUT]
    assert "".join(parts) == "aé€😀" * 100_000 + "\n"
    assert len(parts) > 10


def test_an_unfinished_line_arrives_while_the_cell_goes_on(workers: Workers) -> None:
    task = workers.start(
        "import pathlib, time\nprint('loading ', end='')\nwhile not pathlib.Path('go').exists(): time.sleep(.01)"
    )
    task.until(lambda run: run.stdout == "loading ")
    (task.run.task_dir / "work" / "go").touch()
    assert task.wait().code == 0


def test_carriage_returns_and_colours_pass_through(workers: Workers) -> None:
    run = workers.run("print('10%\\r20%\\r\\x1b[31mred\\x1b[0m')")
    assert run.stdout == "10%\r20%\r\x1b[31mred\x1b[0m\n"


def test_lines_of_many_threads_arrive_whole(workers: Workers) -> None:
    run = workers.run(
        """
import sys, threading
def work(me):
    for i in range(300):
        sys.stdout.write(f"{me} {i} {'z' * 50}\\n")
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
None
"""
    )
    lines = run.stdout.splitlines()
    assert sorted(lines) == sorted(f"{me} {i} {'z' * 50}" for me in range(8) for i in range(300))


def test_output_of_a_thread_that_outlives_the_cell_arrives(workers: Workers) -> None:
    run = workers.run(
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.3), print('late'))).start()"
    )
    assert run.stdout == "late\n"


def test_a_slow_reader_blocks_the_cell_and_loses_nothing(workers: Workers) -> None:
    task = workers.start(
        "import pathlib\nfor i in range(20_000): print(i, 'y' * 80)\npathlib.Path('done').touch()"
    )
    task.until(lambda run: run.events)
    assert not (task.run.task_dir / "work" / "done").exists()
    run = task.wait()
    assert (run.task_dir / "work" / "done").exists()
    assert len(run.stdout.splitlines()) == 20_000


def test_a_worker_whose_supervisor_died_ends(workers: Workers) -> None:
    task = workers.start("import time\nwhile True:\n    print('x')\n    time.sleep(.01)")
    task.until(lambda run: run.stdout)
    assert task.leave() == -9


def test_a_process_pool_prints_and_gives_its_results(workers: Workers) -> None:
    run = workers.run(
        """
import multiprocessing
def square(x):
    print("child", x)
    return x * x
print("before")
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(square, range(6)))
print("after")
"""
    )
    assert run.code == 0
    assert sorted(line for line in run.stdout.splitlines() if "child" in line) == [
        f"child {n}" for n in range(6)
    ]
    assert run.stderr == ""
    told = [line for line in run.stdout.splitlines() if "child" not in line]
    assert told == ["before", "[0, 1, 4, 9, 16, 25]", "after"]


def test_a_forked_child_shows_things_as_text_and_spoils_no_packet(workers: Workers) -> None:
    run = workers.run(
        """
import os
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        for i in range(200): print("child", i)
        display({"a": 1})
        os._exit(0)
    for i in range(200): print("parent", i)
    os.waitpid(pid, 0)
print("end")
"""
    )
    lines = run.stdout.splitlines()
    assert lines.count("{'a': 1}") == 20
    assert lines.count("child 199") == 20
    assert [line for line in lines if line.startswith("parent")] == [f"parent {i}" for i in range(200)] * 20
    assert lines[-1] == "end"
    assert run.code == 0


def test_a_cell_that_closes_every_descriptor_still_prints(workers: Workers) -> None:
    run = workers.run("import os\nos.closerange(3, 200)\nprint('still here')")
    assert run.stdout == "still here\n"
    assert "message socket was closed by the cell" in run.stderr
    assert run.code == 0


def test_spawned_children_print_too(workers: Workers) -> None:
    run = workers.run(
        "import multiprocessing\npool = multiprocessing.get_context('spawn').Pool(1)\n"
        "pool.map(print, ['hi']); pool.close(); pool.join()"
    )
    assert "hi" in run.stdout


def test_children_do_not_hold_the_message_socket(workers: Workers) -> None:
    run = workers.run(
        "!ls -l /proc/self/fd | grep -c socket\nimport os, subprocess\nos.system('ls -l /proc/self/fd | grep -c socket')\n"
        "print(os.environ.get('GPUCLUSTER_MESSAGE_FD'))"
    )
    assert run.stdout == "0\n0\nNone\n"


def test_streams_look_like_those_of_a_kernel(workers: Workers) -> None:
    run = workers.run(
        """
import io, sys
print(sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.writable())
wrapper = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")
wrapper.write("wrapped\\n"); del wrapper
sys.stdout.reconfigure(line_buffering=True)
sys.stdout.close()
print("still open", sys.stdout.closed, end="")
print()
try:
    sys.stdout.write(b"no")
except TypeError as error:
    print(error)
import subprocess
subprocess.run(["echo", "through fileno"], stdout=sys.stdout)
sys.__stdout__.write("raw\\n")
"""
    )
    assert run.stdout == (
        "1 2 False utf-8 True\nwrapped\nstill open False\nwrite() argument must be str, not bytes\nthrough fileno\nraw\n"
    )


def test_displays_updates_and_clears_arrive(workers: Workers) -> None:
    run = workers.run(
        """
from IPython.display import HTML, Image, clear_output, display, update_display
handle = display(HTML("<b>1</b>"), display_id="bar")
handle.update(HTML("<b>2</b>"))
update_display(HTML("<b>3</b>"), display_id="bar")
clear_output(wait=True)
display({"application/json": {"x": float("nan")}, "text/plain": "nan"}, raw=True, metadata={"m": 1})
clear_output()
display(Image(data=b"\\x89PNG\\r\\n\\x1a\\n" + b"0" * 40))
"""
    )
    first, nan, image = run.displays
    assert first["data"]["text/html"] == "<b>1</b>"
    assert first["display_id"] == "bar"
    assert first["execute_result"] is False
    assert nan == {
        "data": {"application/json": {"x": None}, "text/plain": "nan"},
        "metadata": {"m": 1},
        "display_id": None,
        "execute_result": False,
    }
    assert base64.b64decode(image["data"]["image/png"]).startswith(b"\x89PNG")
    updates = run.json_of(Kind.UPDATE)
    assert [(update["display_id"], update["data"]["text/html"]) for update in updates] == [
        ("bar", "<b>2</b>"),
        ("bar", "<b>3</b>"),
    ]
    assert run.json_of(Kind.CLEAR) == [{"wait": True}, {"wait": False}]


def test_a_display_over_the_limit_says_so(workers: Workers) -> None:
    run = workers.run("display({'text/html': 'x' * (65 << 20), 'text/plain': 'small'}, raw=True)")
    (display,) = run.displays
    assert "text/html" not in display["data"]
    assert "small" in display["data"]["text/plain"]
    assert "left out" in display["data"]["text/plain"]


def test_a_figure_comes_back_as_a_picture(workers: Workers) -> None:
    run = workers.run("import matplotlib.pyplot as plt\nprint('plotting')\nplt.plot([1, 2, 3]);")
    (display,) = run.displays
    assert base64.b64decode(display["data"]["image/png"]).startswith(b"\x89PNG")
    assert display["execute_result"] is False
    assert run.stdout == "plotting\n"


def test_a_figure_that_the_cell_reads_is_shown_as_a_picture(workers: Workers) -> None:
    import matplotlib.figure

    figure = matplotlib.figure.Figure()
    figure.subplots().plot([1, 2])
    assert "image/png" in workers.run("figure", {"figure": figure}).displays[0]["data"]


def test_a_figure_that_comes_back_is_shown_as_a_picture_in_the_notebook(
    workers: Workers, tmp_path: Path
) -> None:
    run = workers.run(
        "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 2])",
        outputs=["figure"],
    )
    notebook = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nshell.enable_gui = lambda gui=None: None\n"
        "from gpucluster.worker import pickling\n"
        "figure = pickling.load(open(sys.argv[1], 'rb').read())['figure']\n"
        "print(sorted(shell.display_formatter.format(figure)[0]))"
    )
    environment = {
        "PATH": "/bin", "HOME": str(tmp_path), "PYTHONPATH": str(SERVER),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }  # fmt: skip
    command = [INTERPRETER, "-c", notebook, str(run.task_dir / "result" / "pickle")]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout == "['image/png', 'text/plain']\n"


def test_figures_appear_where_show_is_called(workers: Workers) -> None:
    run = workers.run(
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1]); plt.show(); print('after')"
    )
    assert [kind for kind, _ in run.events if kind in (Kind.DISPLAY, Kind.STDOUT)] == [
        Kind.DISPLAY,
        Kind.STDOUT,
    ]


def test_a_data_frame_comes_back_as_a_table(workers: Workers) -> None:
    run = workers.run("import pandas\npandas.DataFrame({'a': [1, 2]})")
    (display,) = run.displays
    assert "<table" in display["data"]["text/html"]
    assert display["execute_result"] is True


def test_rich_shows_its_tables_as_in_a_notebook(workers: Workers) -> None:
    run = workers.run("from rich import print\nprint('[red]hello[/red]')")
    assert "<pre" in run.displays[0]["data"]["text/html"]


def test_a_widget_shows_as_text_where_no_kernel_is_behind_it(workers: Workers) -> None:
    run = workers.run("import ipywidgets\ndisplay(ipywidgets.IntSlider())\nipywidgets.IntSlider()")
    assert len(run.displays) == 2
    assert "application/vnd.jupyter.widget-view+json" not in run.displays[0]["data"]
    assert "IntSlider" in run.displays[0]["data"]["text/plain"]
    assert run.stderr == "note: widgets need a kernel; this one was shown as text\n"
