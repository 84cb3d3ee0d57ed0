"""A grid of batches and events, as a terminal of any width shows it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tasks.batches import ItemEvent
from tasks.batches.values import STOPPED

SUCCESS, FAILURE = "✓", "✗"
STYLES = {SUCCESS: "green", FAILURE: "bold red"}
LABEL, NARROWEST = "batch", 3
"""Columns of a cell: enough for a mark, and for the name of a node such as cn1."""


@dataclass(frozen=True)
class Row:
    """A batch. `outcomes`: the newest event of each type; `working`: the node that makes the event of a type now."""

    item: str
    outcomes: Mapping[str, ItemEvent] = field(default_factory=dict)
    working: Mapping[str, str] = field(default_factory=dict)

    def mark(self, event: str) -> str:
        if event in self.working:
            return self.working[event].partition("@")[0]
        if event not in self.outcomes:
            return ""
        return SUCCESS if self.outcomes[event].success else FAILURE

    @property
    def failed(self) -> list[str]:
        return [event for event, outcome in self.outcomes.items() if not outcome.success]

    @property
    def stopped(self) -> bool:
        return STOPPED in self.outcomes

    def has(self, event: str) -> bool:
        return event in self.outcomes and self.outcomes[event].success


def grid(rows: Sequence[Row], events: Sequence[str], width: int, height: int, last: str) -> Group:
    """No larger than said. Where not all batches have a line, those that have `last` lose theirs first."""
    events = [*events, *([STOPPED] if any(row.stopped for row in rows) else [])]
    label = max(len(LABEL), *(len(row.item) for row in rows), 0)
    widths = _widths(events, width - label - len(events))
    heads = [_head(event, each) for event, each in zip(events, widths, strict=True)]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(LABEL, no_wrap=True, vertical="bottom")
    for head, each in zip(heads, widths, strict=True):
        table.add_column(head, no_wrap=True, justify="left", width=each)
    shown, left_out = _fitting(rows, height - max((head.count("\n") for head in heads), default=0) - 1, last)
    for row in shown:
        style = "dim" if row.stopped else "red" if row.failed else ""
        cells = (_cell(row, event, each) for event, each in zip(events, widths, strict=True))
        table.add_row(Text(row.item, style=style), *cells)
    return Group(table, *([Text(f"and {left_out} more", style="dim")] if left_out else []))


def _widths(events: Sequence[str], room: int) -> list[int]:
    """Columns for each event, as many as its longest word has, or as its share of the room allows."""
    needs = [max(NARROWEST, *map(len, event.split("_"))) for event in events]
    widths = [NARROWEST] * len(events)
    while sum(widths) < room and widths != needs:
        for number, need in enumerate(needs):
            widths[number] += widths[number] < need and sum(widths) < room
    return widths


def _head(event: str, width: int) -> str:
    """The words of an event's type, one below the other, as much of each as fits."""
    return "\n".join(word[:width] for word in event.split("_"))


def _cell(row: Row, event: str, width: int) -> Text:
    mark = row.mark(event)
    return Text(mark[:width], style=STYLES.get(mark, "cyan"))


def _fitting(rows: Sequence[Row], lines: int, last: str) -> tuple[list[Row], int]:
    """The rows that have a line, in their order, and the number of the others."""
    if len(rows) <= lines:
        return list(rows), 0
    urgent = sorted(range(len(rows)), key=lambda at: (rows[at].has(last), at))[: max(1, lines - 1)]
    return [rows[at] for at in sorted(urgent)], len(rows) - len(urgent)


def tally(rows: Iterable[Row], last: str) -> str:
    """How many batches have arrived, and how many have failed."""
    rows = list(rows)
    arrived, failed = sum(row.has(last) for row in rows), sum(bool(row.failed) for row in rows)
    return f"{arrived} of {len(rows)} batches have {last}; {failed} failed"
