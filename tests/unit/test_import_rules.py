"""The rooms and who may import whom (docs/architecture.md). Read from the source, so that lazy imports count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "server" / "gpucluster"

#: room -> the rooms of gpucluster that it may import. `engine:contract` = engine.protocols, .events and .instructions.
MAY_IMPORT = {
    "model": set(),
    "worker": {"runtimes"},  # start.py hands over to the supervisor that ships beside it
    "policy": {"model"},
    "engine": {"model", "policy"},
    "store": {"model", "engine:contract", "worker"},
    "nodes": {"model", "engine:contract"},
    "runtimes": {"model", "engine:contract", "worker"},
    "backends": {"model", "engine:contract", "worker", "runtimes", "nodes"},
    "predict": {"model"},
    "simulate": {"model", "policy", "engine", "engine:contract", "predict"},
    "api": {"model", "policy", "engine", "engine:contract", "store", "nodes", "runtimes", "backends", "worker", "simulate",
            "predict"},
    "cli": {"model", "api", "nodes", "worker"},
}  # fmt: skip

#: Modules of api that a client may load: they must not drag the service in.
CLIENT_SIDE_API = {
    "schemas",
    "options",
    "client",
    "transport",
    "discovery",
    "embedded",
    "environment",
    "errors",
    "feeds",
    "naming",
    "words",
}
CONTRACT = {"protocols", "events", "instructions"}
STANDARD_LIBRARY_ONLY = ("worker", "runtimes/supervisor")
OPTIONAL_IN_WORKER = {
    "IPython",
    "cloudpickle",
    "matplotlib",
    "matplotlib_inline",
    "numpy",
    "tqdm",
    "traitlets",
    "torch",
}


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "labextension" not in path.parts)


def imported(path: Path, package_root: Path) -> Iterator[str]:
    """Absolute dotted names that the module imports, each as far as it names a module or a member."""
    package = [*path.relative_to(package_root).with_suffix("").parts]
    is_package = package[-1] == "__init__"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else []
            if node.level and is_package:
                base = package[: len(package) - node.level]
            prefix = ".".join([*base, *(node.module.split(".") if node.module else [])])
            for alias in node.names:
                yield f"{prefix}.{alias.name}"


def room_of(path: Path) -> str:
    relative = path.relative_to(SERVER)
    return (
        relative.parts[0] if len(relative.parts) > 1 else ("cli" if relative.stem.startswith("cli") else "")
    )


def needed_room(name: str) -> str | None:
    parts = name.split(".")
    if parts[0] != "gpucluster" or len(parts) < 2:
        return None
    if parts[1].startswith("cli"):
        return "cli"
    if parts[1] == "engine" and len(parts) > 2 and parts[2] in CONTRACT:
        return "engine:contract"
    return "cli" if parts[1].startswith("cli") else parts[1]


@pytest.mark.parametrize("path", modules(SERVER), ids=lambda path: str(path.relative_to(SERVER)))
def test_room_imports_only_what_it_may(path: Path) -> None:
    room = room_of(path)
    if not room:
        return
    for name in imported(path, SERVER.parent):
        target = needed_room(name)
        if target in (None, room, "__version__", "_version") or (
            room == "engine" and target == "engine:contract"
        ):
            continue
        assert target in MAY_IMPORT[room], f"{path.relative_to(ROOT)} imports {name}"


def test_only_the_service_knows_which_backend_there_is() -> None:
    knowing = [
        path.name
        for path in modules(SERVER / "api")
        if any(name.startswith("gpucluster.backends.local") for name in imported(path, SERVER.parent))
    ]
    assert knowing == ["service.py"]


@pytest.mark.parametrize("path", modules(SERVER), ids=lambda path: str(path.relative_to(SERVER)))
def test_gpucluster_never_imports_jupyter(path: Path) -> None:
    for name in imported(path, SERVER.parent):
        top = name.split(".")[0]
        assert not top.startswith("jupyter"), f"{path.relative_to(ROOT)} imports {name}"
        assert top not in {"notebook", "ipykernel", "ipywidgets"}, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize(
    "path", modules(ROOT / "jupyter_gpucluster"), ids=lambda path: str(path.relative_to(ROOT))
)
def test_notebook_side_speaks_http_only(path: Path) -> None:
    for name in imported(path, ROOT):
        parts = name.split(".")
        if parts[0] != "gpucluster" or parts[1:] == ["__version__"]:
            continue
        allowed = parts[1:2] == ["worker"] or (parts[1:2] == ["api"] and parts[2] in CLIENT_SIDE_API)
        assert allowed, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("folder", STANDARD_LIBRARY_ONLY)
def test_what_ships_into_images_needs_the_standard_library_only(folder: str) -> None:
    import sys

    for path in modules(SERVER / folder):
        for name in imported(path, SERVER.parent):
            top = name.split(".")[0]
            known = top in sys.stdlib_module_names or top == "gpucluster" or top in OPTIONAL_IN_WORKER
            assert known, f"{path.relative_to(ROOT)} imports {name}"
