"""The documents of an installation: which ones nodes and beats keep, and where this process finds its copies."""

from __future__ import annotations

import atexit
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from coordinator.copies import Copies
from coordinator.replica import Replica
from coordinator.replicas import Document
from coordinator.store import Store


class Host(Protocol):
    """What is needed of a Coordinator."""

    @property
    def store(self) -> Store: ...

    def companion(self, make: Callable[[str], Replica]) -> None: ...


class Documents:
    """By name. `node`: the worker in this process, or that forked it; empty in beats and clients."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.node = ""
        self.kept: list[str] = []
        self._served: dict[str, Replica] = {}
        self._found: dict[tuple[str, str], Document] = {}

    def keep(self, name: str) -> None:
        """Have every node and beat keep copies of this document."""
        self.kept.append(name)
        self._host.companion(lambda node: self._replica(name, node))

    def serve(self) -> list[Replica]:
        """Keep all of them in this process, a beat; several of one machine take names one after another."""
        replicas = [self._replica(name, f"beat@{socket.gethostname()}", several=True) for name in self.kept]
        for replica in replicas:
            with suppress(OSError):  # its thread tries on
                replica.begin()
            self._served[replica.document.name] = replica
            replica.start()
            atexit.register(replica.stop)  # else the next update waits until its silence is noticed
        return replicas

    def __getitem__(self, name: str) -> Document:
        """As this process sees it: by the copies of its node or beat, else by Redis."""
        member = self._served[name].member if name in self._served else self.node
        if (name, member) not in self._found:
            copies = Copies(self._root / member, name) if member and name in self.kept else None
            self._found[name, member] = Document(self._host.store, name, copies)
        return self._found[name, member]

    @property
    def _root(self) -> Path:
        settings = self._host.store.settings
        return settings.replica_dir / settings.prefix

    def _replica(self, name: str, member: str, several: bool = False) -> Replica:
        return Replica(self._host.store, name, member, self._root, several)
