"""A node that the tests of a module share, since starting one costs more than most of what they do with it.

Each test finds the installation as if it had just been set up: no job, no counter, no stamp, no line in a log. A test
that fails, kills the node or leaves a job behind costs the next one a new node.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coordinator.broker.doorbells import queue_of
from tests.harness.fleet import Fleet, Worker
from tests.harness.leftovers import leftovers
from tests.harness.rabbitmq import Broker
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

# What the node itself keeps in the installation, and what must not run backwards under it.
OF_THE_NODE = (
    "node:", "serves:", "tasks:", "classes", "fits:", "room", "alive", "swept", "clock", "silence", "fence", "sequence",
    "bells",
)  # fmt: skip


class Node(NamedTuple):
    """What a module declares as its `NODE`; `options` are those of the command, `settings` the coordinator's."""

    app: str = "shop"
    concurrency: int = 2
    options: tuple[str, ...] = ()
    settings: dict[str, Any] = {}  # noqa: RUF012


class Standing:
    def __init__(self, server: RedisServer, directory: Path, node: Node, rabbitmq: Broker | None = None) -> None:
        self._server = server
        self._directory = directory
        self._node = node
        self._rabbitmq = rabbitmq
        self._fleet: Fleet | None = None
        self._warden = 0

    @contextmanager
    def lent(self, test: pytest.Item) -> Iterator[Fleet]:
        """To one test at a time."""
        fleet = self._fleet or self._start()
        self._clear(fleet)
        yield fleet
        if getattr(test, "failed", True) or not self._as_before(fleet):
            self.end()
            return
        store = fleet.coordinator.store
        wait_until(lambda: not leftovers(store), 5.0, lambda: f"keys without an owner: {leftovers(store)}")

    def end(self) -> None:
        if self._fleet:
            self._fleet.__exit__()
            self._fleet = None

    def _start(self) -> Fleet:
        prefix = self._server.fresh_prefix()
        fleet = self._fleet = Fleet(self._server, prefix, self._directory, self._rabbitmq, **self._node.settings)
        worker = fleet.worker("one", self._node.concurrency, *self._node.options, app=self._node.app)
        wait_until(lambda: self._complete(worker) and worker.wardens(), 20)
        self._warden = worker.warden().pid
        return fleet

    def _complete(self, worker: Worker) -> bool:
        return len(worker.children()) == self._node.concurrency

    def _as_before(self, fleet: Fleet) -> bool:
        """Nothing is at work; the node and its warden live, and what was killed of its pool is there again."""
        worker, *others = fleet.workers
        if others or worker.process.poll() is not None or [one.pid for one in worker.wardens()] != [self._warden]:
            return False
        with suppress(AssertionError):
            wait_until(lambda: self._complete(worker) and self._idle(fleet, worker), 5)
            return True
        return False

    def _idle(self, fleet: Fleet, worker: Worker) -> bool:
        """Neither a job nor an ordinary task is there, on the broker or at work."""
        store = fleet.coordinator.store
        if fleet.coordinator.lanes() or store._client.exists(store.key("work", worker.name)):
            return False
        app = fleet.app(self._node.app).app
        if self._rabbitmq:
            if any(
                self._rabbitmq.waiting(app, name) for name in (app.conf.task_default_queue, queue_of(worker.name).name)
            ):
                return False
        elif fleet.messages():
            return False
        asked = app.control.inspect([worker.name], timeout=5, limit=1)
        return not any((tasks or {}).get(worker.name, True) for tasks in (asked.active(), asked.reserved()))

    def _clear(self, fleet: Fleet) -> None:
        store = fleet.coordinator.store
        for name in store._client.scan_iter(f"{store.prefix}*", 1000):
            if not name.decode()[len(store.prefix) :].startswith(OF_THE_NODE):
                store._client.delete(name)
        with self._server.client(3) as log:
            for name in log.scan_iter(f"{fleet.prefix}.*", 1000):
                log.delete(name)
        fleet.read_logs_from_here()
