"""The documentation keeps up with the code: links lead somewhere; options, magics and commands are those that exist."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucluster.api.options import OPTIONS
from gpucluster.cli import build_parser
from jupyter_gpucluster.magics import GPUClusterMagics

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("benchmarks/*.md")])
USER_GUIDE = [path for path in PAGES if path.parent == ROOT / "docs" / "user"]
GUIDE = ROOT / "docs" / "user" / "guide.md"

#: Magics of IPython, and %%sweep, which is ours and comes later.
OTHER_MAGICS = {"load_ext", "unload_ext", "config", "run", "pip", "time", "timeit", "sweep"}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """The anchor of a heading: lower case, spaces as dashes, nothing but words and dashes left."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)}


def links(page: Path) -> Iterator[str]:
    """Targets of links and pictures that are not addresses of the web."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def text_of(pages: list[Path]) -> str:
    return "\n".join(page.read_text() for page in pages)


def magics_of_ours() -> set[str]:
    return {name for names in GPUClusterMagics.magics.values() for name in names}


def sub_commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = (each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    return dict(action.choices)


# ---- links


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_to_a_file_and_a_heading(page):
    broken = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


def test_every_page_below_docs_is_reached_from_the_index():
    reached: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        waiting += [(page.parent / target.partition("#")[0]).resolve() for target in links(page)]
    assert {name_of(page) for page in (ROOT / "docs").rglob("*.md")} <= {name_of(page) for page in reached}


# ---- options


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_guide_names_every_option_and_says_which_come_later(option):
    now, _, later = GUIDE.read_text().partition("**come with a later version**")
    place = later.partition("\n\n")[0] if option.not_yet else now
    assert f"`--{option.name}" in place
    if option.short:
        assert f"`-{option.short}`" in place


def test_guide_lists_no_option_that_does_not_exist():
    table = GUIDE.read_text().partition("## Options of")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `--([\w-]+)", table, flags=re.MULTILINE))
    assert listed <= {option.name for option in OPTIONS}


def test_guide_names_every_default_of_a_notebook():
    table = GUIDE.read_text().partition("### Defaults of a notebook")[2].partition("\n## ")[0]
    for trait in GPUClusterMagics.class_own_traits(config=True):
        assert f"`{trait}`" in table


# ---- magics


def test_user_guide_explains_every_magic():
    table = GUIDE.read_text().partition("## Magics")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `%%?(\w+)", table, flags=re.MULTILINE))
    assert listed == magics_of_ours()


@pytest.mark.parametrize("page", [*USER_GUIDE, ROOT / "README.md"], ids=name_of)
def test_pages_name_no_magic_that_does_not_exist(page):
    named = set(re.findall(r"(?<![\w%(])%%?([a-z]\w+)", page.read_text()))
    assert named - OTHER_MAGICS <= magics_of_ours()


# ---- commands


@pytest.mark.parametrize("command", sorted(sub_commands()))
def test_every_command_is_explained(command):
    tables = [GUIDE, ROOT / "docs" / "administrator" / "index.md"]
    assert re.search(rf"^\| `gpucluster {command}`", text_of(tables), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_name_no_command_that_does_not_exist(page):
    named = set(re.findall(r"(?:^\$ |`)gpucluster ([a-z]+)", page.read_text(), flags=re.MULTILINE))
    assert named <= set(sub_commands())


# ---- settings


def test_every_setting_of_the_lab_extension_is_explained_with_its_default():
    table = (ROOT / "docs" / "user" / "lab.md").read_text().partition("## Settings")[2]
    listed = dict(re.findall(r"^\| `(\w+)`.*\| `?([^|`]+?)`? \|$", table, flags=re.MULTILINE))
    schema = json.loads((ROOT / "labextension" / "schema" / "plugin.json").read_text())
    shown = {True: "yes", False: "no"}
    defaults = {name: about["default"] for name, about in schema["properties"].items()}
    assert listed == {name: shown.get(default, default) for name, default in defaults.items()}
