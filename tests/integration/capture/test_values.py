"""Names that a cell reads, assigns and changes (DESIGN section 4), pickled here and run in a worker of its own."""

from __future__ import annotations

import pytest

from gpucluster.api.errors import InvalidRequest

from .notebook import Notebook


def test_names_that_the_cell_reads_are_there_and_those_it_assigns_come_back(notebook: Notebook) -> None:
    notebook.cell("x = 3; unused = 4")
    done = notebook.submit("y = x + 1\nfor i in range(3): pass")
    assert done.capture.names == {"x": "value"}
    assert (notebook["y"], notebook["i"]) == (4, 2)
    assert done.bound.bound == ("y", "i")


def test_last_expression_is_the_value_of_the_result(notebook: Notebook) -> None:
    notebook.cell("x = [1, 2]")
    done = notebook.submit("sum(x)")
    assert done.bound.has_value
    assert done.bound.value == 3


def test_two_names_of_one_object_stay_two_names_of_one_object(notebook: Notebook) -> None:
    notebook.cell("a = [1]; b = {'a': a}; c = a")
    done = notebook.submit("same = (a is b['a'], a is c)\na.append(2)\nc.append(3)")
    assert notebook["same"] == (True, True)
    assert set(done.bound.changed) == {"a", "b", "c"}
    assert notebook["a"] == [1, 2, 3]
    assert notebook["a"] is notebook["c"] is notebook["b"]["a"]


def test_list_changed_through_a_name_that_the_cell_does_not_mention_is_changed_under_both(
    notebook: Notebook,
) -> None:
    notebook.cell("a = [1]; b = a")
    done = notebook.submit("b.append(2)")
    assert done.capture.names == {"b": "value"}
    assert notebook["a"] is notebook["b"]
    assert notebook["a"] == [1, 2]
    assert done.bound.aliases == {"a": "b"}


def test_big_arrays_travel_as_blobs_of_their_own_and_can_be_written_to(notebook: Notebook) -> None:
    notebook.cell("import numpy as np\nX = np.arange(100_000.); Y = X; small = np.zeros(3)")
    done = notebook.submit("same = X is Y\nX[0] = 5\nsmall[0] = 1\nZ = X * 2")
    assert sorted(len(blob) > 2000 for blob in done.capture.blobs.values()) == [False, True]
    assert notebook["same"]
    assert set(done.bound.changed) == {"X", "Y", "small"}
    assert (notebook["X"][0], notebook["Z"][0], notebook["small"][0]) == (5, 10, 1)
    assert notebook["X"] is notebook["Y"]
    assert notebook["X"].flags.writeable
    assert notebook["Z"].flags.writeable


def test_array_that_could_not_be_written_to_stays_so(notebook: Notebook) -> None:
    notebook.cell("import numpy as np\nX = np.arange(100_000.); X.flags.writeable = False")
    notebook.submit("writeable = X.flags.writeable")
    assert notebook["writeable"] is False


def test_augmented_assignment_reads_and_assigns(notebook: Notebook) -> None:
    notebook.cell("n = 1; items = [1]")
    done = notebook.submit("n += 1\nitems += [2]")
    assert done.capture.outputs == ("n", "items")
    assert (notebook["n"], notebook["items"]) == (2, [1, 2])


def test_estimator_that_was_fitted_in_the_job_is_fitted_here(notebook: Notebook) -> None:
    notebook.cell(
        "from sklearn.linear_model import LogisticRegression\nimport numpy as np\n"
        "X = np.random.RandomState(0).rand(50, 3); y = (X[:, 0] > .5).astype(int); net = LogisticRegression()"
    )
    done = notebook.submit("net.fit(X, y)\nscore = net.score(X, y)")
    assert done.bound.changed == ("net",)
    assert notebook["net"].score(notebook["X"], notebook["y"]) == notebook["score"] > 0.8


def test_frame_changed_in_place_is_found_and_one_only_read_is_not(notebook: Notebook) -> None:
    notebook.cell(
        "import pandas as pd\ndf = pd.DataFrame({'a': range(5), 'b': 1.5, 's': list('abcde')}); ro = df.copy()"
    )
    done = notebook.submit(
        "df['c'] = df.a * 2\nro.describe(); ro.sort_values('b'); ro.values; ro.groupby('s').sum()"
    )
    assert done.bound.changed == ("df",)
    assert list(notebook["df"]["c"]) == [0, 2, 4, 6, 8]


def test_input_over_the_digest_budget_is_said_and_comes_back_when_the_cell_shows_that_it_changes_it(
    notebook: Notebook,
) -> None:
    notebook.cell("import numpy as np\nX = np.zeros(50_000); Y = np.zeros(50_000)")
    done = notebook.submit("X[0] = 1\nY.fill(1)", digest_budget_bytes=1000)
    assert notebook["X"][0] == 1
    assert notebook["Y"][0] == 0
    assert any("Y (391 KiB) is too big to be compared" in warning for warning in done.capture.warnings)
    assert any("X (391 KiB) is changed by the cell" in warning for warning in done.capture.warnings)
    assert done.bound.notes == ()  # said once, before


def test_input_that_the_cell_deletes_goes(notebook: Notebook) -> None:
    notebook.cell("x = [1]; y = x; z = 3; import math")
    done = notebook.submit("total = sum(x) + z\ndel x\nfor z in (): pass\nif total > 100: del y\ndel math")
    assert done.bound.deleted == ("x", "math")
    assert {"x", "y", "z", "math"} & set(notebook.ns) == {"y", "z"}
    assert notebook["total"] == 4


