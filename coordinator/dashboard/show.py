"""How templates show values: addresses, instants, spans and JSON. Every text passes through Jinja's escaping."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import pairwise
from urllib.parse import urlencode

from markupsafe import Markup, escape

from coordinator.diagnosis.cause import Cause, Why
from coordinator.jobs.record import Job
from coordinator.jobs.validation import shown_lane
from coordinator.store.times import instant, moment, span_text
from coordinator.store.values import ActNote

root: ContextVar[str] = ContextVar("coordinator_root", default="")
"""The path at which the dashboard stands in the app around it."""

MOST_TEXT = 4000  # characters of one value that a page shows
_JUST = 5.0  # seconds
_FAR = 100 * 86400.0  # seconds; then the date says more
_UTC = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z)")
_ENDS = re.compile(r"(?<=[._/@-])")
_CELL = re.compile(r"<t[dh](?= |>)")
_TRIED = frozenset({"raised", "timed_out", "lost", "conflict", "stopped", "handed"})


def url(path: str, **values: object) -> str:
    """The address of one of our pages; values that are empty are left out."""
    given = [(name, str(value)) for name, value in values.items() if value not in (None, "")]
    return root.get() + path + (f"?{urlencode(given)}" if given else "")


def at(when: datetime | int | None) -> Markup:
    """An instant in UTC, which the page shows in the viewer's time zone; a number is ms since the epoch."""
    when = instant(when) if isinstance(when, int) else when
    if when is None:
        return Markup("–")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(when.isoformat(), moment(when), moment(when))


def _since(when: datetime | int | None, past: str, now: str = "") -> Markup:
    """How far an instant is; the instant itself stands in the title. `now`: for one that has just passed."""
    when = instant(when) if isinstance(when, int) else when
    if when is None:
        return Markup("–")
    seconds = (datetime.now(UTC) - when).total_seconds()
    text = past.format(span_text(seconds)) if seconds >= 0 else f"in {span_text(-seconds)}"
    text = now if now and 0 <= seconds < _JUST else f"{when:%F}" if abs(seconds) > _FAR else text
    return Markup('<time class="ago" datetime="{}" title="{}">{}</time>').format(when.isoformat(), moment(when), text)


def ago(when: datetime | int | None) -> Markup:
    return _since(when, "{} ago")


def age(when: datetime | int | None) -> Markup:
    return _since(when, "{}")


def due(when: datetime | int | None) -> Markup:
    """When something is to come; it may be late."""
    return _since(when, "overdue by {}", "now")


def timed(text: str | Markup) -> Markup:
    """A sentence: instants in it, which are UTC, become those of the viewer's time zone."""
    parts = _UTC.split(str(text)) if not isinstance(text, Markup) else [text]
    return Markup("").join(at(datetime.fromisoformat(one)) if _UTC.fullmatch(one) else one for one in parts)


def span(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if 0 <= seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else span_text(seconds)


def many(number: int | None, most: int | None = None) -> str:
    """A number for people: 12,345; 10,000+ where it was counted no further."""
    return "–" if number is None else f"{number:,}" + ("+" if most is not None and number >= most else "")


def shown(value: object) -> str:
    """A value as text, whatever it is; at most 4,000 characters of it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}… ({len(text):,} characters)"


def by(act: ActNote | Mapping[str, object] | None) -> Markup:
    """Who did it, when and why."""
    if not act:
        return Markup("")
    why = act.get("why") or "no reason given"
    when = act.get("at")
    return escape(f"by {act.get('by', 'unknown')}: {why}, ") + (ago(when) if isinstance(when, int) else Markup(""))


def chain(why: Why) -> list[tuple[int, str, str, list[Cause]]]:
    """The things of an answer, from the one that was asked about to the roots: depth, kind, name, causes."""
    depth, things = depths(why), dict[str, list[Cause]]()
    for cause in why.causes:
        things.setdefault(cause.thing, []).append(cause)
    return [(depth.get(thing, 1), *_kind_and_name(thing), causes) for thing, causes in things.items()]


def depths(why: Why) -> dict[str, int]:
    """How many causes lie between each thing of an answer and the one that was asked about; at most 5."""
    depth = {why.thing: 0}
    for cause in why.causes:
        for other in cause.of:
            depth.setdefault(other, min(depth.get(cause.thing, 1) + 1, 5))
    return depth


def _kind_and_name(thing: str) -> tuple[str, str]:
    kind, _, name = thing.partition(" ")
    return kind, name


def linked(text: str, why: Why, thing: str = "") -> Markup:
    """A sentence of an answer: the jobs in it are links, and the thing of which it speaks is left out."""
    found = {name for one in (*depths(why), thing) for kind, name in (_kind_and_name(one),) if kind == "job"}
    parts = [text.removeprefix(f"{thing} ")]
    for name in found:
        parts = [part for text in parts for part in re.split(f"({re.escape(name)})", text)]
    return Markup("").join(job_link(one) if one in found else timed(one) for one in parts)


def job_link(job_id: str, text: str = "") -> Markup:
    link = Markup('<a class="id" href="{}" title="{}">{}</a>')
    return link.format(url("/job", id=job_id), job_id, text or short(job_id))


def plain(text: str) -> str:
    """A text as JSON has it: without the links that a page may have in it."""
    return text.striptags() if isinstance(text, Markup) else text


def short(name: str) -> str:
    return name if len(name) < 20 else f"{name[:8]}…"


def breakable(name: str) -> Markup:
    """A long name, which may go on in the next line behind a dot, a dash and the like."""
    return Markup("<wbr>").join(_ENDS.split(name) if len(name) > 20 else [name])


def labelled(rows: str, heads: Sequence[str]) -> Markup:
    """The rows of a table; each cell names the head of its column, which a telephone shows beside it."""
    names = [Markup(head.lstrip("-=")).striptags() for head in heads]

    def row(text: str) -> str:
        left = iter(names)
        return _CELL.sub(lambda cell: f'{cell[0]} data-head="{escape(next(left, ""))}"', text)

    return Markup("<tr".join(map(row, str(rows).split("<tr"))))


def parts(so_far: Mapping[str, float]) -> list[tuple[str, float, str]]:
    """The times of an answer as the parts of a bar: the last word of `running.job` or `waiting.lane` is no state."""
    return [(code.partition(".")[0], seconds, f"{code} {span(seconds)}") for code, seconds in so_far.items()]


def runs(run: Job) -> list[tuple[str, float, str]]:
    """A job that is over, as the parts of a bar: waited in line and for a slot, ran, waited to run again."""
    spans, kind, word = [], "waiting", "waited in line"
    for event, after in pairwise(run.course):
        if event.what == "ready":
            kind, word = "ready", "waited for a slot"
        elif event.what == "running":
            kind = "failed" if after.what in _TRIED else run.state
            word = f"attempt {event.attempt or 1}, {after.what.replace('_', ' ')}"
        elif event.what in _TRIED:
            kind, word = "retrying", "waited for its next attempt"
        elif event.what in ("parked", "held"):
            kind, word = event.what, event.what
        if (seconds := (after.at - event.at).total_seconds()) > 0:
            spans.append((kind, seconds, f"{word}: {span(seconds)}"))
    return spans


FILTERS: dict[str, Callable[..., object]] = {
    "age": age, "ago": ago, "at": at, "breakable": breakable, "by": by, "chain": chain, "due": due,
    "labelled": labelled, "lane": shown_lane, "linked": linked,
    "many": many, "parts": parts, "runs": runs, "short": short, "shown": shown, "span": span, "timed": timed,
}  # fmt: skip
