"""A submitted cell, row by row of DESIGN section 4, through a real kernel and a real scheduler."""

from __future__ import annotations

import re

from .frontend import CARD, Kernel


def ok(cell):
    assert cell.status == "ok", cell.describe()
    return cell


def test_cell_runs_elsewhere_and_its_names_and_result_come_back(kernel: Kernel):
    ok(kernel.run("base = 20"))
    cell = ok(
        kernel.run(
            "%%submit --gpus 2 --name first\nimport os\nanswer = 2 * base + 2\npid = os.getpid()\nprint('hello')\nanswer"
        )
    )
    assert cell.stdout == "hello\n"
    assert cell.result == "42"
    assert (cell.card["state"], cell.card["name"], cell.card["gpus"]) == ("succeeded", "first", 2)
    assert "in: base" in cell.card["summary"]
    assert "answer" in cell.card["summary"]
    after = ok(kernel.run("import os\nprint(answer, pid != os.getpid())"))
    assert after.stdout == "42 True\n"


def test_result_of_a_cell_is_in_out_as_if_it_had_run_here(kernel: Kernel):
    ok(kernel.run("%%submit\n[1, 2, 3]"))
    assert ok(kernel.run("_")).result == "[1, 2, 3]"
    assert ok(kernel.run("Out[max(Out)] is _")).result == "True"


def test_aliases_stay_aliases(kernel: Kernel):
    ok(kernel.run("a = [1]\nb = a\nd = {'x': a}"))
    ok(kernel.run("%%submit\nsame = a is b is d['x']\na.append(2)"))
    assert ok(kernel.run("same, a, b, a is b, d['x'] is a")).result == "(True, [1, 2], [1, 2], True, True)"


def test_functions_and_classes_of_the_notebook_go_along_and_see_redefinitions(kernel: Kernel):
    ok(kernel.run("""
        scale = 2
        def helper(x):
            return x * scale
        def work(x):
            return helper(x) + 1
        class Point:
            def __init__(self, x):
                self.x = work(x)
        """))  # fmt: skip
    ok(kernel.run("%%submit\nscale = 10\np = Point(3)\np.x"))
    assert ok(kernel.run("p.x, type(p) is Point, scale")).result == "(31, True, 10)"


def test_modules_are_imported_there_with_their_alias_also_those_beside_the_notebook(kernel: Kernel, tmp_path):
    (tmp_path / "beside.py").write_text("def where():\n    return 'beside'\n")
    ok(kernel.run("import numpy as np\nimport beside as b\nimport os.path as osp"))
    cell = ok(kernel.run("%%submit\n(b.where(), int(np.arange(4).sum()), osp.basename('x/y'))"))
    assert cell.result == "('beside', 6, 'y')"


def test_inputs_changed_in_place_come_back_and_are_named(kernel: Kernel):
    ok(kernel.run("import numpy as np\nX = np.zeros(100_000)\nnotes = []\nuntouched = [1]"))
    cell = ok(kernel.run("%%submit\nX[3] = 7\nnotes.append(len(untouched))"))
    assert "changed: " in cell.card["summary"]
    assert ok(kernel.run("X[3], notes, untouched")).result == "(np.float64(7.0), [1], [1])"


def test_names_hidden_in_strings_are_warned_about(kernel: Kernel):
    ok(kernel.run("hidden = 3"))
    cell = kernel.run("%%submit\nvalue = eval('hidden + 1')")
    assert CARD in cell.outputs[0]["data"]
    assert "warning: " in cell.stderr
    assert "eval" in cell.stderr
    assert cell.card["warnings"]
    ok(kernel.run("%%submit --in hidden\nvalue = eval('hidden + 1')"))
    assert ok(kernel.run("value")).result == "4"


def test_name_that_the_cell_deletes_goes_here_too_and_the_card_says_so(kernel: Kernel):
    ok(kernel.run("x = [1]\ny = 2"))
    cell = ok(kernel.run("%%submit\ntotal = y + len(x)\ndel x"))
    assert cell.card["summary"] == "in: y, x · out: total · deleted: x"
    assert ok(kernel.run("'x' in globals(), total")).result == "(False, 3)"
    failed = kernel.run("%%submit\ndel y\n1 / 0")
    assert failed.status == "error"
    assert ok(kernel.run("y")).result == "2"


