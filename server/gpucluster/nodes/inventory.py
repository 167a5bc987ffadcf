"""The nodes of this cluster: found on this machine, declared, or both. What cannot be found out becomes a note."""

from __future__ import annotations

from typing import Protocol

from ..model.topology import Node
from .declared import declared_nodes
from .settings import DEFAULT_DECLARATIONS, NodeSettings


class HasNodeSettings(Protocol):
    """A configuration with a `nodes` part (api/config.py ClusterConfig)."""

    @property
    def nodes(self) -> NodeSettings: ...


def discover(config: HasNodeSettings) -> tuple[list[Node], list[str]]:
    """The nodes and notes for people. Never raises: without GPUs there are simulated nodes or none."""
    return declared_nodes(config.nodes.declared or DEFAULT_DECLARATIONS), []
