"""The nodes of this cluster: found on this machine, declared, or both. What cannot be found out becomes a note."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..model.topology import Node
from .declared import declared_nodes
from .detected import DetectedNode, no_task_holds, no_task_owns
from .host import Host
from .nvml import Nvml
from .settings import DEFAULT_DECLARATIONS, NodeSettings, Source


class HasNodeSettings(Protocol):
    """A configuration with a `nodes` part (api/config.py ClusterConfig)."""

    @property
    def nodes(self) -> NodeSettings: ...


class Inventory:
    """The nodes, and what changes on them. Blocking (NVML); call it from one thread. No method raises.

    `is_ours(pid)`: the process belongs to a task of this cluster; `holds(uuid)`: a task of it has that GPU.
    """

    def __init__(
        self,
        settings: NodeSettings,
        *,
        is_ours: Callable[[int], bool] = no_task_owns,
        holds: Callable[[str], bool] = no_task_holds,
        nvml: Nvml | None = None,
        host: Host | None = None,
    ) -> None:
        self._settings = settings
        self._host = host or Host()
        self._nvml = nvml
        self._is_ours, self._holds = is_ours, holds
        self.detected: DetectedNode | None = None
        self._declared: list[Node] = []
        self._fallback_note: str | None = None

    def open(self) -> list[Node]:
        """Find the nodes. With nothing configured, a machine without GPUs gets the simulated ones."""
        settings = self._settings
        self._declared = declared_nodes(settings.declared)
        if settings.detect:
            self.detected = DetectedNode(
                settings, is_ours=self._is_ours, holds=self._holds, nvml=self._nvml, host=self._host
            )
            self.detected.open()
            if settings.source is Source.AUTO and not self.detected.node.gpus:
                self._fall_back()
        return self.nodes()

    def _fall_back(self) -> None:
        if self.detected is None:
            return
        why = "; ".join(self.detected.notes)
        self.detected.close()
        self.detected = None
        self._declared = declared_nodes(DEFAULT_DECLARATIONS)
        self._fallback_note = f"{why}. The GPUs here are simulated"

    def nodes(self) -> list[Node]:
        return [*([self.detected.node] if self.detected else []), *self._declared]

    def refresh(self) -> list[Node]:
        """Look again; the nodes that changed since the last time."""
        if self.detected is None:
            return []
        before = self.detected.node
        after = self.detected.refresh()
        return [] if after == before else [after]

    @property
    def notes(self) -> list[str]:
        if self._fallback_note:
            return [self._fallback_note]
        return self.detected.notes if self.detected else []

    def close(self) -> None:
        if self.detected:
            self.detected.close()


def discover(config: HasNodeSettings) -> tuple[list[Node], list[str]]:
    """The nodes as they are now, and notes for people. For more than one look, keep an Inventory."""
    inventory = Inventory(config.nodes)
    try:
        return inventory.open(), inventory.notes
    finally:
        inventory.close()