def test_what_a_cell_imports_is_bound_as_if_it_had_run_here(notebook: Notebook) -> None:
    notebook.submit("import json as j\nimport os.path\nfrom math import pi, tau as t")
    assert notebook["j"].dumps([1]) == "[1]"
    assert notebook["os"].path.sep == "/"
    assert (notebook["pi"], notebook["t"]) == (pytest.approx(3.14159), pytest.approx(6.28318))


def test_module_goes_with_its_alias_and_the_submodule_that_the_cell_reaches_through_it(
    notebook: Notebook,
) -> None:
    notebook.cell("import numpy as np\nimport xml.dom.minidom")
    done = notebook.submit(
        "n = np.zeros(2).sum()\nd = xml.dom.minidom.parseString('<a/>').documentElement.tagName"
    )
    assert done.capture.names == {"np": "module", "xml": "module"}
    assert (notebook["n"], notebook["d"]) == (0, "a")


def test_module_beside_the_notebook_is_imported_there_and_comes_back_by_name(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notebook.folder / "beside_helpers.py").write_text(
        "class Thing:\n    n = 1\ndef twice(x): return 2 * x\n"
    )
    monkeypatch.syspath_prepend(str(notebook.folder))
    notebook.cell("import beside_helpers as h\nfrom beside_helpers import Thing, twice\nthing = Thing()")
    done = notebook.submit("other = Thing()\nr = twice(h.twice(thing.n))")
    assert done.capture.total_bytes < 1000
    assert notebook["r"] == 4
    assert isinstance(notebook["other"], notebook["Thing"])


def test_name_that_needs_a_module_missing_here_stays_unbound_and_the_others_are_bound(
    notebook: Notebook,
) -> None:
    source = (
        "import sys, types\nm = types.ModuleType('only_there'); sys.modules['only_there'] = m\n"
        "exec('class T:\\n    pass\\ndef f(): return 1', m.__dict__)\n"
        "bad = [m.T()]; bad_too = m.f; shared = {'x': [1]}; good = {'shared': shared}; mixed = (shared, m.T()); del m"
    )
    done = notebook.submit(source)
    assert set(done.bound.missing) == {"bad", "bad_too", "mixed"}
    assert "the module only_there is not there in this environment" in done.bound.missing["bad"]
    assert notebook["good"]["shared"] is notebook["shared"]
    assert "bad" not in notebook.ns


def test_result_that_cannot_be_pickled_stays_unbound_with_the_reason(notebook: Notebook) -> None:
    notebook.cell("f = 'as before'")
    done = notebook.submit("f = open('/etc/hosts')\ng = (i for i in [1])\nh = 3")
    assert notebook["h"] == 3
    assert notebook["f"] == "as before"
    assert "an open file (/etc/hosts)" in done.bound.missing["f"]
    assert "a generator" in done.bound.missing["g"]


def test_names_that_were_not_assigned_in_the_end_stay_as_they_were(notebook: Notebook) -> None:
    notebook.cell("x = 1; y = 2; flag = False")
    notebook.submit("if flag:\n    x = 10\nz = 3\ndel z")
    assert notebook["x"] == 1
    assert "z" not in notebook.ns


def test_last_results_are_sent_when_the_cell_reads_them(notebook: Notebook) -> None:
    notebook.ns.update(_=5, _3=[1], Out={3: [1], 4: lambda: open, 5: 50}, In=["", "x"])
    done = notebook.submit("r = (_, _3, Out[5])")
    assert notebook["r"] == (5, [1], 50)
    assert done.capture.names == {"_": "value", "_3": "value", "Out": "value"}


def test_magics_and_shell_lines_run_there_and_the_python_in_them_is_searched(notebook: Notebook) -> None:
    notebook.cell("x = 20")
    done = notebook.submit(
        "%%capture out\n%time y = x + 1\nlines = !echo {x} $x\nprint('seen')", include=["x"]
    )
    assert notebook["y"] == 21
    assert list(notebook["lines"]) == ["20 20"]
    assert not done.capture.warnings
    assert set(done.bound.bound) >= {"y", "lines"}


def test_top_level_await_works(notebook: Notebook) -> None:
    notebook.cell("async def double(x): return 2 * x\nn = 4")
    notebook.submit("r = await double(n)")
    assert notebook["r"] == 8


def test_over_budget_is_said_before_anything_is_pickled(notebook: Notebook) -> None:
    notebook.cell(
        "import numpy as np\nX = np.zeros(1_000_000); y = np.zeros(10)\n"
        "class Never:\n    def __reduce__(self): raise AssertionError('was pickled')\nn = Never()"
    )
    with pytest.raises(
        InvalidRequest, match=r"about 7.6 MiB, over the budget of 1.0 MiB \(X 7.6 MiB"
    ) as refused:
        notebook.start("X.sum() + y.sum(), n", limit_bytes=1 << 20)
    assert refused.value.field == "X"


def test_torch_module_that_was_trained_in_the_job_is_trained_here(notebook: Notebook) -> None:
    pytest.importorskip("torch")
    notebook.cell(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = torch.nn.Linear(200, 200)\n    def forward(self, x): return self.layer(x).sum()\n"
        "net = Net(); frozen = Net(); opt = torch.optim.SGD(net.parameters(), lr=.1); before = net.layer.weight.detach().clone()"
    )
    done = notebook.submit(
        "for step in range(3):\n    opt.zero_grad()\n    loss = net(torch.ones(1, 200))\n    loss.backward()\n    opt.step()\n"
        "with torch.no_grad(): kept = float(frozen(torch.ones(1, 200)))"
    )
    assert "net" in done.bound.changed
    assert "frozen" not in done.bound.changed
    assert type(notebook["net"]) is notebook["Net"]
    assert not notebook["torch"].equal(notebook["net"].layer.weight, notebook["before"])
    assert notebook["opt"].param_groups[0]["params"][0] is notebook["net"].layer.weight
