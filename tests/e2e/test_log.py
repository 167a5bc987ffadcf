"""The log of a job in the main area: live, bounded, searched, and harmless whatever the job writes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_pages import LogPage, open_logs, python
from pages import open_lab, wait_for
from playwright.sync_api import expect
from support.jupyter_server import JupyterServer
from trainings import Submitted, scheduler_pid
from watching import Watch

Submit = Callable[..., Submitted]

#: Writes a number, and the next one whenever a file of that number appears beside the first argument.
GATED = """
import os, time
print("line 0")
for number in range(1, 5):
    while not os.path.exists("{gates}.%d" % number):
        time.sleep(0.05)
    print("line", number)
"""
COUNTS = """
import time
for number in range(100000):
    print("line", number)
    time.sleep(0.02)
"""
MANY = 300_000
#: Everything that a terminal might be talked into.
HOSTILE = r"""
import sys, time
sys.stdout.write("before\n"
    "\x1b]8;;https://example.org/\x07click here\x1b]8;;\x07\n"
    "\x1b]0;your bank\x07\x1b]2;your bank\x1b\\"
    "\x1b]52;c;ZXZpbA==\x07"
    "\x1b]11;#ff0000\x07\x1b]10;#ff0000\x07"
    "\x1b[?1049h\x1b[?1000h\x1b[2J\x1b[3J\x1bc\x1b[8;2;2t\x1b[c\x1b[6n"
    "after\n")
sys.stdout.flush()
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def in_lab(page: Any, lab: JupyterServer) -> None:
    open_lab(page, lab)


def numbers(lines: list[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := re.fullmatch(r"line (\d+)", line))]


def touch(gates: Path, number: int) -> None:
    Path(f"{gates}.{number}").touch()


def test_log_follows_the_job_to_its_end(page: Any, lab: JupyterServer, submitted: Submit) -> None:
    gates = lab.folder / "gates"
    job = submitted("follows", "--gpus 1", *python(GATED.format(gates=gates)))
    log = LogPage(page, job.id).open()
    log.wait_for_line("line 0")
    expect(log.root).to_contain_text("running on node-")
    expect(log.root).to_contain_text("simulated")
    for number in range(1, 5):
        touch(gates, number)
        log.wait_for_line(f"line {number}")
    expect(log.root).to_contain_text("succeeded")
    assert numbers(log.lines()) == [0, 1, 2, 3, 4]
    expect(log.button("Cancel")).to_have_count(0)


def test_scheduler_that_is_killed_costs_no_line_and_repeats_none(
    page: Any, lab: JupyterServer, watch: Watch, submitted: Submit
) -> None:
    job = submitted("killed", "--gpus 1", *python(COUNTS))
    log = LogPage(page, job.id).open()
    log.wait_for_line("line 20")
    pid = scheduler_pid(lab)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: scheduler_pid(lab) != pid, "another scheduler")
    last = numbers(log.lines())[-1]
    log.wait_for_line(f"line {last + 200}")
    shown = numbers(log.lines())
    assert shown == list(range(shown[0], shown[0] + len(shown)))
    assert shown[0] == 0


def test_hidden_log_asks_for_nothing_and_goes_on_where_it_stood(page: Any, submitted: Submit) -> None:
    first = LogPage(page, submitted("hidden", "--gpus 1", *python(COUNTS)).id).open()
    first.wait_for_line("line 5")
    second = LogPage(page, submitted("front", "--gpus 1", *python("print('line 0')")).id).open()
    second.wait_for_line("line 0")
    stood = len(first.lines())
    page.wait_for_timeout(1000)
    assert len(first.lines()) == stood
    first.open()
    first.wait_for_line(f"line {stood + 100}")
    shown = numbers(first.lines())
    assert shown == list(range(len(shown)))


