"""A data folder is served again with the configuration that it was served with."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpucluster.api.config import BUILT_IN
from gpucluster.api.remembered import choose_config, remember_config
from gpucluster.model.errors import Unavailable


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUCLUSTER_CONFIG", raising=False)


def test_new_folder_has_the_built_in_cluster(tmp_path: Path) -> None:
    assert choose_config(tmp_path, None) is None


def test_folder_is_served_again_with_what_it_was_served_with(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    config.touch()
    remember_config(tmp_path, choose_config(tmp_path, config))
    assert choose_config(tmp_path, None) == config


def test_given_file_and_variable_come_before_what_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (tmp_path / name for name in ("1.yaml", "2.yaml", "3.yaml"))
    first.touch()
    remember_config(tmp_path, first)
    monkeypatch.setenv("GPUCLUSTER_CONFIG", str(second))
    assert choose_config(tmp_path, None) == second
    assert choose_config(tmp_path, third) == third


def test_built_in_cluster_comes_back_only_when_asked_for(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    config.touch()
    remember_config(tmp_path, config)
    assert choose_config(tmp_path, BUILT_IN) is None
    remember_config(tmp_path, None)
    assert choose_config(tmp_path, None) is None


def test_remembered_file_that_is_gone_is_no_reason_to_serve_another_cluster(tmp_path: Path) -> None:
    remember_config(tmp_path, tmp_path / "gone.yaml")
    with pytest.raises(Unavailable, match=r"gone\.yaml"):
        choose_config(tmp_path, None)
