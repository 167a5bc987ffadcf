"""The line of %submit: what is an option, what is code, and what a user reads when something is wrong."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from jupyter_gpucluster.arguments import SubmitLine, parse_line
from jupyter_gpucluster.magics import GPUClusterMagics

PARSER = GPUClusterMagics.submit.parser


def parsed(line: str, *, code_follows: bool = True, **user_ns: object) -> SubmitLine:
    return parse_line(PARSER, line, user_ns, code_follows=code_follows)


def refused(line: str, *, code_follows: bool = False, **user_ns: object) -> str:
    with pytest.raises(UsageError) as caught:
        parse_line(PARSER, line, user_ns, code_follows=code_follows)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_values_arrive_parsed():
    values = parsed(
        "-g 2 --memory 8G --time 1h30m --in a,b --in c --env K=V --env HOME --after 3,4 -q vision"
    ).values
    assert values == {
        "gpus": 2.0,
        "memory": 8 << 30,
        "time": 5400.0,
        "in": [["a", "b"], ["c"]],
        "env": [("K", "V"), ("HOME", None)],
        "after": [["3", "4"]],
        "queue": "vision",
    }


def test_all_ways_of_writing_a_value_mean_the_same():
    lines = ("--gpus 4", "--gpus=4", "-g 4", "-g4", "-g=4", '--gpus "4"', "--gpus='4'")
    assert {parsed(line).values["gpus"] for line in lines} == {4.0}


def test_code_after_the_options_is_left_alone():
    line = "--gpus 1 print('it''s', {x}, \"$HOME\")  # -q vision"
    assert parsed(line).rest == "print('it''s', {x}, \"$HOME\")  # -q vision"


def test_two_dashes_end_the_options():
    assert parsed("--gpus 1 -- -x").rest == "-x"


def test_later_one_of_two_wins():
    assert parsed("--wait --no-wait").values["wait"] is False
    assert parsed("-g 1 -g 2").values["gpus"] == 2.0


def test_negative_values_are_values():
    assert parsed("--priority -1").values["priority"] == -1


def test_expression_in_a_value_is_evaluated_in_the_notebook():
    assert parsed('--name "run {i + 1}"', i=6).values["name"] == "run 7"
    assert parsed("--name {d['a b']}", d={"a b": "x"}).values["name"] == "x"
    assert parsed("-g {n}", n=3).values["gpus"] == 3.0


def test_doubled_braces_are_braces():
    assert parsed("--env 'CONF={{\"a\": 1}}'").values["env"] == [("CONF", '{"a": 1}')]


def test_dollars_are_dollars():
    assert parsed("--name $i", i=6).values["name"] == "$i"


def test_expression_that_fails_is_a_usage_error():
    assert refused("--name {nope}").startswith("--name: '{nope}' cannot be expanded: NameError")


def test_cell_may_have_a_comment_after_its_options():
    assert parsed("--gpus 1 # one is enough", code_follows=False).values == {"gpus": 1.0}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--nope", "--nope is no option of submit"),
        ("--gpu 2", "did you mean --gpus"),
        ("--gpus", "--gpus needs a value"),
        ("--gpus two", "--gpus: 'two' is not a number of 0 or more"),
        ("--gpus -1", "--gpus: '-1' is not a number"),
        ("--gpus nan", "--gpus: 'nan' is not a number"),
        ("--memory lots", "--memory: 'lots' is not a size. Write for example"),
        ("--time 0", "--time: '0' is not a duration"),
        ("--requeue maybe", "--requeue: 'maybe' is not one of always, never"),
        ("--in a-b", "--in: 'a-b' is not a Python name"),
        ("--wait=yes", "--wait takes no value"),
        ('--name "open', "a quote is not closed"),
        ("train()", "'train()' is no option"),
    ],
)
def test_bad_line_is_one_clear_line(line, says):
    assert says in refused(line)


def test_help_names_every_option_of_the_table():
    from gpucluster.api.options import options_for

    text = PARSER.format_help()
    assert all(f"--{option.name}" in text for option in options_for("magic"))
    assert parsed("--gpus 1 -h").help


def test_abbreviations_are_refused():
    assert "--ti is no option" in refused("--ti 3h")
