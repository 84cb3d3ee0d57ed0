"""The service of the tests: workers of `tasks`, member nodes on loopback, a Redis and a catalog of their own."""

import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

import psutil
from kombu import Connection

from coordinator import Coordinator, Job, UnknownJob
from coordinator.inbox.as_it_is import request_queue
from examples.demo.member_server import MemberServer
from tasks.catalog.catalog import Catalog
from tasks.nodelist.xml_format import write_nodelist
from tasks.nodelist.xml_store import XmlStore
from tasks.settings import Settings
from tests.harness.command import ROOT, Done, called, environment
from tests.harness.leftovers import leftovers
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import Process, python, start

QUEUE = "coordinator.refresh"


class Service:
    """`coordinator` is a plain client; `catalog` and `nodelist` are read beside the workers."""

    def __init__(self, redis: RedisServer, folder: Path, members: Iterable[MemberServer], **settings: str) -> None:
        self.redis = redis
        self.folder = folder
        self.settings = Settings(data_dir=folder, database_url=settings.get("TASKS_DATABASE_URL", ""))
        self.settings.nodelist.write_bytes(write_nodelist([server.member for server in members]))
        self.environ = {
            "COORDINATOR_URL": redis.url(0),
            "CELERY_BROKER_URL": redis.url(1),
            "TASKS_DATA_DIR": str(folder),
            "TASKS_REPLICA_DIR": str(folder / "replicas"),
            "TASKS_TRY_PAUSE": "0.01",
        } | settings
        self.coordinator = Coordinator(url=redis.url(0))
        self.catalog = Catalog(self.settings)
        self.nodelist = XmlStore(self.settings.nodelist)
        self._processes: list[Process] = []

    def node(
        self, name: str, concurrency: int = 2, *, queue: str = "celery", launcher: Sequence[str] = (), **environ: str
    ) -> psutil.Process:
        """Start a coordinating node and wait until it is registered; `launcher`: a command that starts it."""
        argv = ["-m", "celery", "-A", "tasks", "worker", "-n", f"{name}@test", "-c", str(concurrency), "-l", "INFO"]
        argv += ["-Q", queue] if queue != "celery" else []
        with (self.folder / f"{name}.log").open("wb") as log:
            process = begun(argv, launcher, environment(**self.environ | environ), log)
        self._processes.append(process)
        wait_until(
            lambda: f"{name}@test" in [node.name for node in self.coordinator.nodes()], 30, lambda: self.log(name)
        )
        return psutil.Process(process.pid)

    def beat(self) -> None:
        argv = ["-m", "celery", "-A", "tasks", "beat", "--pidfile=", "-S", "coordinator.scheduler.Scheduler"]
        with (self.folder / "beat.log").open("wb") as log:
            self._processes.append(begun(argv, (), environment(**self.environ), log))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def ask(self, message: str) -> None:
        """As anybody may: text on the broker's queue."""
        if self.environ["CELERY_BROKER_URL"].startswith("redis"):
            with self.redis.client(1) as broker:
                broker.lpush(QUEUE, message)
            return
        with Connection(self.environ["CELERY_BROKER_URL"]) as connection, connection.Producer() as producer:
            given = {"content_type": "application/json", "content_encoding": "utf-8"}
            producer.publish(message, exchange="", routing_key=QUEUE, declare=[request_queue(QUEUE)], **given)

    def ended(self, job_id: str, timeout: float = 60) -> Job:
        wait_until(lambda: self.known(job_id), timeout, lambda: f"no job {job_id}")
        return self.coordinator.wait(job_id, timeout)

    def known(self, job_id: str) -> bool:
        try:
            return bool(self.coordinator.job(job_id))
        except UnknownJob:
            return False

    def call(self, *args: str, **env: str) -> Done:
        """`coordinator …`, as from another terminal."""
        return called(self.folder, self.environ | env, *args)

    def shell(self, code: str) -> str:
        """What a Python started by hand prints."""
        done = python(["-c", code], ROOT, environment(**self.environ))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def pids(self, member_id: str) -> set[str]:
        return {row["pid"] for row in self.catalog.objects(member_id, limit=10**6)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        for process in self._processes:
            if process.poll() is None:  # else a test killed it, and its pid may be another's now
                for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                    one.kill()
            process.wait()
        store = self.coordinator.store
        wait_until(lambda: not leftovers(store), what=lambda: f"keys without an owner: {leftovers(store)}")
        store.close()
        self.catalog.engine.dispose()


def maintenance_of(node: psutil.Process) -> psutil.Process:
    """The node's maintenance, which keeps the nodelist."""
    name = "coordinator.core.maintenance"
    found: list[psutil.Process] = []

    def is_there() -> bool:  # its supervisor starts it once the node is registered
        found[:] = [process for process in node.children(recursive=True) if name in process.cmdline()]
        return bool(found)

    wait_until(is_there)
    return found[0]


def fill_disk(process: psutil.Process, full: bool = True) -> None:
    """The process can write no more than ten bytes a file; or as much as before."""
    process.rlimit(resource.RLIMIT_FSIZE, (10 if full else resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def begun(argv: list[str], launcher: Sequence[str], env: dict[str, str], log: IO[bytes]) -> Process:
    """A node or a beat, in a session of its own."""
    if not launcher:
        return start(argv, ROOT, env, stdout=log, stderr=log, session=True)
    whole = [*launcher, sys.executable, *argv]
    return subprocess.Popen(whole, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True)


@contextmanager
def beat(service: Service, name: str, *, launcher: Sequence[str] = (), **environ: str) -> Iterator[psutil.Process]:
    """One beside the nodes, until the body ends."""
    argv = ["-m", "celery", "-A", "tasks", "beat", "-l", "INFO", "-s", str(service.folder / name)]
    argv += ["--pidfile", str(service.folder / f"{name}.pid")]
    with (service.folder / f"{name}.log").open("wb") as log:
        process = begun(argv, launcher, environment(**service.environ | environ), log)
    try:
        yield psutil.Process(process.pid)
    finally:
        with suppress(psutil.NoSuchProcess):  # it has ended
            for one in psutil.Process(process.pid).children(recursive=True):
                one.kill()
        process.kill()
        process.wait()
