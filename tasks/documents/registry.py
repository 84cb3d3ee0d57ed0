"""The documents of an installation by name: declares which of them nodes and beats keep, and opens each one."""

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
    """The documents of an installation, by name. `root`: the folder for all copies on this machine."""

    def __init__(self, coordinator: Coordinator, root: Path) -> None:
        self._coordinator, self._folder = coordinator, root
        self.kept: list[str] = []
        self._served: dict[str, Replica] = {}
        self._documents: dict[tuple[str, str], Document] = {}

    def keep(self, name: str) -> None:
        """Make every node and beat keep copies of the document `name`. Jobs may then need its replica set's label."""
        self.kept.append(name)
        self._coordinator.node_plugin(lambda node: self._replica(name, node))
        self._coordinator.needed_labels[label_of(name)] = lambda store: outside(store, name)

    def findings(self) -> Iterator[Finding]:
        """Yield a finding for `doctor` for each living node or beat out of a replica set, and each dead member."""
        for name in self.kept:
            for replica in ReplicaSet(self._coordinator.store, name).replicas():
                thing, why = f"document {name}", replica.why or "it does not report"
                if replica.living and not replica.inside:
                    message = f"{replica.name} is out of its replica set: {why}"
                    yield Finding("warning", "document.outside", thing, message, "fix that; it comes back by itself")
                if replica.inside and not replica.living:
                    message = f"{replica.name} is a member and dead: the next change waits for it, for two seconds"
                    yield Finding("warning", "document.silent", thing, message, "start that node or beat again")

    def metrics(self) -> Iterator[Metric]:
        """Yield Prometheus metrics: each document's version, how many entries its permanent store lacks, and how many
        living nodes and beats are out of its replica set.
        """
        from prometheus_client.core import GaugeMetricFamily  # imported here, since only metrics need it

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
            replicas = ReplicaSet(store, name).replicas()
            version.add_metric([name], Document(store, name).pointer()[0])
            lag.add_metric([name], store.read("HLEN", store.key("behind", name)))
            outside.add_metric([name], sum(replica.living and not replica.inside for replica in replicas))
        yield from (version, lag, outside)

    def serve(self) -> list[Replica]:
        """Start the threads that keep copies of all documents in this process, a beat, and return them.

        Several beats on one machine take different names.
        """
        replicas = [self._replica(name, f"beat@{socket.gethostname()}", several=True) for name in self.kept]
        for replica in replicas:
            with suppress(OSError):  # such as a full disk: the replica's thread tries again
                replica.begin()
            self._served[replica.document.name] = replica
            replica.start()
            atexit.register(replica.stop)  # leaves the replica set, for which the next update would wait
        return replicas

    def __getitem__(self, name: str) -> Document:
        """Return the document `name`, to be read from the disk of this process' node or beat, else from Redis."""
        member = self._served[name].name if name in self._served else self._coordinator.node
        if (name, member) not in self._documents:
            copies = Copies(self._root / member, name) if member and name in self.kept else None
            self._documents[name, member] = Document(self._coordinator.store, name, copies)
        return self._documents[name, member]

    @property
    def _root(self) -> Path:
        """The folder of the copies of this installation, named after the prefix of the coordinator's keys."""
        return self._folder / self._coordinator.settings.prefix

    def _replica(self, name: str, member: str, several: bool = False) -> Replica:
        return Replica(self._coordinator.store, name, member, self._root, several)
