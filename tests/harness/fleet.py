"""Fleets of the tests: real `celery worker` processes of the apps in `tests.harness.apps`, each a coordinating node."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.harness.installation import Installation
from tests.harness.rabbitmq import Broker
from tests.harness.redis import RedisServer
from tests.harness.stopping import wait_until_still
from tests.harness.waiting import wait_until
from tests.harness.warm import Process, start

ROOT = Path(__file__).parents[2]
SUPERVISOR = "coordinator.core.supervisor"
# A worker looks for its neighbours for a second; who starts many of them, or again and again, may leave that out.
ALONE = ("--without-mingle", "--without-gossip", "--without-heartbeat")
# The answer of one node to the remote control. By itself Celery waits for a second: the whole of it, and no longer.
ANSWERED: Any = {"reply": True, "timeout": 20, "limit": 1}


class Worker:
    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    def supervisor(self) -> psutil.Process:
        return self.supervisors()[0]

    def supervisors(self) -> list[psutil.Process]:
        """One, or none while it is started again."""
        return self.family()[0]

    def maintenance(self) -> psutil.Process:
        """The supervisor's own child."""
        wait_until(lambda: any(supervisor.children() for supervisor in self.supervisors()))
        return self.supervisor().children()[0]

    def children(self) -> list[psutil.Process]:
        """Its pool processes."""
        return self.family()[1]

    def family(self) -> tuple[list[psutil.Process], list[psutil.Process]]:
        """Its supervisors and its pool, in one look: each look reads the parents of all processes of the machine."""
        living = [child for child in psutil.Process(self.pid).children() if _lives(child)]
        supervisors = [child for child in living if _is(child, SUPERVISOR)]
        return supervisors, [child for child in living if child not in supervisors]

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process.poll() is None:
            kill_all(self)
        self.process.wait()


def _lives(process: psutil.Process) -> bool:
    """Not one that has ended since it was seen."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _is(process: psutil.Process, *words: str) -> bool:
    """One of these stands on its command line. Not one that has ended since it was seen."""
    with suppress(psutil.NoSuchProcess):
        return bool({*words} & {*process.cmdline()})
    return False


class Fleet(Installation):
    """An installation with nodes: `worker(...)` starts one."""

    def __init__(
        self, server: RedisServer, prefix: str, directory: Path, rabbitmq: Broker | None = None, **settings: Any
    ) -> None:
        super().__init__(server, prefix, **settings)
        self.rabbitmq = rabbitmq
        if rabbitmq:
            self.environ["TEST_BROKER"] = rabbitmq.url
        self.directory = directory
        self.environ["TASKS_DATA_DIR"] = str(directory / "data")
        self.workers: list[Worker] = []
        self._read: dict[Path, int] = {}

    def worker(
        self,
        name: str = "one",
        concurrency: int = 2,
        *options: str,
        pool: str = "prefork",
        app: str = "shop",
        ready: bool = True,
        fresh: bool = False,
        root: Path = ROOT,
        **environ: str,
    ) -> Worker:
        """Start a node as users do, and wait until it is registered; `environ`: further variables of it alone; `root`:
        where its code is.
        """
        before = ready and self.lives(f"{name}@test")  # one of this name that just ended may still be registered
        log = self.directory / f"{name}-{len(self.workers)}.log"
        argv = [sys.executable, "-m", "celery", "-A", f"{self.apps}.{app}", "worker", "-n", f"{name}@test"]
        argv += ["-c", str(concurrency), "-P", pool, "-l", "INFO", *options]
        env = os.environ | self.environ | environ
        process: Process
        with log.open("wb") as out:
            if fresh or root != ROOT or pool == "gevent":  # that patches what it imports
                process = subprocess.Popen(argv, stdout=out, stderr=out, cwd=root, start_new_session=True, env=env)
            else:
                process = start(argv[1:], ROOT, env, stdout=out, stderr=out, session=True)
        worker = Worker(f"{name}@test", process, log)
        self.workers.append(worker)
        if ready:
            wait_until(
                lambda: self.lives(worker.name) not in (None, before),
                60,
                lambda: f"{name} is not up:\n{log.read_text()[-3000:]}",
            )
        return worker

    def messages(self) -> int:
        """On the broker: those that wait, in the app's queues, and those that nobody has acknowledged."""
        if self.rabbitmq:
            return self.rabbitmq.messages()
        with self.server.client(1) as broker:
            names = list(broker.scan_iter(f"{self.prefix}.*", 1000, _type="LIST"))
            return int(broker.hlen(f"{self.prefix}.unacked")) + sum(int(broker.llen(name)) for name in names)

    def lives(self, node: str) -> str | None:
        """Which life of this node is registered, by its incarnation."""
        store = self.coordinator.store
        incarnation: bytes | None = store.read("HGET", store.key("node", node), "incarnation")
        return incarnation.decode() if incarnation and node in self.nodes() else None

    def nodes(self) -> list[str]:
        return [node.name for node in self.coordinator.nodes()]

    def wakes_of(self, node: str) -> str:
        """The list from which the node's supervisor takes its wake-ups."""
        store = self.coordinator.store
        return store.key("wakes", store.read("HGET", store.key("node", node), "incarnation").decode(), node)

    def begun(self, *names: str) -> None:
        """Wait until tasks of these names began."""
        missing = set(names)
        wait_until(
            lambda: not (missing - {stamp.name for stamp in self.stamps(what="begin")}),
            what=lambda: f"of {sorted(missing)} only {self.stamps()} began\n{self.logs()[-3000:]}",
        )

    def logs(self) -> str:
        """What the nodes said, or said since `read_logs_from_here`."""
        return "\n".join(worker.log.read_text()[self._read.get(worker.log, 0) :] for worker in self.workers)

    def read_logs_from_here(self) -> None:
        self._read = {worker.log: len(worker.log.read_text()) for worker in self.workers}

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()
        super().__exit__()


def kill_all(worker: Worker) -> None:
    """Itself, its pool, its supervisor and its maintenance: at once, so that none of them acts upon another's death."""
    with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
        every = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
        _to_all(every, signal.SIGSTOP)
        wait_until_still(*(process.pid for process in every))
        _to_all(every, signal.SIGKILL)


def _to_all(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # some end with their parent
            process.send_signal(number)


def server_seconds(fleet: Fleet) -> float:
    seconds, micro = fleet.coordinator.store._client.time()
    return float(seconds) + float(micro) / 1e6