def test_who_scrolls_up_stays_there_and_comes_back_by_a_button(page: Any, submitted: Submit) -> None:
    log = LogPage(page, submitted("scrolls", "--gpus 1", *python(COUNTS)).id).open()
    log.wait_for_line("line 150")
    log.focus()
    log.press("Home")
    expect(log.button("Follow")).to_have_attribute("aria-pressed", "false")
    expect(log.end).to_contain_text("new lines")
    assert log.first_row() == "line 0"
    log.end.get_by_role("button").click()
    expect(log.button("Follow")).to_have_attribute("aria-pressed", "true")
    log.press("PageUp")
    expect(log.button("Follow")).to_have_attribute("aria-pressed", "false")
    log.press("End")
    expect(log.button("Follow")).to_have_attribute("aria-pressed", "true")


def test_very_long_log_begins_at_its_end_and_is_read_page_by_page(
    page: Any, lab: JupyterServer, submitted: Submit
) -> None:
    job = submitted("long", "--gpus 0", *python(f"for number in range({MANY}): print('line', number)"))
    wait_for(lambda: job.view()["state"] == "succeeded", "its end")
    log = LogPage(page, job.id).open()
    log.wait_for_line(f"line {MANY - 1}")
    expect(log.above).to_contain_text("arlier")
    assert len(log.lines()) <= 20_100
    log.button("Load from the beginning").click()
    expect(log.rows).to_contain_text("line 0")
    assert log.first_row() == "line 0"
    expect(log.end).to_contain_text("More is loaded as you scroll down.")
    last = numbers(log.lines())[-1]
    log.press("End")
    log.wait_for_line(f"line {last + 5000}")
    shown = numbers(log.lines())
    assert shown == list(range(shown[0], shown[0] + len(shown))), "no line is missing between pages"
    assert last in numbers([log.last_row()]) or last > numbers([log.first_row()])[0]
    log.button("Go to the end").click()
    log.wait_for_line(f"line {MANY - 1}")
    with page.expect_download() as download:
        log.root.locator(".jp-gpucluster-logAbove").get_by_role("button", name="Download whole log").click()
    text = Path(download.value.path()).read_text()
    assert numbers(text.splitlines()) == list(range(MANY))
    assert download.value.suggested_filename == f"job-{job.view()['number']}-{job.name}-rank-0.log"


def test_search_goes_from_match_to_match_by_keyboard(page: Any, submitted: Submit) -> None:
    code = "for number in range(5000): print('line', number, 'Loss' if number % 1000 == 7 else '')"
    log = LogPage(page, submitted("searched", "--gpus 1", *python(code)).id).open()
    wait_for(lambda: any(line.startswith("line 4999") for line in log.lines()), "its last line")
    log.focus()
    log.press("Control+f")
    page.keyboard.type("loss")
    expect(log.found).to_have_text("1 of 5")
    expect(log.rows).to_contain_text("line 7 Loss")
    log.press("Enter")
    expect(log.found).to_have_text("2 of 5")
    expect(log.rows).to_contain_text("line 1007 Loss")
    log.press("Shift+Enter", "Shift+Enter")
    expect(log.found).to_have_text("5 of 5")
    log.button("Match case").click()
    expect(log.found).to_have_text("not found")
    log.button("Match case").click()
    log.button("Regular expression").click()
    log.root.get_by_role("textbox", name="Find in these lines").fill("4[0-9]07 +Loss")
    expect(log.found).to_have_text("1 of 1")
    log.press("Escape")
    expect(log.found).to_have_count(0)
    assert page.evaluate("id => document.getElementById(id).contains(document.activeElement)", log.id)


def test_log_of_a_stranger_reaches_nothing_outside_of_its_panel(
    page: Any, watch: Watch, submitted: Submit
) -> None:
    watch.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText('mine')")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    log = LogPage(page, submitted("hostile", "--gpus 1", *python(HOSTILE)).id).open()
    assert log.wait_for_line("after") == ["before", "click here", "after"]
    background = (
        "id => getComputedStyle(document.querySelector(`#${id} .xterm-scrollable-element`)).backgroundColor"
    )
    assert page.evaluate(background, log.id) == "rgb(255, 255, 255)"
    assert "bank" not in page.title()
    place = log.rows.get_by_text("click here").bounding_box()
    page.mouse.move(place["x"] + 20, place["y"] + 8)
    page.mouse.move(place["x"] + 22, place["y"] + 8)
    assert log.root.locator(".xterm-cursor-pointer").count() == 0
    page.mouse.click(place["x"] + 22, place["y"] + 8)
    assert page.evaluate("navigator.clipboard.readText()") == "mine"
    assert dialogs == []
    assert len(watch.context.pages) == 1


