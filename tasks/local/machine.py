"""Runs the service on one machine (`coordinator up`): starts and restarts Redis, nodes, beats and Flower.

Unless COORDINATOR_URL names a server, Redis is a child process, and the broker is its database 1. All data lie in one
directory: `redis/`, `logs/`, the catalog and the nodelist. While the service runs, the file `environment` lies there,
too: another terminal reads it (`. DIR/environment`), so that its commands reach this service.
"""

import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from coordinator.extending import Children, ChildSpec, EmbeddedRedis, EmbeddedUnavailable, is_amqp, server_findings
from tasks.broker import own_address
from tasks.catalog.catalog import Catalog
from tasks.local import environment
from tasks.nodelist.xml_store import NodelistUnreadable, XmlStore
from tasks.service import refuse_others
from tasks.settings import Settings

ROOT = Path(__file__).parents[2]
SUPERVISORS_TIMEOUT = 3.0  # seconds for which processes that a node or beat has started may outlive it
NODE_PATIENCE, BEAT_PATIENCE = 4.0, 1.5  # seconds that a node, and a beat, may take to end before it is killed
REVIVE_PAUSE = 1.0  # seconds between two attempts to start Redis again
POLL = 0.02  # seconds between two checks whether processes have ended
FLOWER_PORT = 5555

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Processes:
    """How many nodes and beats to run. `data`: the folder of all data. `concurrency`: pool processes of each node.

    `flower`: Flower's port on the loopback address; None: Flower does not run.
    """

    data: Path
    nodes: int = 2
    concurrency: int = 2
    beats: int = 2
    flower: int | None = None


class Machine:
    """Starts the processes when its `with` block begins, and ends them with it; `run` restarts processes that ended.

    Use it in the main thread only, since children die with the thread that has started them.
    """

    def __init__(
        self,
        wanted: Processes,
        extra: Mapping[str, str] | None = None,
        tell: Callable[[str], object] = lambda sentence: None,
    ) -> None:
        """`extra`: more environment variables for the processes. `tell`: called with a line before each wait."""
        self.wanted = wanted
        self._tell = tell
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
            refuse_others(self.coordinator.store, Settings.from_environment(self.environ))
            started.callback(self._end_family)
            self._children = started.enter_context(Children(self._specs(), self.logs, waits=self._waits))
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
        """Restart Redis, nodes, beats and Flower where they have ended."""
        if self._redis and not self._redis.pid and time.monotonic() >= self._revive_at:
            self._revive(self._redis)
        self._children.step()

    def nodes(self) -> list[str]:
        """The names of the live nodes; empty while Redis does not answer."""
        with suppress(StoreUnavailable):
            return [node.name for node in self.coordinator.nodes()]
        return []

    def announcement(self) -> list[str]:
        processes, where = self.wanted, self.coordinator.store.where
        embedded = "embedded, " if self._redis else ""
        look = f". {shlex.quote(str(self.environment_file))}; {shlex.quote(sys.argv[0])} status"
        flower = f"http://127.0.0.1:{processes.flower}" if processes.flower else "none"
        return [
            f"Redis   {embedded}{where}",
            f"nodes   {processes.nodes}, each with {processes.concurrency} processes; {processes.beats} beats",
            f"Flower  {flower}",
            f"data    {processes.data} (logs in {self.logs.name}/)",
            f"look    {look}",
        ]

    def warnings(self) -> tuple[str, ...]:
        findings = server_findings(self.coordinator.store)
        return tuple(f"{finding.message}: {finding.fix}" for finding in findings if finding.level != "info")

    def _revive(self, server: EmbeddedRedis) -> None:
        logger.warning("Redis has ended and is started again; see %s", server.directory / "redis.log")
        self._revive_at = time.monotonic() + REVIVE_PAUSE
        try:
            server.start()
        except EmbeddedUnavailable as error:
            logger.error("%s", error)

    @contextmanager
    def _shared_environment(self) -> Iterator[None]:
        """Within the `with` block: `self.environ`, the variables for the child processes, and the file `environment`.

        The password of an embedded Redis, which is among them, is made at each start.
        """
        self.environ = environment.settings_of(os.environ)
        self.environ |= {"TASKS_DATA_DIR": str(self.wanted.data), "COORDINATOR_APP": "tasks"}
        self.environ["TASKS_REPLICA_DIR"] = str(self.wanted.data / "replicas")
        if self._redis:
            self.environ["COORDINATOR_URL"] = self._redis.url
            if not is_amqp(self.environ.get("CELERY_BROKER_URL", self._redis.url)):
                self.environ["CELERY_BROKER_URL"] = urlsplit(self._redis.url)._replace(path="/1").geturl()
        self.environ |= self._extra
        self.environ.setdefault("CELERY_BROKER_URL", own_address(os.environ) or self.environ["COORDINATOR_URL"])
        self.coordinator = Coordinator(url=self.environ["COORDINATOR_URL"])
        environment.write(self.environment_file, self.environ)
        try:
            yield
        finally:
            self.environment_file.unlink(missing_ok=True)

    def _end_family(self) -> None:
        """Wait until the processes that nodes and beats had started have ended, then kill those that are left.

        Redis must run until then: a supervisor among these processes still puts back the jobs of its worker.
        """
        end = time.monotonic() + SUPERVISORS_TIMEOUT
        if living(self._family):
            self._tell(f"waiting for the supervisors to sign off ({SUPERVISORS_TIMEOUT:g} s at most)")
        while (left := living(self._family)) and time.monotonic() < end:
            time.sleep(POLL)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=SUPERVISORS_TIMEOUT)

    def _waits(self, names: list[str]) -> None:
        self._tell(
            f"waiting for {', '.join(names)} (jobs that run for more than {NODE_PATIENCE:g} s begin again later)"
        )

    def _specs(self) -> list[ChildSpec]:
        """The child processes in the order of their start. They are ended all at once, also nodes and beats."""
        processes = self.wanted
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        env = {**self.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}

        def child(name: str, *argv: str, patience: float) -> ChildSpec:
            celery = (sys.executable, "-m", "celery", "-A", "tasks")
            return ChildSpec(name, (*celery, *argv), env=env, stop_timeout=patience)

        worker = ("-c", str(processes.concurrency), "-E", "-l", "INFO", "--without-mingle", "--without-gossip")
        children = [
            child(f"cn{n}", "worker", "-n", f"cn{n}@%h", *worker, patience=NODE_PATIENCE)
            for n in range(1, processes.nodes + 1)
        ]
        beat = ("beat", "-S", "coordinator.scheduler.Scheduler", "-l", "INFO", "--pidfile=")
        children += [child(f"beat{n}", *beat, patience=BEAT_PATIENCE) for n in range(1, processes.beats + 1)]
        if processes.flower:
            flower = ("flower", "--address=127.0.0.1", f"--port={processes.flower}")
            children.append(child("flower", *flower, patience=BEAT_PATIENCE))
        return children


