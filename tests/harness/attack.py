"""An attack on a fleet: one server hangs, refuses, is slow, is full or fails over while jobs of every kind run.

The coordinator's Redis, the broker and the result backend are a server each, behind a proxy each; the nodes are real
workers without flags. Whatever the fault: no healthy node is declared dead, no job runs twice without a greater fence,
lanes keep their order, and nothing is stuck half a minute after the fault has ended.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from celery import chain, group

from coordinator.errors import CoordinatorError, LeaseLost, Locked, StoreRefused, StoreUnavailable
from coordinator.jobs.options import SubmitOptions
from coordinator.jobs.record import TERMINAL, Job
from tests.harness.fleet import Fleet
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

TARGETS = ("store", "broker", "backend")
FAULTS = ("hung", "refused", "slow", "full", "failed over")
STUCK = 30.0  # seconds after the end of a fault
# Sub-tasks are ordinary messages and results. A broker or a backend that is full loses some, which nobody can know: the
# time limit ends the wait for them.
AGAIN: SubmitOptions = {"max_attempts": 100, "retry_delay": 1, "time_limit": 15}


class Target:
    """A Redis behind a proxy, that can be harmed and healed."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self.server = stack.enter_context(RedisServer(directory / "first", "--appendonly", "yes"))
        self.proxy = stack.enter_context(Proxy(self.server.port))

    @contextmanager
    def fault(self, how: str) -> Iterator[None]:
        with {
            "hung": self._hung, "refused": self._refused, "slow": self._slow, "full": self._full,
            "failed over": self._failed_over,
        }[how]():  # fmt: skip
            yield

    @contextmanager
    def _hung(self) -> Iterator[None]:
        self.server.pause()
        yield
        self.server.resume()

    @contextmanager
    def _refused(self) -> Iterator[None]:
        self.proxy.cut()
        yield
        self.proxy.heal()

    @contextmanager
    def _slow(self) -> Iterator[None]:
        self.proxy.delay = 1.0
        yield
        self.proxy.delay = 0.0

    @contextmanager
    def _full(self) -> Iterator[None]:
        with self.server.client() as client:
            client.config_set("maxmemory", 1)
            yield
            client.config_set("maxmemory", 0)

    @contextmanager
    def _failed_over(self) -> Iterator[None]:
        """The old master stays behind its connections, as a replica; the address leads to the new one."""
        after = self._stack.enter_context(RedisServer(self._directory / "second", "--appendonly", "yes"))
        with self.server.client() as old, after.client() as new:
            new.replicaof("127.0.0.1", str(self.server.port))
            wait_until(lambda: new.info("replication").get("master_link_status") == "up", 20)
            old.execute_command("CLIENT", "PAUSE", 1000, "WRITE")
            wait_until(lambda: _offset(old) == _offset(new), 20)
            new.replicaof("NO", "ONE")
            old.replicaof("127.0.0.1", str(after.port))
        self.proxy.target = after.port
        yield


def _offset(client: Any) -> int:
    info = client.info("replication")
    return int(info.get("slave_repl_offset") or info["master_repl_offset"])