def test_big_input_may_be_changed_as_soon_as_the_cell_that_does_not_wait_is_over(kernel: Kernel):
    ok(kernel.run("import numpy as np\nX = np.zeros(2_000_000)"))
    ok(kernel.run("%%submit --no-wait --as job\nX.sum()"))
    ok(kernel.run("X[:] = 1"))
    assert float(ok(kernel.run("float(job.result())")).result) == 0


def test_dry_run_tells_names_and_modules_apart(kernel: Kernel):
    ok(kernel.run("import math\nx = 1"))
    assert (
        "in: nothing\nmodules imported there: math\n" in ok(kernel.run("%%submit --dry-run\nmath.pi")).stdout
    )
    assert "in: x (" in ok(kernel.run("%%submit --dry-run\nx")).stdout


def test_credentials_are_stopped_before_sending(kernel: Kernel, scheduler):
    before = len(scheduler.client.jobs(limit=100).jobs)
    ok(kernel.run("api_token = 'abc'"))
    cell = kernel.run("%%submit\nprint(len(api_token))")
    assert cell.status == "error"
    assert "api_token" in cell.error
    assert "--in" in cell.error
    assert "abc" not in cell.error
    assert len(scheduler.client.jobs(limit=100).jobs) == before
    assert ok(kernel.run("%%submit --in api_token\nprint(len(api_token))")).stdout == "3\n"


def test_what_cannot_travel_is_stopped_with_the_name_and_what_to_do(kernel: Kernel):
    ok(kernel.run("import threading\nlock = threading.Lock()\nhandle = open('/dev/null')"))
    for name, word in (("lock", "lock"), ("handle", "open file")):
        cell = kernel.run(f"%%submit\nprint({name})")
        assert cell.status == "error"
        assert name in cell.error
        assert word in cell.error
        assert "inside the cell" in cell.error


def test_what_cannot_come_back_stays_unbound_with_the_reason(kernel: Kernel):
    cell = ok(kernel.run("%%submit\ngood = 1\nbad = (n for n in range(3))\nprint('done')"))
    assert cell.stdout == "done\n"
    assert "bad did not come back: " in cell.stderr
    assert "generator" in cell.stderr
    assert ok(kernel.run("good, 'bad' in globals()")).result == "(1, False)"


def test_environment_is_the_notebooks_by_allow_list(start_kernel):
    kernel = start_kernel(LC_TIME="C", PRIVATE_THING="no", FORWARDED="yes")
    cell = ok(kernel.run(
        "%%submit --env FORWARDED --env MODE=fast\nimport os, sys\n"
        "print(os.environ.get('LC_TIME'), os.environ.get('PRIVATE_THING'), os.environ['FORWARDED'], os.environ['MODE'])\n"
        "print(sys.executable, os.getcwd())"
    ))  # fmt: skip
    here = ok(kernel.run("import os, sys\nprint(sys.executable, os.getcwd())"))
    assert cell.stdout == "C None yes fast\n" + here.stdout


def test_secret_environment_reaches_the_job_and_nothing_else(start_kernel, scheduler):
    kernel = start_kernel(HF_TOKEN="hunter-two")
    cell = ok(kernel.run("%%submit --env HF_TOKEN\nimport os\nprint(len(os.environ['HF_TOKEN']))"))
    assert cell.stdout == "10\n"
    job = scheduler.client.job(cell.card["number"])
    assert "hunter-two" not in str(scheduler.client.history(job.id)) + str(job)


def test_syntax_error_is_found_before_sending(kernel: Kernel, scheduler):
    before = len(scheduler.client.jobs(limit=100).jobs)
    cell = kernel.run("%%submit\nx = 1\ny = = 2")
    assert cell.status == "error"
    assert re.fullmatch(
        r"  Cell In\[\d+\], line 3\n    y = = 2\n        \^\nSyntaxError: invalid syntax", cell.error
    )
    line = kernel.run("import os\n%submit y = = 2")
    assert re.match(r"  Cell In\[\d+\], line 2\n    y = = 2\n", line.error)
    assert "line 3" in kernel.run("%%submit --dry-run\nx = 1\ny = = 2").error
    assert len(scheduler.client.jobs(limit=100).jobs) == before


