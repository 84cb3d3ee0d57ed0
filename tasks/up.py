"""The service on one machine: Redis, coordinating nodes, beats and Flower as processes that are kept running.

Redis is an embedded one unless COORDINATOR_URL names another; then the broker is database 1 of the same server. All
that is kept lies in one directory: `redis/`, `logs/`, the catalog and the nodelist, and while it runs `environment`,
which another terminal reads (`. DIR/environment`) to talk to it.
"""

import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from types import FrameType, TracebackType
from typing import Self
from urllib.parse import urlsplit

import click
import psutil

from coordinator import Coordinator, StoreUnavailable
from coordinator.embedded import EmbeddedRedis, EmbeddedUnavailable, free_port
from coordinator.overview import warnings
from coordinator.supervisor import ChildSpec, Supervisor
from tasks.catalog import Catalog
from tasks.nodelist import Nodelist, NodelistUnreadable, XmlNodelist
from tasks.settings import Settings

ROOT = Path(__file__).parent.parent
WARDENS_TIMEOUT = 3.0  # how long what our children started may outlive them
REVIVE_PAUSE = 1.0
FLOWER_PORT = 5555

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """What is to run. `flower`: its port on loopback; None: no Flower."""

    data: Path
    nodes: int = 2
    concurrency: int = 2
    beats: int = 2
    flower: int | None = None


class Machine:
    """`with Machine(wanted) as machine: machine.run(stop)`. Main thread only, as all that is leashed."""

    def __init__(self, wanted: Wanted, extra: Mapping[str, str] | None = None) -> None:
        """`extra`: more of the children's environment."""
        self.wanted = wanted
        self._extra = extra or {}
        self._redis = None if os.environ.get("COORDINATOR_URL") else EmbeddedRedis(wanted.data / "redis")
        self._revive_at = 0.0
        self._family: list[psutil.Process] = []
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as started:
            self.wanted.data.mkdir(parents=True, exist_ok=True)
            if self._redis:
                started.enter_context(self._redis)
            started.enter_context(self._shared_environment())
            started.callback(self.coordinator.store.close)
            started.callback(self._end_family)
            self._supervisor = started.enter_context(Supervisor(self._children(), self.logs))
            self._running = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        kept = self._redis.pid if self._redis else 0
        self._family = [process for process in psutil.Process().children(recursive=True) if process.pid != kept]
        self._running.close()

    @property
    def logs(self) -> Path:
        return self.wanted.data / "logs"

    @property
    def environment_file(self) -> Path:
        return self.wanted.data / "environment"

    def run(self, stop: Event, interval: float = 0.2) -> None:
        while not stop.wait(interval):
            self.step()

    def step(self) -> None:
        """Look once after everything."""
        if self._redis and not self._redis.pid and time.monotonic() >= self._revive_at:
            self._revive(self._redis)
        self._supervisor.step()

    def nodes(self) -> list[str]:
        """The nodes that are up; none while Redis is away."""
        with suppress(StoreUnavailable):
            return [node.name for node in self.coordinator.nodes()]
        return []

    def announcement(self) -> list[str]:
        wanted, where = self.wanted, self.coordinator.store.where
        embedded = "embedded, " if self._redis else ""
        look = f". {shlex.quote(str(self.environment_file))}; {shlex.quote(sys.argv[0])} status"
        flower = f"http://127.0.0.1:{wanted.flower}" if wanted.flower else "none"
        return [
            f"Redis   {embedded}{where}",
            f"nodes   {wanted.nodes}, each with {wanted.concurrency} processes; {wanted.beats} beats",
            f"Flower  {flower}",
            f"data    {wanted.data} (logs in {self.logs.name}/)",
            f"look    {look}",
        ]

    def warnings(self) -> tuple[str, ...]:
        return warnings(self.coordinator.store)

    def _revive(self, server: EmbeddedRedis) -> None:
        logger.warning("Redis ended: starting it again; see %s", server.directory / "redis.log")
        self._revive_at = time.monotonic() + REVIVE_PAUSE
        try:
            server.start()
        except EmbeddedUnavailable as error:
            logger.error("%s", error)

    @contextmanager
    def _shared_environment(self) -> Iterator[None]:
        """What the children and other terminals need to know; the password in it is this start's only."""
        names = ("COORDINATOR_URL", "COORDINATOR_PREFIX", "CELERY_BROKER_URL")
        self.environ = {name: os.environ[name] for name in names if name in os.environ}
        self.environ |= {"TASKS_DATA_DIR": str(self.wanted.data), "COORDINATOR_APP": "tasks"}
        self.environ["COORDINATOR_REPLICA_DIR"] = str(self.wanted.data / "replicas")
        if self._redis:
            self.environ["COORDINATOR_URL"] = self._redis.url
            self.environ["CELERY_BROKER_URL"] = urlsplit(self._redis.url)._replace(path="/1").geturl()
        self.environ |= self._extra
        self.environ.setdefault("CELERY_BROKER_URL", self.environ["COORDINATOR_URL"])
        self.coordinator = Coordinator(url=self.environ["COORDINATOR_URL"])
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in self.environ.items()]
        self.environment_file.unlink(missing_ok=True)
        self.environment_file.touch(0o600)
        self.environment_file.write_text("".join(lines))
        try:
            yield
        finally:
            self.environment_file.unlink(missing_ok=True)

    def _end_family(self) -> None:
        """What our children started is waited for, since a warden puts back what its worker had; then it is ended.

        Redis is needed until then.
        """
        _, stubborn = psutil.wait_procs(self._family, timeout=WARDENS_TIMEOUT)
        for process in stubborn:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(stubborn, timeout=WARDENS_TIMEOUT)

    def _children(self) -> list[ChildSpec]:
        """In the order of their starts; nodes end last, all at once."""
        wanted = self.wanted
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        env = {**self.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}

        def child(name: str, *argv: str, first: bool, patience: float) -> ChildSpec:
            celery = (sys.executable, "-m", "celery", "-A", "tasks")
            return ChildSpec(name, (*celery, *argv), env=env, stop_timeout=patience, together=not first)

        worker = ("-c", str(wanted.concurrency), "-E", "-l", "INFO", "--without-mingle", "--without-gossip")
        children = [
            child(f"cn{n}", "worker", "-n", f"cn{n}@%h", *worker, first=n == 1, patience=4.0)
            for n in range(1, wanted.nodes + 1)
        ]
        beat = ("beat", "-S", "coordinator.scheduler.Scheduler", "-l", "INFO", "--pidfile=")
        children += [child(f"beat{n}", *beat, first=n == 1, patience=1.5) for n in range(1, wanted.beats + 1)]
        if wanted.flower:
            flower = ("flower", "--address=127.0.0.1", f"--port={wanted.flower}")
            children.append(child("flower", *flower, first=not wanted.beats, patience=1.5))
        return children


