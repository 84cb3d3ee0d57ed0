"""Fleets of the tests: real `celery worker` processes of the apps in `tests.apps`, each a coordinating node."""

import importlib
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil
import pytest
from celery import _state
from kombu import pools

from coordinator import Coordinator
from tests.servers import RedisServer
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent


class Stamp(NamedTuple):
    """A line of what the tasks did; `at` is Redis's clock in µs."""

    name: str
    what: str
    at: int
    attempt: int
    fence: int


class Worker:
    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    def warden(self) -> psutil.Process:
        return self.wardens()[0]

    def wardens(self) -> list[psutil.Process]:
        """One, or none while it is started again."""
        return [child for child in self._children() if _is_warden(child)]

    def children(self) -> list[psutil.Process]:
        """Its pool processes."""
        return [child for child in self._children() if not _is_warden(child)]

    def _children(self) -> list[psutil.Process]:
        found = psutil.Process(self.pid).children()
        return [child for child in found if child.status() != psutil.STATUS_ZOMBIE]

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process.poll() is None:
            everything = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
            for one in everything:
                one.kill()
        self.process.wait()


def _is_warden(process: psutil.Process) -> bool:
    """Not one that has ended since it was seen."""
    with suppress(psutil.NoSuchProcess):
        return "coordinator.companion" in process.cmdline()
    return False


class Fleet:
    """`worker(...)` starts a node; `coordinator` is the app's in this process; `settings` reach every node."""

    def __init__(self, server: RedisServer, prefix: str, directory: Path, **settings: Any) -> None:
        self.server = server
        self.prefix = prefix
        self.directory = directory
        self.workers: list[Worker] = []
        self.environ = {
            "TEST_BROKER": server.url(1),
            "TEST_BACKEND": server.url(2),
            "TEST_LOG": server.url(3),
            "TEST_PREFIX": prefix,
            "COORDINATOR_URL": server.url(0),
            "COORDINATOR_PREFIX": prefix,
        }
        self.configure(**settings)
        self._apps: dict[str, Any] = {}
        self._before: dict[str, str | None] = {}

    def configure(self, **settings: Any) -> None:
        self.environ |= {f"COORDINATOR_{name.upper()}": str(value) for name, value in settings.items()}

    @property
    def shop(self) -> Any:
        return self.app("shop")

    @property
    def depot(self) -> Any:
        return self.app("depot")

    def app(self, name: str) -> Any:
        """The module tests.apps.<name>, imported anew with this fleet's environment."""
        if name not in self._apps:
            for variable in self.environ:
                self._before.setdefault(variable, os.environ.get(variable))
            os.environ.update(self.environ)
            sys.modules.pop(f"tests.apps.{name}", None)
            # Celery shares each app's tasks with all later apps of the process: not with the next test's.
            shared = set(_state._on_app_finalizers)
            self._apps[name] = importlib.import_module(f"tests.apps.{name}")
            _state._on_app_finalizers = shared
            with pytest.MonkeyPatch.context() as patch:  # patient with a loaded machine, unlike its nodes
                patch.setenv("COORDINATOR_TIMEOUT", self.environ.get("COORDINATOR_TIMEOUT", "10"))
                assert self._apps[name].coordinator.settings
        return self._apps[name]

    @property
    def coordinator(self) -> Coordinator:
        return self.shop.coordinator  # type: ignore[no-any-return]

    def worker(
        self,
        name: str = "one",
        concurrency: int = 2,
        *options: str,
        pool: str = "prefork",
        app: str = "shop",
        ready: bool = True,
        **environ: str,
    ) -> Worker:
        """Start a node and wait until it is registered; `environ`: further variables of this node alone."""
        log = self.directory / f"{name}-{len(self.workers)}.log"
        argv = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            f"tests.apps.{app}",
            "worker",
            "-n",
            f"{name}@test",
            "-c",
            str(concurrency),
        ]
        argv += ["-P", pool, "-l", "INFO", "--without-mingle", "--without-gossip", "--without-heartbeat", *options]
        with log.open("wb") as out:
            process = subprocess.Popen(
                argv, stdout=out, stderr=out, cwd=ROOT, start_new_session=True, env=os.environ | self.environ | environ
            )
        worker = Worker(f"{name}@test", process, log)
        self.workers.append(worker)
        if ready:
            wait_until(lambda: worker.name in self.nodes(), 30, lambda: f"{name} is not up:\n{log.read_text()[-3000:]}")
        return worker

    def nodes(self) -> list[str]:
        return [node.name for node in self.coordinator.nodes()]

    def stamps(self, name: str | None = None, what: str | None = None) -> list[Stamp]:
        """What the tasks did, in Redis's order."""
        with self.server.client(3) as log:
            lines = [line.rsplit(" ", 4) for line in log.lrange(f"{self.prefix}.log", 0, -1)]
        found = [Stamp(line[0], line[1], int(line[2]), int(line[3]), int(line[4])) for line in lines]
        return [stamp for stamp in found if name in (None, stamp.name) and what in (None, stamp.what)]

    def begun(self, *names: str) -> None:
        """Wait until tasks of these names began."""
        missing = set(names)
        wait_until(
            lambda: not (missing - {stamp.name for stamp in self.stamps(what="begin")}),
            20,
            lambda: f"of {sorted(missing)} only {self.stamps()} began\n{self.logs()[-3000:]}",
        )

    def go(self, name: str) -> None:
        """The depot's task `held` or `guarded` of this name may end."""
        with self.server.client(3) as client:
            client.rpush(f"{self.prefix}.go.{name}", 1)

    def logs(self) -> str:
        return "\n".join(worker.log.read_text() for worker in self.workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()
        for module in self._apps.values():
            module.coordinator.store.close()
            module.app.backend.client.close()
            module.app.close()
        pools.reset()  # open sockets would be found by whichever test runs when they are collected
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def kill_all(worker: Worker) -> None:
    """Itself, its pool and its warden."""
    for process in [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]:
        process.kill()


def server_seconds(fleet: Fleet) -> float:
    seconds, micro = fleet.coordinator.store.client.time()
    return float(seconds) + float(micro) / 1e6
