from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpucluster.runtimes.bundle import prune_bundles, write_bundle


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


def test_supervisor_of_the_bundle_needs_nothing_else(tmp_path: Path) -> None:
    folder = write_bundle(str(tmp_path))
    code = f"import sys; sys.path.insert(0, {folder!r}); import gpucluster.runtimes.supervisor.forkserver as m; print(m.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(folder)


def test_old_bundles_go_unless_they_are_in_use(tmp_path: Path) -> None:
    current = write_bundle(str(tmp_path))
    for name in ("old", "older"):
        (tmp_path / "bundle" / name).mkdir()
    prune_bundles(str(tmp_path), {current, str(tmp_path / "bundle" / "old")})
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == {Path(current).name, "old"}
