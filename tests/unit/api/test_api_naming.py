"""The names of jobs that nobody named: of many in a list, each should tell what it is."""

from __future__ import annotations

import pytest

from gpucluster.api.naming import SHOWN_NAME, default_name


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("x = 1", "x = 1"),
        ("import time\ntime.sleep(3)", "time.sleep(3)"),
        ("from tqdm import tqdm\nfor i in tqdm(range(9)):\n    step(i)", "for i in tqdm(range(9))"),
        ("%%time\nimport os\n\n# train it\nnet, losses = train((16,), epochs=30)", "net, losses = train((16,), epochs=30)"),
        ("!pip install 'x\n%matplotlib inline\nfit(x)  # now", "fit(x)"),
        ('"""Says what\nit does"""\nimport a\nlr = 0.1\nrun(lr)', "run(lr)"),
        ("from a import (\n    b,\n    c,\n)\nb(\n    c,  # of a\n    d,\n)", "b( c, d, )"),
        ("seed_everything = 1\ntorch.manual_seed(0)\nprint('x')\nnet.fit(X, y)", "net.fit(X, y)"),
        ("print('hello')", "print('hello')"),
        ("@cache\ndef slow(n):\n    return n\n\nslow(3)", "slow(3)"),
        ("@cache\ndef slow(n, m):\n    return n", "def slow"),
        ("class Net:\n    pass", "class Net"),
        ("try:\n    fit(x)\nexcept ValueError:\n    pass", "fit(x)"),
        ("import torch", "import torch"),
        ("%%bash\nmake data", "make data"),
        ("%timeit", "%timeit"),
        ("# only a comment", "only a comment"),
        ('"""A docstring\nof two lines"""', "A docstring"),
        ("a = 1 + \\\n    2", "a = 1 + 2"),
        ("fit(x,\n    y", "fit(x, y"),
        ("x = '''never\nclosed", "x = '''never closed"),
        ("login(token='hf_abc')\nfit(x)", "fit(x)"),
        ("API_KEY = 'sk-1'", "cell"),
        ("a\tb\x1b[0m   c", "a b [0m c"),
        ("#", "cell"),
        ("", "cell"),
    ],
)  # fmt: skip
def test_name_is_the_line_that_tells_most(source: str, name: str) -> None:
    assert default_name("cell", source) == name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--lr", "0.1"], "python train.py --lr 0.1"),
        (["/opt/venv/bin/python", "-m", "lab.train"], "python -m lab.train"),
        (["sh", "-c", "sleep 1; exit 3"], "sh -c sleep 1; exit 3"),
        (["train", "--epochs", "3", "--api-key", "abc"], "train --epochs 3 …"),
        (["train", "--token=abc", "x"], "train …"),
        (["/", "x"], "/ x"),
        (["\x1b"], "command"),
    ],
)
def test_name_of_a_command_is_the_program_and_its_first_arguments(command: list[str], name: str) -> None:
    assert default_name("command", "", command) == name


def test_names_are_short() -> None:
    for name in (default_name("cell", "x" * 500), default_name("command", "", ["run", "y" * 500])):
        assert len(name) <= SHOWN_NAME
        assert name.endswith("…")


@pytest.mark.parametrize(
    "source", ["(" * 4_000_000, "'''" * 1_000_000, "'\\" * 2_000_000, '"""' + "\\" * 4_000_000]
)
def test_source_that_is_none_gives_some_name(source: str) -> None:
    assert 0 < len(default_name("cell", source)) <= SHOWN_NAME
