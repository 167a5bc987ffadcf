"""Commands where people find them: at the cell, in context menus, in the palette; settings; what is told when a job ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from log_pages import LogPage
from pages import NotebookPage, open_lab, show_sidebar, wait_for, write_notebook
from playwright.sync_api import expect
from support.jupyter_server import JupyterServer
from trainings import Submitted

Submit = Callable[..., Submitted]

_SELECT = """([path, index]) => {
  const panel = [...window.jupyterapp.shell.widgets('main')].find(each => each.context?.path.endsWith(path));
  panel.content.activeCellIndex = index;
}"""
_ACTIVE = "() => window.jupyterapp.shell.currentWidget.content.activeCellIndex"
_RUN = "async ([id, args]) => { await window.jupyterapp.commands.execute(id, args); }"
_TRY = (
    "([id, args]) => window.jupyterapp.commands.execute(id, args).then(() => 'done', error => error.message)"
)


def select(notebook: NotebookPage, index: int) -> None:
    notebook.page.evaluate(_SELECT, [notebook.name, index])


def button_of_cell(page: Any) -> Any:
    """The cell toolbar's button of the active cell."""
    return page.locator(".jp-mod-active .jp-cell-toolbar [data-command='gpucluster:submit-cell']")


def source(notebook: NotebookPage, index: int) -> str:
    return "".join(notebook.cells()[index]["source"])


def menu_items(page: Any) -> list[str]:
    """Labels of the open menu; those that are not enabled in brackets."""
    labels = []
    for item in page.locator(".lm-Menu-item[data-type='command']").all():
        label = item.locator(".lm-Menu-itemLabel").inner_text()
        is_off = "lm-mod-disabled" in (item.get_attribute("class") or "")
        labels.append(f"({label})" if is_off else label)
    return labels


@pytest.mark.parametrize("place", ["lab", "notebook7"])
def test_button_at_a_cell_runs_it_as_a_job(page: Any, lab: JupyterServer, place: str) -> None:
    path = write_notebook(lab, f"button-{place}.ipynb", "base = 20", "print('here'); 2 * base + 2", "# text")
    notebook = NotebookPage(page, lab, path)
    if place == "lab":
        notebook.in_lab()
    else:
        notebook.in_notebook7()
    notebook.run(0)
    wait_for(lambda: notebook.kernel_status() == "idle", "the kernel")
    select(notebook, 1)
    button_of_cell(page).click()
    wait_for(lambda: notebook.is_whole(1), "the job's end")
    assert source(notebook, 1) == "%%submit --gpus 1\nprint('here'); 2 * base + 2"
    assert notebook.text(1).startswith("here\n")
    assert "42" in notebook.text(1)
    first = notebook.card(1)["number"]

    button_of_cell(page).click()
    wait_for(lambda: notebook.card(1).get("number", first) != first and notebook.is_whole(1), "another job")
    assert source(notebook, 1) == "%%submit --gpus 1\nprint('here'); 2 * base + 2", "not twice"


def test_cell_of_a_job_is_gone_to_from_the_sidebar_also_when_its_notebook_is_closed(
    page: Any, lab: JupyterServer
) -> None:
    cells = ["%load_ext jupyter_gpucluster", "%%submit --gpus 0 --name far-away\n1", *(["pass"] * 80)]
    notebook = NotebookPage(page, lab, write_notebook(lab, "far.ipynb", *cells)).in_lab()
    notebook.run(0)
    notebook.run(1)
    wait_for(lambda: notebook.is_whole(1), "the job's end")
    notebook.save()
    row = show_sidebar(page).locator(".jp-gpucluster-job").filter(has_text="far-away").first
    for closes in (False, True):
        select(notebook, 80)
        if closes:
            notebook.save()
            page.evaluate("() => window.jupyterapp.shell.currentWidget.close()")
            page.wait_for_function("() => !window.jupyterapp.shell.currentWidget?.context")
        row.click(button="right")
        page.get_by_role("menuitem", name="Go to Cell").click()
        wait_for(lambda: page.evaluate(_ACTIVE) == 1, "the cell")
        expect(page.locator(".jp-Cell.jp-mod-active")).to_be_in_viewport()
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:delete-cell')")
    job = row.get_attribute("data-job-id")
    told = page.evaluate(_TRY, ["gpucluster:go-to-cell", {"job": job}])
    assert told == f"The cell of job {notebook_number(lab, job)} is no longer in this notebook."


def notebook_number(lab: JupyterServer, job: str) -> int:
    status, view = lab.request("GET", f"gpucluster/api/v1/jobs/{job}")
    assert status == 200
    return int(view["number"])


