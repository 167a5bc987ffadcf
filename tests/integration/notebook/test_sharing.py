"""Jobs of others in a notebook: their outputs are seen, their code does not run here unless one says so."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucluster.api.errors import Forbidden
from jupyter_gpucluster.drawing import CellDrawing
from jupyter_gpucluster.server_extension.messages import CellQuery

from ..api.conftest import ClientOf, ManyUsers
from .frontend import CARD, Kernel
from .redrawing import body_of, draw, query

#: The kernel speaks to the scheduler as whom the test wants.
BECOME = """
import os, sys
sys.path[:0] = {path!r}
from integration.api.conftest import ClientOf
from jupyter_gpucluster import connection
def become(name):
    connection.disconnect()
    connection.use_address({address!r})
    connection._clients[(os.getpid(), {address!r})] = ClientOf(name, {address!r})
become("ann")
"""
#: Ann's job; where its pickle is loaded, a folder appears.
SHARED = """
%%submit --share everyone --gpus 0 --name shared
import os
from IPython.display import HTML, display
class Trap:
    def __reduce__(self):
        return os.mkdir, (os.path.join(os.getcwd(), 'loaded'),)
print('seen by all')
display(HTML('<script>alert(1)</script>'))
value = Trap()
answer = 42
answer
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel of two users, in which ann has run a job that everyone may read."""
    with tempfile.TemporaryDirectory(prefix="gpc-", ignore_cleanup_errors=True) as path:
        scheduler = ManyUsers(Path(path)).start()
        info = scheduler.info()
        assert info is not None
        kernel = Kernel({**scheduler.env, "IPYTHONDIR": f"{path}/ipython"}, tmp_path_factory.mktemp("work"))
        root = Path(__file__).parents[3]
        try:
            search = [str(root / "tests"), str(root / "server"), str(root)]
            assert kernel.run(BECOME.format(path=search, address=info.address)).status == "ok"
            cell = kernel.run(SHARED)
            assert cell.status == "ok", cell.describe()
            assert kernel.run("os.rmdir('loaded')").status == "ok"
            kernel.number = cell.card["number"]  # type: ignore[attr-defined]
            kernel.address = info.address  # type: ignore[attr-defined]
            yield kernel
        finally:
            kernel.close()
            scheduler.end()


@pytest.fixture
def bobs(shared: Kernel) -> Kernel:
    shared.run("become('bob')\n%reset_selective -f ^(answer|value|job)$\nfrom jupyter_gpucluster import Job")
    return shared


def test_attach_shows_a_strangers_output_and_binds_nothing(bobs: Kernel):
    number = bobs.number
    cell = bobs.run(f"%attach {number}")
    assert cell.status == "ok", cell.describe()
    assert cell.stdout == "seen by all\n"
    assert "42" in str(cell.body)
    assert "<script>" not in str(cell.outputs)
    assert f"job {number} is ann's" in cell.stderr
    assert "answer" in cell.stderr
    assert f"%attach {number} --trust" in cell.stderr
    assert bobs.run("'answer' in globals(), os.path.exists('loaded')").result == "(False, False)"
    assert "<script>" not in str(bobs.run(f"%logs {number}").outputs)
    assert "<script>" not in str(bobs.run(f"Job({number}).outputs").outputs)


@pytest.mark.parametrize(
    "code", ["job.result()", "job.results()", "job.bind()", "job['answer']", "await job"]
)
def test_result_of_a_stranger_is_not_made_unasked(bobs: Kernel, code: str):
    bobs.run(f"job = Job({bobs.number})")
    cell = bobs.run(code)
    assert (cell.status, cell.ename) == ("error", "Untrusted")
    assert f"job {bobs.number} is ann's" in cell.error
    assert "trust=True" in cell.error
    assert len(cell.error.splitlines()) == 2
    assert bobs.run("os.path.exists('loaded')").result == "False"


def test_trusted_stranger_is_bound(bobs: Kernel):
    bobs.run(f"job = Job({bobs.number})")
    assert bobs.run("job.bind('answer', trust=True)").result == "['answer']"
    assert bobs.run("os.path.exists('loaded')").result == "True"
    bobs.run("os.rmdir('loaded')")
    assert bobs.run("answer, Job(job.number).result(trust=True)").result == "(42, 42)"
    bobs.run("os.rmdir('loaded')")
    cell = bobs.run(f"%attach {bobs.number} --trust")
    assert "<script>" in str(cell.outputs)
    assert bobs.run("answer").result == "42"


def test_ones_own_job_needs_no_trust(bobs: Kernel):
    bobs.run("become('ann')")
    assert bobs.run(f"Job({bobs.number}).result()").result == "42"


def test_page_draws_a_strangers_cell_without_what_could_run_whatever_it_asks_for(bobs: Kernel):
    cell = bobs.run(f"%attach {bobs.number}")
    page = draw(query(cell.card), lambda: ClientOf("bob", bobs.address))
    assert body_of(page.outputs) == body_of(cell.outputs)
    assert "<script>" not in str(page.outputs)
    mine = draw(query(cell.card), lambda: ClientOf("ann", bobs.address))
    assert "<script>" in str(mine.outputs)


def test_page_cannot_draw_a_job_that_it_may_not_read(bobs: Kernel):
    bobs.run("become('ann')")
    card = bobs.run("%%submit --gpus 0\nprint('secret')").outputs[0]["data"][CARD]
    with pytest.raises(Forbidden):
        draw(
            CellQuery(job_id=card["job_id"], drawing=CellDrawing(fills_cell=True)),
            lambda: ClientOf("bob", bobs.address),
        )
