"""`python -m examples.demo`: the service on this machine, three small members beside it, and one live table of both."""

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event

import click
from kombu.connection import Connection
from rich.console import Console, Group
from rich.live import Live
from rich.logging import RichHandler
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coordinator import Coordinator, Job, StoreUnavailable, UnknownJob
from coordinator.scheduler.entry import next_tick, tick_id
from examples.demo.member_server import MemberServer
from tasks import instants
from tasks.app import NODELIST, coordinator
from tasks.catalog.catalog import Catalog
from tasks.documents.document import Document
from tasks.local.machine import Machine, Processes, stop_signals
from tasks.member_node.member import MemberSchedule
from tasks.nodelist.entries import MEMBER
from tasks.nodelist.xml_format import write_nodelist
from tasks.nodelist.xml_store import XmlStore
from tasks.requests import QUEUE, RefreshRequest
from tasks.schedules import lane_of
from tasks.settings import Settings

MEMBERS = (("urn:node:mnMEADOW", 10, 0.6), ("urn:node:mnRIVER", 15, 1.0), ("urn:node:mnSUMMIT", 20, 1.4))
"""Name, seconds between two synchronizations, share of the objects."""
CHANGES = 2.0
"""Changes of each member, per second."""
MARGIN = "1"
"""Seconds. No member commits late here, so changes may show soon."""
OWN = {"TASKS_DATABASE_URL": "", "TASKS_LDAP_URL": "", "TASKS_MARGIN": MARGIN}
"""These override the environment: the demo writes its members only to its own catalog and nodelist."""
LOOK = 0.25
WIDE = 116
COLOURS = {"running": "cyan", "ready": "yellow", "waiting": "yellow", "succeeded": "green", "failed": "red"}


@dataclass(frozen=True)
class Sight:
    """A member at one moment. `job`: the synchronization with the greatest fence seen so far."""

    member: str
    state: str = "-"
    job: Job | None = None
    objects: int = 0
    failed: int = 0
    last_harvested: datetime | None = None
    next_tick: datetime | None = None
    last_tick: str = ""

    @property
    def node(self) -> str:
        return self.job.node.partition("@")[0] if self.job and self.job.node else "-"

    @property
    def fence(self) -> str:
        return str(self.job.fence) if self.job and self.job.fence else "-"

    @property
    def progress(self) -> tuple[int, int]:
        return (self.job.progress if self.job else None) or (0, 0)

    @property
    def due(self) -> str:
        if self.next_tick is None:
            return "-"
        seconds = (self.next_tick - instants.now()).total_seconds()
        return f"in {seconds:.0f} s" if seconds >= 0.5 else "now"

    @property
    def harvested(self) -> str:
        return self.last_harvested.strftime("%H:%M:%S") if self.last_harvested else "never"


class Watcher:
    """Looks at the members through Redis, the catalog and the nodelist, as any tool of an operator could."""

    def __init__(self, coordinator: Coordinator, catalog: Catalog, store: XmlStore, members: Sequence[str]) -> None:
        self._coordinator, self._catalog, self._store = coordinator, catalog, store
        self.sights = [Sight(member) for member in members]

    def look(self) -> list[Sight]:
        """Look once. Parts that cannot be seen now stay as they were."""
        for position, sight in enumerate(self.sights):
            self.sights[position] = self._stored(sight)
        try:
            self.sights = [self._coordinated(sight) for sight in self.sights]
        except StoreUnavailable:
            self.sights = [replace(sight, state="no Redis") for sight in self.sights]
        return self.sights

    def _stored(self, sight: Sight) -> Sight:
        summary = self._catalog.summary(sight.member)
        state = self._store.read_one(sight.member)
        until = state.listed.member.harvested_until if state else instants.NEVER
        return replace(
            sight,
            objects=summary.objects,
            failed=summary.failed,
            last_harvested=until if until > instants.NEVER else None,
        )

    def _coordinated(self, sight: Sight) -> Sight:
        """Look at the member's jobs. A job may begin and end between two looks; the id of its tick still finds it."""
        key = lane_of(sight.member)
        due = next_tick(self._coordinator.store, key)
        passed = sight.next_tick is not None and due != sight.next_tick
        last = tick_id(key, sight.next_tick) if passed and sight.next_tick else sight.last_tick
        first = self._coordinator.lane(key, 1).jobs
        found = [self._job(job_id) for job_id in (*first, last, sight.job.id if sight.job else "")]
        newest = max((job for job in found if job), key=lambda job: job.fence or 0, default=sight.job)
        shown = found[0] if first and found[0] else newest
        return replace(sight, state=shown.state if shown else "-", job=newest, next_tick=due, last_tick=last)

    def _job(self, job_id: str) -> Job | None:
        try:
            return self._coordinator.job(job_id) if job_id else None
        except UnknownJob:
            return None


def run(data: Path | None, flower: int | None, objects: int, seconds: float | None) -> bool:
    """Run until a signal, or for `seconds`. False where a member was never harvested."""
    _refuse_an_installation()
    console = Console()
    handlers = [RichHandler(console=console, show_path=False)]
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=handlers, force=True)
    with stop_signals() as stop, ExitStack() as stack:
        where = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coordinator-demo-")))
        servers = [stack.enter_context(server) for server in _servers(objects)]
        own = OWN | {"TASKS_NODELIST_PATH": str(where.absolute() / "nodelist.xml")}
        settings = Settings.from_environment(os.environ | own, data_dir=where.absolute())
        store = XmlStore(settings.nodelist)
        with _document(servers) as document:
            store.replacement(document)
        wanted = Processes(where.absolute(), flower=flower)
        machine = stack.enter_context(Machine(wanted, extra=own))
        names = [server.member.identifier for server in servers]
        watcher = Watcher(machine.coordinator, Catalog(settings), store, names)
        for line in machine.announcement():
            console.print(line, highlight=False, soft_wrap=True)
        for warning in machine.warnings():
            console.print(f"warning: {warning}", style="yellow", soft_wrap=True)
        _ask_for_all(machine, servers)
        began = time.monotonic()
        _show(console, machine, watcher, stop, seconds)
        sights = watcher.look()
        _sum_up(console, sights, time.monotonic() - began)
        console.print("stopping ...")
    return all(sight.last_harvested for sight in sights)


