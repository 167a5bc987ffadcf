"""The wheel alone enables everything: what it holds, and that a fresh environment with nothing but it finds all parts."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DATA = "jupyter_gpucluster-{version}.data/data/"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from this tree. The lab extension is built already (by the set-up), so no Node is needed here."""
    folder = tmp_path_factory.mktemp("wheel")
    built = ROOT / "jupyter_gpucluster" / "labextension" / "package.json"
    if not built.exists():
        pytest.fail("the lab extension is not built: run `make setup`")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if run.returncode != 0 and "not satisfied" in run.stdout + run.stderr:
        command.remove("--no-isolation")
        run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return next(folder.glob("*.whl"))


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_holds_both_packages_and_what_jupyter_looks_for(wheel: Path) -> None:
    found = names(wheel)
    data = DATA.format(version=wheel.name.split("-")[1])
    expected = {
        "gpucluster/cli.py",
        "gpucluster/worker/start.py",
        "gpucluster/runtimes/supervisor/main.py",
        "gpucluster/store/migrations/env.py",
        "jupyter_gpucluster/magics.py",
        data + "etc/jupyter/jupyter_server_config.d/jupyter_gpucluster.json",
        data + "share/jupyter/labextensions/jupyter-gpucluster/package.json",
        data + "share/jupyter/labextensions/jupyter-gpucluster/install.json",
        data + "share/jupyter-gpucluster/examples/01_first_cell.ipynb",
    }
    assert expected <= found
    assert any("jupyter-gpucluster/static/remoteEntry" in name for name in found)
    assert any(name.startswith("jupyter_gpucluster/templates/") for name in found)
    assert any(name.startswith("gpucluster/store/migrations/versions/0001") for name in found)


def test_wheel_holds_nothing_that_belongs_to_the_sources(wheel: Path) -> None:
    assert not [
        name for name in names(wheel) if name.startswith(("tests/", "benchmarks/")) or "node_modules" in name
    ]


def test_environment_with_only_the_wheel_has_every_part(wheel: Path, tmp_path: Path) -> None:
    """Dependencies are lent by this environment; the package itself comes from the wheel, not from the sources."""
    prefix = tmp_path / "env"
    # --ignore-installed: pip would else take this environment's own installation away.
    options = ["--quiet", "--no-deps", "--no-index", "--ignore-installed", "--prefix", str(prefix)]
    install = [sys.executable, "-m", "pip", "install", *options, str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    site = next(prefix.glob("lib/python*/site-packages"))
    env = {
        **os.environ,
        "PYTHONPATH": str(site),
        "JUPYTER_PATH": str(prefix / "share/jupyter"),
        "JUPYTER_CONFIG_PATH": str(prefix / "etc/jupyter"),
    }
    code = (
        "import gpucluster, jupyter_gpucluster, gpucluster.store.store, jupyter_gpucluster.server_extension as s;"
        "print(gpucluster.__file__, jupyter_gpucluster.__file__)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd="/", capture_output=True, text=True, timeout=120
    )
    assert said.returncode == 0, said.stderr
    assert all(Path(path).is_relative_to(site) for path in said.stdout.split())
    version = subprocess.run(
        [str(prefix / "bin" / "gpucluster"), "version"],
        env=env,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert version.returncode == 0, version.stderr
    assert wheel.name.split("-")[1] in version.stdout