@contextmanager
def stop_signals() -> Iterator[Event]:
    """An event that is set when we are asked to end; asked once more, KeyboardInterrupt."""
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(wanted: Wanted, document: Path | None = None) -> None:
    """Until a signal; `document`: the nodelist to take over first."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", force=True)
    settings = Settings.from_environment(data_dir=wanted.data)
    if document and settings.ldap_url:
        raise click.ClickException(
            f"{settings.ldap_url} keeps the nodelist (TASKS_LDAP_URL): start without --nodelist, and then "
            f"coordinator nodelist import {document}"
        )
    _, nodelist = holdings(settings)
    if document:
        nodelist.import_file(document)
    with stop_signals() as stop, Machine(wanted) as machine:
        for line in machine.announcement():
            click.echo(line)
        for warning in (*machine.warnings(), *(() if settings.ldap_url else _misgivings(nodelist))):
            click.secho(f"warning: {warning}", fg="yellow", err=True)
        while len(machine.nodes()) < wanted.nodes and not stop.wait(0.2):
            machine.step()
        click.echo("up: Ctrl-C ends all of it")
        machine.run(stop)
        click.echo("ending all in order ...")
    click.echo("ended")


def holdings(settings: Settings) -> tuple[Catalog, Nodelist]:
    """The catalog, and the nodelist where it is a document."""
    catalog = Catalog(settings)
    return catalog, XmlNodelist(catalog.engine, settings.nodelist)


def _misgivings(nodelist: Nodelist) -> Iterator[str]:
    try:
        members = nodelist.members()
    except NodelistUnreadable as error:
        yield f"{error}: give one with coordinator nodelist import FILE"
        return
    if not any(member.synchronizable for member in members):
        yield "no member of the nodelist is to be synchronized: coordinator nodelist show says why"


def data_directory(asked: Path | None) -> Path:
    return (asked or Settings.from_environment().data_dir).absolute()


def flower_port(asked: int | None, unwanted: bool) -> int | None:
    """Where Flower can listen; None: there is to be none, or none is installed, which is said."""
    if unwanted:
        return None
    if find_spec("flower") is None:
        click.echo("no Flower: it is not installed (the extra celery-coordinator[dashboard])", err=True)
        return None
    if asked and not _is_free(asked):
        raise click.ClickException(f"port {asked} is in use: name another with --flower-port, or --no-flower")
    return asked or (FLOWER_PORT if _is_free(FLOWER_PORT) else free_port())


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