def _refuse_an_installation() -> None:
    """Do not run on a Redis in real use: its nodes would take the demo's members for their new nodelist."""
    if not os.environ.get("COORDINATOR_URL"):
        return
    entries = Document(coordinator.store, NODELIST).fetch().entries(MEMBER)
    if entries.keys() - {MEMBER + name for name, *_ in MEMBERS}:
        raise click.ClickException(
            f"{coordinator.store.where} (COORDINATOR_URL) has the nodelist of an installation, which the demo would "
            "replace. Unset COORDINATOR_URL, or set COORDINATOR_PREFIX to a name for another installation"
        )


def _servers(objects: int) -> Iterator[MemberServer]:
    """Yield the members' servers, before they serve."""
    for name, every, share in MEMBERS:
        schedule = MemberSchedule(sec=f"0/{every}", min="*", hour="*", mday="*", mon="*", wday="?", year="*")
        server = MemberServer(name, schedule=schedule)
        server.fill(max(1, round(objects * share)), step=timedelta(seconds=30))
        server.keep_changing(CHANGES)
        yield server


@contextmanager
def _document(servers: Sequence[MemberServer]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "nodelist.xml")
        path.write_bytes(write_nodelist([server.member for server in servers]))
        yield path


def _ask_for_all(machine: Machine, servers: Sequence[MemberServer]) -> None:
    """Ask for every member now, rather than wait for the first tick. Any client of the broker may do so."""
    with Connection(machine.environ["CELERY_BROKER_URL"]) as connection, connection.Producer() as producer:
        for server in servers:
            request = RefreshRequest(member=server.member.identifier, reason="the demo begins")
            producer.publish(request.model_dump(exclude_none=True), exchange="", routing_key=QUEUE, serializer="json")


def _show(console: Console, machine: Machine, watcher: Watcher, stop: Event, seconds: float | None) -> None:
    began, told = time.monotonic(), dict[str, str]()
    with ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, auto_refresh=False, transient=True))
        while not stop.wait(LOOK) and (seconds is None or time.monotonic() - began < seconds):
            machine.step()
            sights = watcher.look()
            if live:
                live.update(_picture(sights, machine, console.width, time.monotonic() - began), refresh=True)
                continue
            for sight in sights:
                if told.get(sight.member) != (line := _line(sight)):
                    told[sight.member] = line
                    console.print(f"{time.monotonic() - began:6.1f} s  {line}", highlight=False, soft_wrap=True)


def _picture(sights: Sequence[Sight], machine: Machine, width: int, elapsed: float) -> Group:
    nodes = ", ".join(name.partition("@")[0] for name in machine.nodes()) or "none yet"
    below = f"{elapsed:.0f} s; nodes alive: {nodes}; each member keeps changing; Ctrl-C ends the demo"
    return Group(_table(sights, width), Text(below, style="dim"))


def _table(sights: Sequence[Sight], width: int) -> Table:
    wide = width >= WIDE
    table = Table(box=None, padding=(0, 2 if wide else 1, 0, 0))
    for head in ("member", "state", "progress", "objects", "harvested", "next", "on", "fence"):
        table.add_column(head, justify="right" if head in ("objects", "fence") else "left", no_wrap=True)
    for sight in sights:
        table.add_row(
            sight.member.removeprefix("urn:node:"),
            Text(sight.state, style=COLOURS.get(sight.state, "")),
            _bar(sight, 20 if wide else 8),
            f"{sight.objects}" + (f" ({sight.failed} failed)" if sight.failed else ""),
            sight.harvested,
            sight.due,
            sight.node,
            sight.fence if wide or len(sight.fence) < 9 else f"…{sight.fence[-8:]}",
        )
    return table


def _bar(sight: Sight, width: int) -> Table:
    done, total = sight.progress
    if sight.state == "succeeded":
        done = total
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=width)
    grid.add_column(width=9)
    grid.add_row(ProgressBar(total=max(total, 1), completed=done, width=width), f"{done}/{total}" if total else "")
    return grid


def _line(sight: Sight) -> str:
    """The line of a member, printed when it changes. It shows the progress of a running job in quarters."""
    done, total = sight.progress
    course = f" {4 * done // total * 25} %" if sight.state == "running" and total else ""
    return (
        f"{sight.member}  {sight.state}{course}  {sight.objects if sight.state != 'running' else '…'} objects  "
        f"last harvested {sight.harvested}  on {sight.node}  fence {sight.fence}"
    )


def _sum_up(console: Console, sights: Sequence[Sight], elapsed: float) -> None:
    missing = [sight.member for sight in sights if not sight.last_harvested]
    total = sum(sight.objects for sight in sights)
    text = f"{total} objects of {len(sights)} members in {elapsed:.0f} s"
    text += f"; never harvested: {', '.join(missing)}" if missing else ""
    console.print(_table(sights, console.width))
    console.print(text, highlight=False, soft_wrap=True)
