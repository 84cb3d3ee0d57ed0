"""The documents of an installation by name: which ones nodes and beats keep, and this process's view of each."""

from __future__ import annotations

import atexit
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator import Coordinator, Finding
from tasks.documents.document import Document
from tasks.documents.on_disk import Copies
from tasks.documents.replica import Replica
from tasks.documents.replica_set import ReplicaSet, label_of, outside

if TYPE_CHECKING:
    from prometheus_client import Metric


class Documents:
    """The documents by name. `root`: the folder of this machine's copies."""

    def __init__(self, coordinator: Coordinator, root: Path) -> None:
        self._coordinator, self._folder = coordinator, root
        self.kept: list[str] = []
        self._served: dict[str, Replica] = {}
        self._documents: dict[tuple[str, str], Document] = {}

    def keep(self, name: str) -> None:
        """Have every node and beat keep copies of this document."""
        self.kept.append(name)
        self._coordinator.warden_plugin(lambda node: self._replica(name, node))
        self._coordinator.needed_labels[label_of(name)] = lambda store: outside(store, name)

    def findings(self) -> Iterator[Finding]:
        """The living nodes and beats that are out of a replica set, and members that do not live."""
        for name in self.kept:
            for keeper in ReplicaSet(self._coordinator.store, name).keepers():
                thing, why = f"document {name}", keeper.why or "it does not report"
                if keeper.living and not keeper.inside:
                    message = f"{keeper.name} is out of its replica set: {why}"
                    yield Finding("warning", "document.outside", thing, message, "mend that; it comes back by itself")
                if keeper.inside and not keeper.living:
                    message = f"{keeper.name} keeps it and does not live: the next change waits for it, for two seconds"
                    yield Finding("warning", "document.silent", thing, message, "start that node or beat again")

    def metrics(self) -> Iterator[Metric]:
        """The version of each document, and how far its permanent store and its keepers are behind."""
        from prometheus_client.core import GaugeMetricFamily  # only a door for Prometheus needs it

        version, lag, outside = (
            GaugeMetricFamily(f"coordinator_document_{name}", description, labels=["document"])
            for name, description in (
                ("version", "The committed version."),
                ("lag", "Entries that the permanent store lacks."),
                ("outside", "Living nodes and beats out of the replica set."),
            )
        )
        store = self._coordinator.store
        for name in self.kept:
            keepers = ReplicaSet(store, name).keepers()
            version.add_metric([name], Document(store, name).pointer()[0])
            lag.add_metric([name], store.read("HLEN", store.key("behind", name)))
            outside.add_metric([name], sum(keeper.living and not keeper.inside for keeper in keepers))
        yield from (version, lag, outside)

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
        member = self._served[name].name if name in self._served else self._coordinator.node
        if (name, member) not in self._documents:
            copies = Copies(self._root / member, name) if member and name in self.kept else None
            self._documents[name, member] = Document(self._coordinator.store, name, copies)
        return self._documents[name, member]

    @property
    def _root(self) -> Path:
        return self._folder / self._coordinator.settings.prefix

    def _replica(self, name: str, member: str, several: bool = False) -> Replica:
        return Replica(self._coordinator.store, name, member, self._root, several)