def test_magics_and_top_level_await_work_inside_the_cell(kernel: Kernel):
    cell = ok(
        kernel.run(
            "%%submit\nimport asyncio\nawait asyncio.sleep(0)\nlisting = !echo shell\n%time slept = 1\nlisting[0], slept"
        )
    )
    assert cell.result == "('shell', 1)"


def test_cells_text_is_never_expanded_and_option_values_are(kernel: Kernel):
    ok(kernel.run("run = 7\nx = 1"))
    cell = ok(kernel.run("%%submit --name \"run {run}\"\nprint('{x} $x')"))
    assert cell.stdout == "{x} $x\n"
    assert cell.card["name"] == "run 7"


def test_card_of_a_gang_tells_of_the_other_ranks_and_attach_shows_them(kernel: Kernel):
    cell = ok(
        kernel.run(
            "%%submit --tasks 3 --gpus 0\nimport os\nrank = int(os.environ['RANK'])\nprint('I am', rank)"
        )
    )
    number = cell.card["number"]
    assert cell.card["hints"] == [f"rank 0 of 3 is shown; %logs {number} --rank 1 shows others"]
    other = ok(kernel.run(f"%attach {number} --rank 2"))
    assert other.stdout == "I am 2\n"
    assert other.card["hints"] == [f"rank 2 of 3 is shown; %logs {number} --rank 0 shows others"]
    assert ok(kernel.run("rank")).result == "2"
    assert (
        f"job {number} has no rank 3. Its ranks are 0 to 2."
        in kernel.run(f"%attach {number} --rank 3").stderr
    )
    assert ok(kernel.run("%%submit --gpus 0\n1")).card["hints"] == []


def test_name_that_an_earlier_job_gives_back_is_told_with_what_to_do(kernel: Kernel):
    number = ok(kernel.run("%%submit --no-wait --gpus 0 --as first\ndata = [1]")).card["number"]
    cell = kernel.run("%%submit --after first --gpus 0\nlen(data) + other")
    assert cell.stderr.startswith(
        f"warning: data is not defined in this notebook; job {number} gives it back, but only to the notebook: run "
        "first.bind() before you submit this cell, or let the two jobs share a file\n"
        "warning: other is not defined, neither in this notebook nor in the cell\n"
    )
    ok(kernel.run("first.bind()"))
    assert ok(kernel.run("%%submit --after first --gpus 0\nlen(data)")).stderr == ""


def test_every_rank_of_a_gang_runs_the_cell_and_rank_0_is_shown(kernel: Kernel):
    shown = ok(kernel.run("""
        %%submit --tasks 3 --gpus 1 --as gang
        import os
        rank = int(os.environ['RANK'])
        print('I am', rank, 'of', os.environ['WORLD_SIZE'])
        rank * 10
        """))  # fmt: skip
    assert shown.stdout == "I am 0 of 3\n"
    assert ok(kernel.run("%logs gang --rank 2")).stdout.endswith("I am 2 of 3\n")
    assert ok(kernel.run("rank, gang.results(), gang.result()")).result == "(0, [0, 10, 20], 0)"


def test_cell_knows_its_notebook_and_cell(start_kernel, scheduler):
    kernel = start_kernel(JPY_SESSION_NAME="work/a.ipynb")
    cell = kernel.run("%%submit\n1", cell_id="cell-9")
    job = scheduler.client.job(cell.card["number"])
    assert (job.notebook_path, job.cell_id) == ("work/a.ipynb", "cell-9")


def test_cell_of_a_front_end_that_names_neither_notebook_nor_cell(kernel: Kernel, scheduler):
    job = scheduler.client.job(ok(kernel.run("%%submit\n1")).card["number"])
    assert (job.notebook_path, job.cell_id) == (None, None)