def test_context_menu_of_a_row_has_what_makes_sense_for_its_job(
    page: Any, lab: JupyterServer, submitted: Submit
) -> None:
    open_lab(page, lab)
    running = submitted("menu", "--gpus 1")
    ended = submitted("over", "--gpus 1", "true")
    wait_for(lambda: ended.view()["state"] == "succeeded", "its end")
    rows = show_sidebar(page).locator(".jp-gpucluster-job")
    rows.filter(has_text=running.name).click(button="right")
    expect(page.get_by_role("menuitem", name="Cancel Job…")).to_be_visible()
    assert menu_items(page)[:4] == ["Open Log", "(Go to Cell)", "Share Job…", "Cancel Job…"]
    page.get_by_role("menuitem", name="Cancel Job…").click()
    page.get_by_role("button", name="Keep it").click()
    assert running.view()["state"] == "running"
    rows.filter(has_text=ended.name).click(button="right")
    expect(page.get_by_role("menuitem", name="Cancel Job…")).to_be_visible()
    assert menu_items(page)[:4] == ["Open Log", "(Go to Cell)", "Share Job…", "(Cancel Job…)"]
    page.get_by_role("menuitem", name="Open Log").click()
    expect(LogPage(page, ended.id).root).to_be_visible()


def test_commands_of_the_palette_ask_which_job(page: Any, lab: JupyterServer, submitted: Submit) -> None:
    open_lab(page, lab)
    first, second = submitted("palette", "--gpus 1"), submitted("palette", "--gpus 1")
    page.keyboard.press("Control+Shift+C")
    page.keyboard.type("cancel a job")
    page.locator(".lm-CommandPalette-item").filter(has_text="Cancel a Job…").first.click()
    choice = page.locator(".jp-Dialog select")
    numbers = [view["number"] for view in (second.view(), first.view())]
    expect(choice.locator("option")).to_have_text(
        [f"job {numbers[0]} {second.name} · running", f"job {numbers[1]} {first.name} · running"]
    )
    choice.select_option(index=1)
    page.locator(".jp-Dialog").get_by_role("button", name="Ok").click()
    page.get_by_role("button", name="Cancel the job").click()
    wait_for(lambda: first.view()["state"] == "cancelled", "its end")
    assert second.view()["state"] == "running"


def test_job_that_fails_out_of_view_is_told_and_its_log_is_one_click_away(
    page: Any, lab: JupyterServer, submitted: Submit
) -> None:
    open_lab(page, lab)
    page.wait_for_function("window.jupyterapp.commands.hasCommand('gpucluster:open-log')")
    job = submitted("fails", "--gpus 1", "sh", "-c", "sleep 3; echo why; exit 7")
    toast = page.locator(".Toastify__toast").filter(has_text=job.name)
    expect(toast).to_contain_text("failed, ended with exit code 7")
    toast.get_by_role("button", name="Open log").click()
    assert LogPage(page, job.id).wait_for_line("why") == ["why"]


def test_options_of_the_setting_stand_on_top_of_the_cell(page: Any, lab: JupyterServer) -> None:
    settings = lab.folder / "config/lab/user-settings/jupyter-gpucluster/plugin.jupyterlab-settings"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('{"submitOptions": "--gpus 0 --name by-setting", "notifyOnEnd": "never"}')
    try:
        notebook = NotebookPage(page, lab, write_notebook(lab, "options.ipynb", "40 + 2")).in_lab()
        select(notebook, 0)
        button_of_cell(page).click()
        wait_for(lambda: notebook.is_whole(0), "the job's end")
        assert source(notebook, 0) == "%%submit --gpus 0 --name by-setting\n40 + 2"
        assert notebook.card(0)["name"] == "by-setting"
    finally:
        settings.unlink()


def test_log_opens_below_the_notebook_in_notebook_7(page: Any, lab: JupyterServer, submitted: Submit) -> None:
    notebook = NotebookPage(page, lab, write_notebook(lab, "below.ipynb", "1")).in_notebook7()
    code = ("sh", "-c", "echo line 0; sleep 600")
    first, second = submitted("below", "--gpus 1", *code), submitted("below", "--gpus 1", *code)
    one, two = LogPage(page, first.id), LogPage(page, second.id)
    one.open().wait_for_line("line 0")
    two.open().wait_for_line("line 0")
    expect(one.root).to_be_hidden()
    one.open()
    expect(one.root).to_be_visible()
    expect(two.root).to_be_hidden()
    assert one.root.bounding_box()["height"] > 150
    expect(page.locator(".jp-Notebook")).to_be_visible()
    assert notebook.cells()[0]["source"] == "1"
    page.evaluate(_RUN, ["gpucluster:show-panel", {}])
    expect(page.locator("#jp-gpucluster-sidebar")).to_contain_text("GPU")