def living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes of `processes` that still run, without zombies."""
    alive = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


@contextmanager
def stop_signals() -> Iterator[Event]:
    """Within the `with` block, SIGINT, SIGTERM and SIGHUP set the event; a second signal raises KeyboardInterrupt."""
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


def run(wanted: Processes, document: Path | None = None) -> None:
    """Run the service until a signal stops it. `document`: a node-list document to import first; None: no import."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", force=True)
    environment.refuse_anothers()
    settings = Settings.from_environment(data_dir=wanted.data)
    if document and settings.ldap_url:
        raise click.ClickException(
            f"{settings.ldap_url} keeps the nodelist (TASKS_LDAP_URL). Start without --nodelist, and then run: "
            f"coordinator nodelist import {document} --why …"
        )
    Catalog(settings).engine.dispose()  # raises for a catalog that this host may not use
    store = XmlStore(settings.nodelist)
    if document:
        store.replacement(document)
    with stop_signals() as stop, Machine(wanted, tell=click.echo) as machine:
        for line in machine.announcement():
            click.echo(line)
        for warning in (*machine.warnings(), *(() if settings.ldap_url else _nodelist_warnings(store))):
            click.secho(f"warning: {warning}", fg="yellow", err=True)
        while len(machine.nodes()) < wanted.nodes and not stop.wait(0.2):
            machine.step()
        click.echo("up. Ctrl-C ends the service")
        machine.run(stop)
        click.echo("stopping ...")
    click.echo("stopped")


def _nodelist_warnings(store: XmlStore) -> Iterator[str]:
    try:
        stored = store.read()
    except NodelistUnreadable as error:
        yield str(error)
        return
    yield from (f"nodelist in {store.name}: {problem}; left out" for problem in stored.problems)
    if not any(state.listed.member.synchronizable for state in stored.states.values()):
        yield "no member of the nodelist can be synchronized: coordinator nodelist show says why"


def data_directory(chosen: Path | None) -> Path:
    return (chosen or Settings.from_environment().data_dir).absolute()


def flower_port(port: int | None, unwanted: bool) -> int | None:
    """The port for Flower: `port`, or a free one for None. Returns None if Flower is unwanted or not installed.

    Raises ClickException if `port` is in use.
    """
    if unwanted:
        return None
    if find_spec("flower") is None:
        way = "pip install 'celery-coordinator[flower,dashboard]'"
        click.echo(f"Flower does not run: it is not installed ({way})", err=True)
        return None
    if port and not _is_free(port):
        raise click.ClickException(f"port {port} is in use: choose another with --flower-port, or use --no-flower")
    return port or (FLOWER_PORT if _is_free(FLOWER_PORT) else _free_port())


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