def test_cell_of_vs_code_is_known_by_the_end_of_its_address(kernel: Kernel, scheduler):
    ok(kernel.run("__vsc_ipynb_file__ = '/home/ada/a.ipynb'"))
    address = f"vscode-notebook-cell:/home/ada/{'deep/' * 60}a.ipynb#W2sZmlsZQ%3D%3D"
    cell = ok(kernel.run("%%submit\n1", cell_id=address))
    job = scheduler.client.job(cell.card["number"])
    assert job.notebook_path == "/home/ada/a.ipynb"
    assert job.cell_id is not None
    assert address.endswith(job.cell_id)
    assert job.cell_id.endswith("a.ipynb#W2sZmlsZQ%3D%3D")


def test_statement_on_a_line_is_a_job_and_a_loop_of_them_works(kernel: Kernel):
    ok(kernel.run("def square(n):\n    print('squaring', n)\n    return n * n"))
    assert ok(kernel.run("nine = %submit --gpus 0 square(3)\nnine")).result == "9"
    shown = ok(kernel.run("%submit --gpus 0 square(4)"))
    assert shown.result == "16", shown.describe()
    ok(
        kernel.run(
            'jobs = []\nfor n in range(3):\n    job = %submit --gpus 0 --no-wait --name "sq {n}" square(n)\n    jobs.append(job)'
        )
    )
    assert (
        ok(kernel.run("[job.result() for job in jobs], [job.name for job in jobs]")).result
        == "([0, 1, 4], ['sq 0', 'sq 1', 'sq 2'])"
    )


def test_no_wait_gives_the_job_at_once_and_bind_brings_its_names(kernel: Kernel):
    cell = ok(kernel.run("%%submit --no-wait --as job\nlater = 'here'\nlater.upper()"))
    assert [each["output_type"] for each in cell.outputs] == ["display_data"]
    assert cell.card["number"] > 0
    assert ok(kernel.run("Out[max(Out)] is job")).result == "True"
    assert ok(kernel.run("'later' in globals()")).result == "False"
    assert ok(kernel.run("job['later'], job.result()")).result == "('here', 'HERE')"
    assert ok(kernel.run("job.bind()")).result == "['later']"
    assert ok(kernel.run("later")).result == "'here'"


def test_dry_run_says_what_would_happen_and_submits_nothing(kernel: Kernel, scheduler):
    before = len(scheduler.client.jobs(limit=100).jobs)
    ok(kernel.run("data = [1, 2]"))
    cell = ok(kernel.run("%%submit --dry-run --gpus 2\nout = sum(data)"))
    assert "in: data" in cell.stdout
    assert "out: out" in cell.stdout
    assert "Nothing was submitted" in cell.stdout
    assert len(scheduler.client.jobs(limit=100).jobs) == before


def test_bad_requests_are_refused_with_a_clear_text(kernel: Kernel):
    for line, says in (
        ("--queue nowhere", "nowhere"),
        ("--gpus 9", "9"),
        ("--tier 0", "--tier"),
        ("--image x", "--image"),
        ("--time never", "--time"),
        ("--env NOT_SET_HERE", "NOT_SET_HERE is not set"),
    ):
        cell = kernel.run(f"%%submit {line}\n1")
        assert cell.status == "error", line
        assert cell.stderr.startswith("UsageError: --"), line
        assert says in cell.stderr, line
        assert "Traceback" not in cell.error + cell.stderr


def test_variable_that_is_called_like_an_option_is_not_taken_for_it(kernel: Kernel):
    ok(kernel.run("import threading\nqueue = threading.Lock()"))
    cell = kernel.run("%%submit\nprint(queue)")
    assert "queue: " in cell.error
    assert "--queue" not in cell.error + cell.stderr


def test_input_over_the_budget_is_said_before_sending(kernel: Kernel):
    ok(
        kernel.run(
            "%config GPUClusterMagics.input_limit = 1_000_000\nimport numpy as np\nbig = np.zeros(1_000_000)"
        )
    )
    cell = kernel.run("%%submit\nbig.sum()")
    assert cell.status == "error"
    assert "big" in cell.error


def test_large_inputs_and_results_go_both_ways(kernel: Kernel):
    ok(kernel.run("import numpy as np\nbig = np.arange(3_000_000, dtype=float)"))
    cell = ok(kernel.run("%%submit\ntwice = big * 2\nfloat(twice[-1])"))
    assert cell.result == "5999998.0"
    assert ok(kernel.run("bool((twice == 2 * big).all())")).result == "True"