def test_bars_of_tqdm_are_drawn_in_their_place(page: Any, submitted: Submit) -> None:
    code = (
        "from tqdm import tqdm\nimport time\n"
        "for _ in tqdm(range(20), desc='epoch', ascii=True): time.sleep(0.02)\ntime.sleep(1)\nprint('done')"
    )
    log = LogPage(page, submitted("bars", "--gpus 1", *python(code)).id).open()
    log.wait_for_line("done")
    bars = [line for line in log.lines() if "epoch" in line]
    assert len(bars) == 1
    assert bars[0].startswith("epoch: 100%|##########| 20/20")


def test_ranks_and_attempts_are_told_apart(page: Any, submitted: Submit) -> None:
    gang = submitted("ranks", "--gpus 1 --tasks 2", *python("import os; print('rank', os.environ['RANK'])"))
    log = LogPage(page, gang.id).open()
    log.wait_for_line("rank 0")
    log.root.get_by_label("Rank").select_option("1")
    other = LogPage(page, gang.id, 1)
    other.wait_for_line("rank 1")
    assert open_logs(page) == [other.id]
    log.open()
    assert open_logs(page) == [other.id, log.id]
    log.root.get_by_label("Rank").select_option("1")
    expect(other.root).to_be_visible()
    assert open_logs(page) == [other.id, log.id], "one for each rank"

    again = submitted("again", "--gpus 1 --retries 1", *python("print('tried'); raise SystemExit(3)"))
    log = LogPage(page, again.id).open()
    wait_for(lambda: again.view()["state"] == "failed", "its end")
    expect(log.root).to_contain_text("failed")
    log.root.get_by_label("Attempt").select_option("1")
    wait_for(lambda: log.lines() == ["tried"], "attempt 1")
    log.root.get_by_label("Attempt").select_option("")
    log.button("Load from the beginning").click()
    wait_for(lambda: log.lines().count("tried") == 2, "both attempts")
    first, seam, second = log.lines()
    assert (first, second) == ("tried", "tried")
    assert re.fullmatch(r"— attempt 2 on node-\d \(attempt 1 failed: ended with exit code 3\) · .* —", seam)


def test_open_logs_are_there_again_after_a_reload(page: Any, submitted: Submit) -> None:
    job = submitted(
        "reloaded", "--gpus 1 --tasks 2", *python("print('line 0'); import time; time.sleep(600)")
    )
    log = LogPage(page, job.id, 1).open()
    log.wait_for_line("line 0")
    wait_for(lambda: f"jupyter-gpucluster-log:{job.id}:1" in saved_layouts(page), "the layout is saved")
    page.goto(page.url.partition("?")[0])
    page.wait_for_function("window.jupyterapp !== undefined")
    page.evaluate("async () => { await window.jupyterapp.restored; }")
    log.wait_for_line("line 0")
    assert open_logs(page) == [log.id]


def saved_layouts(page: Any) -> str:
    """What workspaces remember."""
    return str(
        page.evaluate(
            """async () => {
              const { values } = await window.jupyterapp.serviceManager.workspaces.list();
              return JSON.stringify(values);
            }"""
        )
    )


def test_log_that_is_not_there_is_said_to_be_missing(page: Any, watch: Watch) -> None:
    page.evaluate(
        "async () => { await window.jupyterapp.commands.execute('gpucluster:open-log', {job: '0'.repeat(26)}); }"
    )
    expect(page.get_by_role("alert").filter(has_text="There is no job 00000")).to_be_visible()
