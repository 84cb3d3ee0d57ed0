"""`python -m examples.demo --batches`: deliveries of scanned pages go through the example's pipeline, in one live grid.

Two of them have a defect. Once all others have arrived, the demo mends those two and restarts them, as the scanning
firm and an operator would.
"""

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import click
from rich.console import Console, Group
from rich.live import Live
from rich.logging import RichHandler
from rich.text import Text

from coordinator import Coordinator, StoreUnavailable
from examples.batches.deliver import deliver, items, mend
from examples.batches.place import Place
from examples.batches.stages import APPROVED, RECEIVED, STAGES
from examples.demo.grid import Row, grid, tally
from tasks.batches import ItemConditions, ItemConflict, Items
from tasks.batches.deliveries import Deliveries
from tasks.batches.items import newest
from tasks.batches.repair import Repair
from tasks.local.machine import Machine, Processes, stop_signals
from tasks.nodelist.xml_format import write_nodelist
from tasks.settings import Settings

BATCHES, PAGES = 20, 6
DEFECTS = {3: "checksum", 7: "missing"}
"""By the number of the delivery, from 1 on."""
DELIVERED_EVERY = 0.4
ARRIVED, MENDED_FROM = "Manual_QA_Flagged", "Metadata_Archived"
EVENTS = (RECEIVED, *(stage.event for stage in STAGES), APPROVED)
OWN = {
    "TASKS_DATABASE_URL": "",
    "TASKS_LDAP_URL": "",
    "TASKS_COMPONENTS": "examples.batches.pipeline",
    "BATCHES_EVERY": "1",
    "BATCHES_PATIENCE": "10",
}
"""These override the environment: the demo keeps to its own folder, and it does not wait for a minute."""
LOOK = 0.5


class Firm:
    """Scans and delivers one batch after another. It mends a batch that comes back."""

    def __init__(self, folder: Path, batches: int) -> None:
        self._folder = folder
        self._left = list(enumerate(items(batches), 1))
        self._due = 0.0

    @property
    def has_delivered_all(self) -> bool:
        return not self._left

    def step(self) -> None:
        if self._left and time.monotonic() >= self._due:
            number, item = self._left.pop(0)
            deliver(self._folder, item, PAGES, DEFECTS.get(number))
            self._due = time.monotonic() + DELIVERED_EVERY

    def mend(self, item: str) -> None:
        mend(self._folder / item, PAGES)


class Watcher:
    """Looks at the batches through the store and the lanes, as any tool of an operator could."""

    def __init__(self, items: Items, coordinator: Coordinator) -> None:
        self._items, self._coordinator = items, coordinator
        self._events = {stage.component: stage.event for stage in STAGES}
        self.rows: list[Row] = []

    def look(self) -> list[Row]:
        working = self._working()
        found = self._items.query(ItemConditions()).items
        self.rows = [Row(one.id, newest(self._items.events(one.id)), working.get(one.id, {})) for one in found]
        return self.rows

    def at_work(self, item: str) -> str | None:
        """As a repair asks, before it changes the item."""
        return ", ".join(f"{node} makes {event}" for event, node in self._working().get(item, {}).items()) or None

    def _working(self) -> dict[str, dict[str, str]]:
        """The node that works on each item for each event: a child stands in the lane of its component and item."""
        found: dict[str, dict[str, str]] = {}
        with suppress(StoreUnavailable):
            for lane in self._coordinator.lanes(state="running"):
                component, _, item = lane.key.partition("/")
                if component in self._events and item and lane.holders:
                    found.setdefault(item, {})[self._events[component]] = lane.holders[0].node or ""
        return found


class Operator:
    """Sends back what failed, once all else has arrived, and restarts it when it was mended."""

    def __init__(self, items: Items, firm: Firm, watcher: Watcher, console: Console) -> None:
        self._firm, self._console = firm, console
        comes_from = {stage.event: frozenset(stage.past) for stage in STAGES}
        self._repair = Repair(items, comes_from, watcher.at_work, by="the demo", why="it was mended")
        self._mended: set[str] = set()
        self._said = False

    def step(self, rows: Sequence[Row]) -> None:
        if not self._said and self._firm.has_delivered_all and rows and all(row.has(ARRIVED) for row in rows):
            self._said = True
            batch = rows[0].item.partition("-")[0]
            self._say(f"All have arrived. As in `look`, approve one: coordinator items approve {batch} --why TEXT")
        failed = [row for row in rows if row.failed and row.item not in self._mended]
        if failed and self._firm.has_delivered_all and all(row.has(ARRIVED) for row in rows if row not in failed):
            for row in failed:
                self._firm.mend(row.item)
                with suppress(ItemConflict):  # somebody works on it now, or another terminal was faster
                    self._repair.restart(row.item, MENDED_FROM)
                self._mended.add(row.item)
                why = next(one.description for one in row.outcomes[row.failed[0]].report.failures)
                self._say(f"{row.item} failed in {row.failed[0]} ({why}): mended, and restarted from {MENDED_FROM}")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=not self._console.is_terminal)


