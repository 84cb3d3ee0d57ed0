"""Nodes that the tests of a module share, since starting one costs more than most of what they do with it.

Each test finds the installation as if it had just been set up: no job, no counter, no stamp, no line in a log. Nodes
that a test starts beside them end with it. A test that fails, kills one of theirs or leaves a job behind costs the next
one new nodes. One that is killed, and its heir: the test starts the first, and drains the shared one until then.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from coordinator.errors import CoordinatorError
from tests.harness.fleet import Fleet, Worker
from tests.harness.leftovers import leftovers
from tests.harness.rabbitmq import Broker
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

# What the node itself keeps in the installation, and what must not run backwards under it.
OF_THE_NODE = (
    "node:", "serves:", "tasks:", "classes", "fits:", "room", "alive", "swept", "lost-nodes", "clock", "silence",
    "fence", "sequence", "bells",
)  # fmt: skip


class Node(NamedTuple):
    """What a module declares as its `NODE`; `options` are those of the command, `settings` the coordinator's; `names`:
    a node of each, with so many slots as `capacities` has where it has some.
    """

    app: str = "shop"
    concurrency: int = 2
    options: tuple[str, ...] = ()
    settings: dict[str, Any] = {}  # noqa: RUF012
    pool: str = "prefork"
    names: tuple[str, ...] = ("one",)
    capacities: tuple[int, ...] = ()

    def slots(self) -> list[int]:
        return list(self.capacities) or [self.concurrency] * len(self.names)


class Standing:
    """`environ`: variables that are known once the tests run; `of_nodes`: those that this process does not have."""

    def __init__(
        self,
        server: RedisServer,
        directory: Path,
        node: Node,
        rabbitmq: Broker | None = None,
        of_nodes: Mapping[str, str] | None = None,
        **environ: str,
    ) -> None:
        self._server = server
        self._directory = directory
        self._node = node
        self._rabbitmq = rabbitmq
        self._environ, self._of_nodes = environ, of_nodes or {}
        self._fleet: Fleet | None = None

    @contextmanager
    def lent(self, test: pytest.Item) -> Iterator[Fleet]:
        """To one test at a time."""
        fleet = self._fleet or self._start()
        forget(fleet)
        fleet.read_logs_from_here()
        yield fleet
        if getattr(test, "failed", True) or not self._as_before(fleet):
            self.end()
            return
        store = fleet.coordinator.store
        wait_until(lambda: not leftovers(store), what=lambda: f"keys without an owner: {leftovers(store)}")

    def end(self) -> None:
        if self._fleet:
            self._fleet.__exit__()
            self._fleet = None

    def _start(self) -> Fleet:
        prefix, node = self._server.fresh_prefix(), self._node
        fleet = self._fleet = Fleet(self._server, prefix, self._directory, self._rabbitmq, **node.settings)
        fleet.environ |= self._environ
        for name, slots in zip(node.names, node.slots(), strict=True):
            fleet.worker(name, slots, *node.options, app=node.app, pool=node.pool, **self._of_nodes)
        wait_until(lambda: self._complete(fleet))
        return fleet

    def _complete(self, fleet: Fleet) -> bool:
        """Each node has a supervisor and all of its pool; a supervisor that was killed is there again."""
        parts = [[len(part) for part in worker.family()] for worker in fleet.workers]
        return parts == [[1, slots if self._node.pool == "prefork" else 0] for slots in self._node.slots()]

    def _as_before(self, fleet: Fleet) -> bool:
        """Nothing is at work; the nodes live, and what was killed of them is there again."""
        own = fleet.workers[: len(self._node.names)]
        if others := fleet.workers[len(own) :]:
            self._end(fleet, others)
        if any(worker.process.poll() is not None for worker in own):
            return False
        with suppress(AssertionError, CoordinatorError):
            wait_until(lambda: sorted(fleet.nodes()) == sorted(worker.name for worker in own), 10)
            wait_until(lambda: self._complete(fleet) and all(self._idle(fleet, worker) for worker in own), 5)
            return True
        return False

    def _end(self, fleet: Fleet, others: Sequence[Worker]) -> None:
        """Nodes that a test has started, with the messages that only they have or would have."""
        for other in others:
            other.end()
        del fleet.workers[-len(others) :]
        if not self._rabbitmq:
            with self._server.client(1) as broker:
                for pattern in ("unacked*", *(f"*{other.name}*" for other in others)):
                    for name in broker.scan_iter(f"{fleet.prefix}.{pattern}", 1000):
                        broker.delete(name)

    def _idle(self, fleet: Fleet, worker: Worker) -> bool:
        """Neither a job nor an ordinary task is there, on the broker or at work."""
        store = fleet.coordinator.store
        if fleet.coordinator.lanes() or store._client.exists(store.key("work", worker.name)):
            return False
        app = fleet.app(self._node.app).app
        if self._rabbitmq:
            if self._rabbitmq.waiting(app, app.conf.task_default_queue):
                return False
        elif fleet.messages():
            return False
        asked = app.control.inspect([worker.name], timeout=5, limit=1)
        with suppress(redis.ConnectionError):  # the broker was another process when it was connected
            looks = (asked.reserved, asked.active) if self._rabbitmq else (asked.active,)  # what is reserved is unacked
            return not any((look() or {}).get(worker.name, True) for look in looks)
        return False


def forget(fleet: Fleet) -> None:
    """All that the installation has of jobs, and what tasks noted."""
    store = fleet.coordinator.store
    for name in store._client.scan_iter(f"{store.prefix}*", 1000):
        if not name.decode()[len(store.prefix) :].startswith(OF_THE_NODE):
            store._client.delete(name)
    with fleet.server.client(3) as log:
        for name in log.scan_iter(f"{fleet.prefix}.*", 1000):
            log.delete(name)
