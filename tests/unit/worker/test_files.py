from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpucluster.worker import files


@pytest.mark.parametrize(
    "plant",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: os.symlink("target", path),
        lambda path: os.symlink("/dev/zero", path),
    ],
)
def test_what_is_no_file_is_neither_waited_for_nor_followed(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    (tmp_path / "target").write_text("{}")
    plant(tmp_path / "it")
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        files.open_regular(tmp_path / "it")
    assert caught.value.errno in files.NOT_A_FILE
    assert files.read_json(tmp_path / "it") is None


def test_links_in_the_last_parts_of_a_path_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("secret")
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "result").symlink_to(tmp_path / "other")
    path = tmp_path / "task" / "result" / "file"
    assert files.read_regular(path, 100) == b"secret"
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        files.read_regular(path, 100, parts=2)
    (tmp_path / "link").symlink_to(tmp_path)
    assert files.read_regular(tmp_path / "link" / "other" / "file", 100, parts=2) == b"secret"
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        files.read_regular(tmp_path / "link" / "other" / "file", 100, parts=3)


def test_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert files.read_regular(path, 10) == b"x" * 10
    with pytest.raises(OSError, match="larger than 9 bytes"):
        files.read_regular(path, 9)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert files.read_json(path) is None


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a": ' + "9" * 10_000 + "}"])
def test_what_is_no_json_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    assert files.read_json(tmp_path / "file") is None


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir, lambda path: os.symlink("target", path)])
def test_file_is_written_whatever_stands_in_its_place(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    plant(tmp_path / "it")
    files.write_json(str(tmp_path / "it"), {"a": 1})
    assert json.loads((tmp_path / "it").read_text()) == {"a": 1}
    assert not (tmp_path / "target").exists()


def test_tree_that_two_remove_at_once_is_gone(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for number in range(300):
        (top / f"{number % 7}" / f"{number}").mkdir(parents=True)
        (top / f"{number % 7}" / f"{number}" / "file").touch()
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(files.remove_tree, [str(top)] * 2)) == [None, None]
    assert not top.exists()


def test_tree_of_any_depth_and_mode_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(tmp_path)
    os.mkfifo(top / "fifo")
    here = os.getcwd()
    os.chdir(top)
    try:
        for _ in range(1500):
            os.mkdir("d")
            Path("f").touch()
            os.chdir("d")
    finally:
        os.chdir(here)
    (top / "closed" / "below").mkdir(parents=True)
    os.chmod(top / "closed" / "below", 0)
    os.chmod(top / "closed", 0o500)
    files.remove_tree(str(top))
    assert not top.exists()
    assert (tmp_path / "kept").read_text() == "x"
    files.remove_tree(str(top))
    files.remove_tree(str(tmp_path / "kept"))
    assert os.listdir(tmp_path) == []