@dataclass(frozen=True)
class Story:
    """All that happens beside the nodes."""

    firm: Firm
    deliveries: Deliveries
    operator: Operator

    def step(self, rows: Sequence[Row]) -> None:
        self.firm.step()
        self.deliveries.step()
        self.operator.step(rows)


def run(data: Path | None, flower: int | None, seconds: float | None) -> bool:
    """Run until a signal, or for `seconds`. False where a batch has not arrived."""
    if os.environ.get("COORDINATOR_URL"):
        raise click.ClickException("the demo of batches has a Redis of its own: unset COORDINATOR_URL")
    console = Console()
    handlers = [RichHandler(console=console, show_path=False)]
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=handlers, force=True)
    with stop_signals() as stop, ExitStack() as stack:
        where = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coordinator-demo-")))
        where = where.absolute()
        own = OWN | {"TASKS_NODELIST_PATH": str(where / "no-members.xml")}
        settings = Settings.from_environment(os.environ | own, data_dir=where)
        where.mkdir(parents=True, exist_ok=True)
        settings.nodelist.write_bytes(write_nodelist([]))
        store = Items(settings)
        machine = stack.enter_context(Machine(Processes(where, nodes=3, beats=1, flower=flower), extra=own))
        for line in machine.announcement():
            console.print(line, highlight=False, soft_wrap=True)
        console.print("Ctrl-C ends the demo")
        folder = Place(where / "batches").deliveries
        folder.mkdir(parents=True, exist_ok=True)
        firm = Firm(folder, BATCHES)
        watcher = Watcher(store, machine.coordinator)
        began = time.monotonic()
        story = Story(firm, Deliveries(store, folder), Operator(store, firm, watcher, console))
        _show(console, machine, watcher, story, stop, seconds)
        rows = watcher.look()
        _sum_up(console, rows, time.monotonic() - began)
        console.print("stopping ...")
    return firm.has_delivered_all and all(row.has(ARRIVED) for row in rows)


def _show(
    console: Console,
    machine: Machine,
    watcher: Watcher,
    story: Story,
    stop: Event,
    seconds: float | None,
) -> None:
    began, told = time.monotonic(), dict[str, Mapping[str, object]]()
    with ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, auto_refresh=False, transient=True))
        while not stop.wait(LOOK) and (seconds is None or time.monotonic() - began < seconds):
            machine.step()
            rows = watcher.look()
            if machine.nodes():
                story.step(rows)
            if live:
                live.update(_picture(rows, machine, console, time.monotonic() - began), refresh=True)
                continue
            changed = [row for row in rows if told.get(row.item) != row.outcomes]
            lines = [f"{row.item}  {'  '.join(_news(row, told.get(row.item, {})))}" for row in changed]
            for line in [*lines, *([tally(rows, ARRIVED)] if lines else [])]:
                console.print(f"{time.monotonic() - began:6.1f} s  {line}", highlight=False, soft_wrap=True)
            told |= {row.item: row.outcomes for row in changed}


def _picture(rows: Sequence[Row], machine: Machine, console: Console, elapsed: float) -> Group:
    nodes = ", ".join(name.partition("@")[0] for name in machine.nodes()) or "none yet"
    below = f"{tally(rows, ARRIVED)}; {elapsed:.0f} s; nodes: {nodes}"
    lines = -(-len(below) // console.width)
    return Group(grid(rows, EVENTS, console.width, console.height - lines - 1, ARRIVED), Text(below, style="dim"))


def _news(row: Row, told: Mapping[str, object]) -> Iterator[str]:
    """A word for each event that is new, or another one than before."""
    for event in dict.fromkeys([*row.outcomes, *told]):
        if row.outcomes.get(event) != told.get(event):
            yield f"{event} {row.mark(event) or 'again'}"


def _sum_up(console: Console, rows: Sequence[Row], elapsed: float) -> None:
    console.print(grid(rows, EVENTS, console.width, len(rows) + 10, ARRIVED))
    console.print(f"{tally(rows, ARRIVED)}, in {elapsed:.0f} s", highlight=False, soft_wrap=True)
