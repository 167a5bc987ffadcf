from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucluster.runtimes.bundle import SCRIPTS, prune_bundles, write_bundle


def test_bundle_is_written_once_and_named_by_its_content(tmp_path: Path) -> None:
    folder = Path(write_bundle(str(tmp_path)))
    assert Path(write_bundle(str(tmp_path))) == folder
    assert [path.name for path in (tmp_path / "bundle").iterdir()] == [folder.name]
    for name in (
        "start.py",
        "gpucluster/__init__.py",
        "gpucluster/worker/main.py",
        "gpucluster/runtimes/__init__.py",
    ):
        assert (folder / name).is_file()
    assert not (folder / "gpucluster" / "engine").exists()


def change(path: Path) -> None:
    path.write_text("raise SystemExit('not our code')")


def plant_cache(path: Path) -> None:
    (path.parent / "__pycache__").mkdir()
    (path.parent / "__pycache__" / "main.cpython-311.pyc").write_bytes(b"x")


def replace_by_link(path: Path) -> None:
    path.rename(path.parents[4] / "moved")
    path.symlink_to(path.parents[4] / "moved")


SPOILERS: list[Callable[[Path], object]] = [
    change,
    Path.unlink,
    plant_cache,
    replace_by_link,
    lambda path: path.chmod(0o666),
    lambda path: path.parent.chmod(0o777),
    lambda path: path.with_name("io.py").write_text("evil"),
    lambda path: os.mkfifo(path.with_name("fifo")),
    lambda path: os.truncate(path, 10),
    lambda path: os.chown(path, 12345, -1) if os.getuid() == 0 else path.chmod(0o666),
]


@pytest.mark.parametrize("spoil", SPOILERS)
def test_bundle_that_was_changed_or_cut_off_is_written_anew(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    folder = Path(write_bundle(str(tmp_path)))
    path = folder / "gpucluster" / "worker" / "main.py"
    content = path.read_text()
    spoil(path)
    assert Path(write_bundle(str(tmp_path))) == folder
    assert path.read_text() == content
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o644
    assert not (path.parent / "io.py").exists()
    assert not (path.parent / "__pycache__").exists()
    prune_bundles(str(tmp_path), {str(folder)})
    assert [each.name for each in (tmp_path / "bundle").iterdir()] == [folder.name]


def test_supervisor_of_the_bundle_needs_nothing_else(tmp_path: Path) -> None:
    folder = write_bundle(str(tmp_path))
    code = f"import sys; sys.path.insert(0, {folder!r}); import gpucluster.runtimes.supervisor.forkserver as m; print(m.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(folder)


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[[str, str], str]:
    """Run Python code as a command job would, with nothing installed, behind this entry of PYTHONPATH."""
    scripts = os.path.join(write_bundle(str(tmp_path)), SCRIPTS)

    def run(code: str, path: str) -> str:
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, [path, scripts]))}
        command = [sys.executable, "-S", "-c", code]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
        ).stdout

    return run


def test_a_script_finds_report_where_nothing_is_installed(
    run_script: Callable[[str, str], str], tmp_path: Path
) -> None:
    (tmp_path / "gpucluster").mkdir()  # a folder of the user's that happens to be called so
    code = "import gpucluster\nfrom gpucluster.worker import report\nreport(1)\nprint(gpucluster.__file__)"
    assert run_script(code, "").startswith(str(tmp_path / "bundle"))


def test_an_installed_package_wins_over_the_bundle(
    run_script: Callable[[str, str], str], tmp_path: Path
) -> None:
    (tmp_path / "site" / "gpucluster").mkdir(parents=True)
    (tmp_path / "site" / "gpucluster" / "__init__.py").write_text("WHICH = 'installed'")
    (tmp_path / "site" / "gpucluster" / "api.py").write_text("")
    code = "import sys; sys.path.append('site')\nimport gpucluster.api, importlib\nprint(importlib.reload(gpucluster).WHICH)"
    assert run_script(code, "") == "installed\n"


def test_old_bundles_go_unless_they_are_in_use(tmp_path: Path) -> None:
    current = write_bundle(str(tmp_path))
    for name in ("old", "older"):
        (tmp_path / "bundle" / name).mkdir()
    prune_bundles(str(tmp_path), {current, str(tmp_path / "bundle" / "old")})
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == {Path(current).name, "old"}


def test_bundle_is_writable_by_its_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = Path(write_bundle(str(tmp_path)))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))} == {0o644, 0o755}
