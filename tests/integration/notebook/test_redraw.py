"""A cell that a page draws anew from the log has the outputs that the kernel's own drawing left."""

from __future__ import annotations

import asyncio
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cell_page import PageCell

from gpucluster.api import client as api
from gpucluster.api.errors import InvalidRequest, NotFound
from jupyter_gpucluster.drawing import CellDrawing
from jupyter_gpucluster.server_extension.messages import CellQuery
from jupyter_gpucluster.server_extension.redraw import CellRedraw

from .conftest import Scheduler
from .frontend import CARD, Cell, Kernel, Once, eventually, kernel
from .redrawing import FirstCard, body_of, draw, query


@pytest.fixture(scope="module")
def one_kernel(scheduler: Scheduler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with kernel(scheduler.env, tmp_path_factory.mktemp("redraw")) as made:
        yield made


@pytest.fixture
def connect(scheduler: Scheduler) -> Callable[[], api.ApiClient]:
    return lambda: api.connect(start=False, data_dir=scheduler.folder / "data")


DISPLAYS = """
from IPython.display import HTML, clear_output, display
"""
CELLS = {
    "prints": "print('a\\r\\x1b[32m 10%', end='')\nprint('\\r100%')\nprint('ünïcode ✓')",
    "both streams": "import sys\nfor n in range(5):\n    print('out', n)\n    print('err', n, file=sys.stderr)",
    "displays": DISPLAYS + "one = display('first', display_id='x')\nprint('between')\none.update('second')\n"
    "display(HTML('<b>bold</b>'), metadata={'text/html': {'isolated': True}})\none.display('again')\none.update('third')",
    "clears": DISPLAYS
    + "for n in range(30):\n    clear_output(wait=True)\n    display(n)\n    print('step', n)\nclear_output()\nprint('end')",
    "clear that waits for nothing": DISPLAYS + "print('stays')\nclear_output(wait=True)",
    "clear before an error": DISPLAYS + "print('stays')\nclear_output(wait=True)\n1 / 0",
    "plot": "import matplotlib.pyplot as plt\nprint('before')\nplt.plot([1, 2])\nplt.show()\nprint('after')",
    "failure": "def inner(x):\n    print('about to fail')\n    return 1 / x\ninner(0)",
    "failure after assignments": "kept = 1\nlocked = open('/dev/null')\nraise ValueError('on purpose')",
    "system exit": "import sys\nprint('leaving')\nsys.exit(3)",
    "crash": "import os\nprint('to be killed', flush=True)\nos.kill(os.getpid(), 9)",
    "result": "import numpy as np\nlisted = [1, 2]\n{'array': np.arange(3), 'text': 'x'}",
    "warnings": "value = eval('1 + 1')\nvalue",
    "what does not come back": "stream = open('/dev/null')\nfine = 3",
    "result that does not come back": "open('/dev/null')",
    "bytes that are no text": "import os\nos.write(1, b'a\\xff\\xfe b\\xc3')\nos.write(2, b'\\xc3')",
    "half a surrogate pair": "from IPython.display import display\ndisplay({'text/plain': 'half \\ud83d'}, raw=True)",
    "lines written over": "import sys\nfor n in range(60_000):\n"
    "    sys.stdout.write(f'\\r{n:6d} \\x1b[32mof\\x1b[0m many ' + '#' * (n % 50))\nprint()",
    "long output": "for n in range(60_000):\n    print('line', n)",
    "many displays": DISPLAYS + "for n in range(1500):\n    display(n)",
    "changing streams": "import sys\nfor n in range(3000):\n    print(n)\n    print(-n, file=sys.stderr)",
    "progress": "from gpucluster.worker import report\nfor n in range(4):\n    report(n + 1, total=4, loss=1 / (n + 1))",
    "tqdm": "from tqdm import tqdm\nfor _ in tqdm(range(20), desc='epochs'):\n    pass",
}


@pytest.mark.parametrize("name", CELLS)
def test_page_draws_the_outputs_that_the_kernel_drew(one_kernel: Kernel, connect, name: str):
    first = FirstCard()
    cell = one_kernel.run(f"%%submit --gpus 0 --memory 1G\n{CELLS[name].strip()}", first)
    page = draw(query(first.json), connect)
    assert body_of(page.outputs) == body_of(cell.outputs)
    same = {key: value for key, value in page.card.items() if key not in ("hints", "seq")}
    assert same == {key: value for key, value in cell.card.items() if key not in ("hints", "seq")}
    assert page.card["drawing"]["complete"]


def test_rank_of_a_gang_is_drawn_by_the_page_as_by_the_kernel(one_kernel: Kernel, connect):
    code = "import os\nrank = int(os.environ['RANK'])\nprint('I am', rank)\nif rank == 1:\n    raise ValueError('rank one')"
    one_kernel.run(f"%%submit --gpus 0 --tasks 3 --no-wait --as gang\n{code}")
    for rank in (0, 1):
        first = FirstCard()
        cell = one_kernel.run(f"%attach gang --rank {rank}", first)
        assert (first.json["drawing"]["rank"], first.json["drawing"]["fills_cell"]) == (rank, True)
        page = draw(query(first.json), connect)
        assert body_of(page.outputs) == body_of(cell.outputs)
        assert "rank one" in page.body[-1]["evalue"]


def test_attempts_have_the_same_seams_however_late_they_are_drawn(one_kernel: Kernel, connect, tmp_path):
    code = f"""
        import pathlib
        tries = pathlib.Path({str(tmp_path / "tries")!r})
        tries.write_text(tries.read_text() + 'x' if tries.exists() else 'x')
        print('try', len(tries.read_text()))
        if len(tries.read_text()) < 3:
            raise ValueError('not yet')
        """
    first = FirstCard()
    cell = one_kernel.run(f"%%submit --gpus 0 --retries 2\n{textwrap.dedent(code).strip()}", first)
    page = draw(query(first.json), connect)
    assert body_of(page.outputs) == body_of(cell.outputs)
    assert "— attempt 2 on " in cell.stdout
    assert "— attempt 3 on " in cell.stdout


def test_cancelled_job_ends_with_the_same_error(one_kernel: Kernel, connect, scheduler: Scheduler):
    cancel = Once(
        lambda cell: "begun" in cell.stdout,
        lambda: scheduler.client.cancel(first.json["job_id"], "seen enough"),
    )
    first = FirstCard(cancel)
    cell = one_kernel.run(
        "%%submit --gpus 0\nimport time\nprint('begun', flush=True)\ntime.sleep(600)", first
    )
    page = draw(query(first.json), connect)
    assert body_of(page.outputs) == body_of(cell.outputs)
    assert page.body[-1]["ename"] == "JobCancelled"
    assert "seen enough" in page.body[-1]["evalue"]
    assert "%why" in page.body[-1]["evalue"] or "%logs" in page.body[-1]["evalue"]


class Gated:
    """A job that says something, waits to be let on, and says something more."""

    def __init__(self, one_kernel: Kernel, gate: Path) -> None:
        self.gate = gate
        code = f"""
            import os, time
            print('begun')
            while not os.path.exists({str(gate)!r}):
                time.sleep(0.02)
            print('over')
            """
        cell = one_kernel.run(f"%%submit --gpus 0 --no-wait\n{textwrap.dedent(code).strip()}")
        self.card: dict[str, Any] = cell.outputs[0]["data"][CARD]

    def draw(self, connect, when_begun: Callable[[], None]) -> PageCell:
        """Draw it for a page; `when_begun` once that shows what it said first."""
        page = PageCell()
        begun = Once(lambda _: [each["text"] for each in page.body] == ["begun\n"], when_begun)

        async def work() -> None:
            async for batch in CellRedraw(CellQuery(job_id=self.card["job_id"]), connect=connect).batches():
                page.apply(batch)
                begun(Cell())

        asyncio.run(asyncio.wait_for(work(), 120))
        assert page.is_done
        return page


def test_page_follows_a_job_that_runs_and_shows_what_it_does_as_it_does_it(
    one_kernel: Kernel, connect, tmp_path
):
    job = Gated(one_kernel, tmp_path / "gate")
    page = job.draw(connect, job.gate.touch)
    assert [each["text"] for each in page.body] == ["begun\nover\n"]
    states = [card["state"] for card in page.cards]
    assert states[-1] == "succeeded"
    assert "running" in states
    assert [card["drawing"]["complete"] for card in page.cards] == [False] * (len(page.cards) - 1) + [True]
    assert "%attach" in page.cards[0]["hints"][0]
    assert page.card["hints"] == [f"%attach {page.card['number']} binds these names here"]


def test_drawing_goes_on_when_the_scheduler_is_killed_and_comes_back(
    one_kernel: Kernel, connect, scheduler: Scheduler, tmp_path
):
    job = Gated(one_kernel, tmp_path / "gate")

    def kill_and_start() -> None:
        scheduler.kill()
        job.gate.touch()
        scheduler.start()

    page = job.draw(connect, kill_and_start)
    assert [each["text"] for each in page.body] == ["begun\nover\n"]
    assert page.card["state"] == "succeeded"


def test_page_is_told_how_to_have_the_names_that_it_does_not_bind(one_kernel: Kernel, connect):
    first = FirstCard()
    one_kernel.run("%%submit --gpus 0\nanswer = 42", first)
    page = draw(query(first.json), connect)
    assert page.card["hints"] == [f"%attach {page.card['number']} binds these names here"]
    assert page.card["summary"] == "out: answer"


def test_without_a_saved_card_the_cell_is_drawn_as_the_submission_said(one_kernel: Kernel, connect):
    cell = one_kernel.run("%%submit --gpus 0\n[1, 2]")
    page = draw(CellQuery(job_id=cell.card["job_id"]), connect)
    assert body_of(page.outputs) == body_of(cell.outputs)
    assert page.card["drawing"]["fills_cell"]


def test_closed_iterator_leaves_no_thread(one_kernel: Kernel, connect):
    job_card = one_kernel.run(
        "%%submit --gpus 0 --no-wait --as endless\nwhile True:\n    print('x' * 1000)"
    ).outputs[0]["data"][CARD]

    async def work() -> None:
        drawing = CellDrawing(text_bytes=None)
        batches = CellRedraw(CellQuery(job_id=job_card["job_id"], drawing=drawing), connect=connect).batches()
        async for _ in batches:
            break
        await batches.aclose()

    try:
        asyncio.run(work())
        eventually(lambda: "gpucluster-redraw" not in names_of_threads(), "the drawing thread ends")
    finally:
        one_kernel.run("endless.cancel()")


def names_of_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_what_cannot_be_drawn_is_refused(one_kernel: Kernel, connect):
    with pytest.raises(NotFound):
        draw(CellQuery(job_id="0" * 26), connect)
    cell = one_kernel.run("%%submit --gpus 0\npass")
    with pytest.raises(InvalidRequest) as refused:
        draw(CellQuery(job_id=cell.card["job_id"], card={"notes": "not a list"}), connect)
    assert refused.value.field == "cell.card.notes"
    with pytest.raises(InvalidRequest):
        draw(CellQuery(job_id=cell.card["job_id"], drawing=CellDrawing(rank=7)), connect)


def test_only_a_cell_that_shows_nothing_but_its_job_says_that_it_may_be_drawn_anew(one_kernel: Kernel):
    def drawing(code: str) -> dict[str, Any]:
        cell = one_kernel.run(code)
        return next(each["data"][CARD] for each in cell.outputs if CARD in each.get("data", {}))["drawing"]

    whole = drawing("%%submit --gpus 0 --as done\npass")
    assert (whole["fills_cell"], whole["complete"]) == (True, True)
    assert drawing("\n%attach done")["fills_cell"]
    assert not drawing("%attach done\nprint('more')")["fills_cell"]
    assert not drawing("%submit --gpus 0 print('line')")["fills_cell"]
    assert not drawing("%%submit --gpus 0 --no-wait\npass")["fills_cell"]
    assert not drawing("done")["fills_cell"]
    assert not drawing("get_ipython().run_cell_magic('submit', '--gpus 0', 'pass')\nprint('more')")[
        "fills_cell"
    ]
    failed = one_kernel.run("%%submit --gpus 0\n1 / 0")
    assert failed.outputs[-1]["output_type"] == "error"
    assert failed.card["drawing"]["complete"]
