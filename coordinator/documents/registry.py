"""The documents of an installation: the names that nodes and beats keep, and this process's copies of them."""

from __future__ import annotations

import atexit
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from coordinator.documents.copies import Copies
from coordinator.documents.document import Document
from coordinator.documents.replica import Replica
from coordinator.store.client import Store


class Host(Protocol):
    """The part of a Coordinator that is used here."""

    @property
    def store(self) -> Store: ...

    def warden_plugin(self, make: Callable[[str], Replica]) -> None: ...


class Documents:
    """The documents by name. `node`: the worker in this process, or the one that forked it; "" in beats and clients."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.node = ""
        self.kept: list[str] = []
        self._served: dict[str, Replica] = {}
        self._found: dict[tuple[str, str], Document] = {}

    def keep(self, name: str) -> None:
        """Have every node and beat keep copies of this document."""
        self.kept.append(name)
        self._host.warden_plugin(lambda node: self._replica(name, node))

    def serve(self) -> list[Replica]:
        """Keep copies in this process, a beat. Several beats of one machine take different names."""
        replicas = [self._replica(name, f"beat@{socket.gethostname()}", several=True) for name in self.kept]
        for replica in replicas:
            with suppress(OSError):  # its thread tries again
                replica.begin()
            self._served[replica.document.name] = replica
            replica.start()
            atexit.register(replica.stop)  # else the next update waits until Redis notices the silence
        return replicas

    def __getitem__(self, name: str) -> Document:
        """The document as this process sees it: on the disk of its node or beat, else in Redis."""
        member = self._served[name].name if name in self._served else self.node
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