class Attack:
    """`jobs` jobs over 20 lanes; the fault begins in the midst of them and lasts `seconds`."""

    def __init__(self, directory: Path, log: RedisServer, prefix: str, jobs: int, seconds: float) -> None:
        self.directory, self.log, self.prefix = directory, log, prefix
        self.jobs, self.seconds = jobs, seconds
        self.ids: dict[str, str] = {}  # of the jobs, by the names of their tasks

    def run(self, target: str, how: str) -> None:
        with ExitStack() as stack:
            targets = {name: Target(self.directory / name, stack) for name in TARGETS}
            self.fleet = stack.enter_context(Fleet(self.log, self.prefix, self.directory))
            self.fleet.environ |= {
                "COORDINATOR_URL": targets["store"].proxy.url(), "TEST_BROKER": targets["broker"].proxy.url(),
                "TEST_BACKEND": targets["backend"].proxy.url(),
            }  # fmt: skip
            self.workers = [self.fleet.worker(name, 3) for name in ("one", "two")]
            self._submit(0, self.jobs // 3)
            with targets[target].fault(how):
                during = threading.Thread(target=self._submit, args=(self.jobs // 3, 2 * self.jobs // 3))
                during.start()
                self._look_on(self.seconds)
            during.join(STUCK)
            assert not during.is_alive(), "a submit hangs"
            self._loses_messages = how == "full" and target != "store"
            self._submit(2 * self.jobs // 3, self.jobs)
            wait_until(lambda: not self._left(), STUCK + self.jobs / 50, self._stuck)
            self._judge()

    def _submit(self, first: int, end: int) -> None:
        for number in range(first, end):
            self._insist(lambda number=number: self._one(number))  # type: ignore[misc]

    def _insist(self, ask: Callable[[], object]) -> None:
        until = time.monotonic() + self.seconds + STUCK
        while True:
            try:
                ask()
                return
            except (StoreUnavailable, StoreRefused):
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def _one(self, number: int) -> None:
        shop, submit = self.fleet.shop, self.fleet.coordinator.submit
        name, key = f"{number:05}", f"k{number % 20}"
        kinds: list[Callable[[], object]] = [
            lambda: submit(key, shop.work.s(name, 0.01), job_id=name),
            lambda: submit(key, shop.work.s(name).set(link=shop.note.s()), job_id=name),
            lambda: submit(key, shop.again.s(name, 2), job_id=name),
            lambda: submit(key, chain(shop.work.si(name), shop.work.si(f"{name}+")), job_id=name),
            lambda: submit(key, group(shop.add.s(1, 2), shop.add.s(3, 4)), job_id=name, **AGAIN),
            lambda: submit([key, f"k{(number + 7) % 20}"], shop.work.s(name), job_id=name),
            lambda: submit(key, shop.fail.s(name), job_id=name, rollback=shop.undo.s(name)),
            lambda: submit(key, shop.work.s(name).set(countdown=1), job_id=name),
            lambda: self._cancelled(key, name),
            lambda: self._locked(f"l{number % 20}"),
            lambda: submit(key, (shop.die if number % 5 == 0 else shop.work).s(name), job_id=name, max_losses=1),
        ]
        kinds[number % len(kinds)]()
        if number % len(kinds) != 9:
            self.ids[name] = name

    def _cancelled(self, key: str, name: str) -> None:
        self.fleet.coordinator.submit(key, self.fleet.shop.work.s(name), job_id=name)
        self.fleet.coordinator.cancel(name)

    def _locked(self, key: str) -> None:
        with suppress(Locked, LeaseLost), self.fleet.coordinator.lock(key, ttl=5) as lease:
            lease.check()

    def _look_on(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert all(worker.process.poll() is None for worker in self.workers), "a worker ended"
            time.sleep(0.2)

    def _left(self) -> list[Job]:
        try:
            found = [self.fleet.coordinator.job(job_id) for job_id in self.ids.values()]
        except CoordinatorError:
            return [None]  # type: ignore[list-item]
        return [job for job in found if job.state not in TERMINAL]

    def _stuck(self) -> str:
        left = self._left()
        causes = [str(self.fleet.coordinator.why(job.id)) for job in left[:3]]
        return f"{len(left)} of {len(self.ids)} left: {left[:3]} {causes}\n{self.fleet.logs()[-5000:]}"

    def _judge(self) -> None:
        logs = self.fleet.logs()
        assert "declared dead" not in logs, "a healthy node was declared dead"
        assert " is dead" not in logs, "a healthy node was declared dead"
        runs: dict[str, list[int]] = {}
        for stamp in self.fleet.stamps(what="begin"):
            runs.setdefault(stamp.name, []).append(stamp.fence)
        for name, fences in runs.items():
            assert fences == sorted(set(fences)), f"{name} ran twice under one fence, or an older one after a newer"
        for job_id in self.ids.values():
            self._judge_job(self.fleet.coordinator.job(job_id), runs)
        lanes = self.fleet.coordinator.lanes()
        assert lanes == [], f"lanes that stay: {lanes}"

    def _judge_job(self, job: Job, runs: dict[str, list[int]]) -> None:
        kind = int(job.id) % 11
        if kind == 6:
            assert job.state == "rolled_back", job
        elif kind == 8:
            assert job.state in ("cancelled", "succeeded"), job
        elif kind == 4 and self._loses_messages and job.state == "failed":
            assert (job.error or {}).get("type") == "TimedOut", job
        elif job.task.endswith(".die"):
            assert (job.state, job.losses) == ("failed", 2), job
        else:
            assert job.state == "succeeded", job
        if kind in (0, 1, 5, 7):
            assert len(runs[job.id]) == 1 + job.losses, job
