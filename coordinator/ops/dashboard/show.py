"""Functions by which templates show values: addresses, instants, spans and JSON. Jinja escapes every text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import pairwise
from urllib.parse import urlencode

from markupsafe import Markup, escape

from coordinator.core.jobs.record import Job
from coordinator.core.jobs.validation import shown_lane
from coordinator.core.store.times import instant, moment, span_text
from coordinator.core.store.values import ActNote
from coordinator.ops.diagnosis.cause import Cause, Why
from coordinator.ops.diagnosis.codes import called
from coordinator.ops.diagnosis.words import spent_on, spent_text
from coordinator.scheduler import zones

root: ContextVar[str] = ContextVar("coordinator_root", default="")
"""The path at which another app has mounted the dashboard; "": it is not mounted."""

MOST_TEXT = 4000  # characters of one value that a page shows
_JUST = 5.0  # seconds for which a past instant counts as now
_FAR = 100 * 86400.0  # seconds; an instant that is further away is shown as a date
_UTC = re.compile(r"(?<![\w@])((?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z)")
_JOB = re.compile(r"job (\S+?)(?=,? )")
CUT = "…"
_CHANCE = re.compile(r"[0-9a-f-]{24,}")
_ENDS = re.compile(r"(?<=[._/@-])")
_CELL = re.compile(r"<t[dh](?= |>)")
_TRIED = frozenset({"raised", "timed_out", "lost", "conflict", "cooled_down", "stopped", "handed"})


def url(path: str, **values: object) -> str:
    """Return the address of a page of the dashboard, with these values in the URL; empty values are left out. A name
    with several values is repeated."""
    pairs = [(name, one) for name, value in values.items() for one in _each(value)]
    given = [(name, str(value)) for name, value in pairs if value not in (None, "")]
    return root.get() + path + (f"?{urlencode(given)}" if given else "")


def _each(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else [value]


def at(when: datetime | int | None) -> Markup:
    """Return an instant as HTML in UTC; in the browser, a script changes it to the viewer's zone. `when`: a number
    is ms since the epoch.
    """
    when = instant(when) if isinstance(when, int) else when
    if when is None:
        return Markup("–")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(when.isoformat(), moment(when), moment(when))


def dated(when: datetime | None) -> Markup:
    """Return an instant as `at` does, with the day of the week."""
    if when is None:
        return at(when)
    return Markup('<time class="dated" datetime="{}" title="{}">{} {}</time>').format(
        when.isoformat(), moment(when), f"{when.astimezone(UTC):%a}", moment(when)
    )


def server_zone() -> str:
    """Return the name of the time zone of this machine; "" if it has none that is known."""
    with suppress(ValueError):
        return zones.zone_name(zones.zone_named(zones.local_name())) or ""
    return ""


def _since(when: datetime | int | None, past: str, now: str = "") -> Markup:
    """Return as HTML how far away an instant is, with the instant itself in the tooltip. `past`: pattern for a past
    instant, such as `{} ago`; `now`: the text for one that has just passed, "" = no such text.
    """
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
    """Return as HTML in what time an instant comes, or by how much it is overdue."""
    return _since(when, "overdue by {}", "now")


def timed(text: str | Markup) -> Markup:
    """Return a sentence as HTML, in which the browser changes instants from UTC to the viewer's zone."""
    parts = _UTC.split(str(text)) if not isinstance(text, Markup) else [text]
    return Markup("").join(_instant(one) if _UTC.fullmatch(one) else one for one in parts)


def _instant(text: str) -> Markup:
    """Return an instant in a sentence as HTML, with the day of the week if the sentence has that."""
    return dated(datetime.fromisoformat(text[4:])) if text[0].isalpha() else at(datetime.fromisoformat(text))


def span(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if 0 <= seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else span_text(seconds)


def many(number: int | None, most: int | None = None) -> str:
    """Write a number for people: 12,345, or 10,000+ where counting stopped at `most`."""
    return "–" if number is None else f"{number:,}" + ("+" if most is not None and number >= most else "")


def shown(value: object) -> str:
    """Return any value as text (JSON, if it is no text), cut after 4,000 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}… ({len(text):,} characters)"


def by(act: ActNote | Mapping[str, object] | None) -> Markup:
    """Write by whom, why and when an act was done; "" for None."""
    if not act:
        return Markup("")
    why = act.get("why") or "no reason given"
    when = act.get("at")
    return escape(f"by {act.get('by', 'unknown')}: {why}, ") + (ago(when) if isinstance(when, int) else Markup(""))


def chain(why: Why) -> list[tuple[int, str, str, list[Cause]]]:
    """Return the things of an answer, the explained one first, each as (depth, kind, name, causes)."""
    depth, things = depths(why), dict[str, list[Cause]]()
    for cause in why.causes:
        things.setdefault(cause.thing, []).append(cause)
    return [(depth.get(thing, 1), *_kind_and_name(thing), causes) for thing, causes in things.items()]


def depths(why: Why) -> dict[str, int]:
    """Return for each thing of an answer how many causes lie between it and the explained thing; at most 5."""
    depth = {why.thing: 0}
    for cause in why.causes:
        for other in cause.of:
            depth.setdefault(other, min(depth.get(cause.thing, 1) + 1, 5))
    return depth


def _kind_and_name(thing: str) -> tuple[str, str]:
    kind, _, name = thing.partition(" ")
    return kind, name


def linked(text: str, why: Why, thing: str = "") -> Markup:
    """Return a sentence of the answer `why` as HTML, with links to the jobs in it. `thing`: removed where the sentence
    begins with this name.
    """
    found = {name for one in (*depths(why), thing) for kind, name in (_kind_and_name(one),) if kind == "job"}
    text = text.removeprefix(f"{called(thing)} ") if thing else text
    names = "|".join(re.escape(name) for name in sorted(found, key=len, reverse=True))
    parts = re.split(rf"(?<![\w/.@-])({names})(?![\w/@-])", text) if names else [text]
    return Markup("").join(job_link(one) if one in found else timed(one) for one in parts)


def job_link(job_id: str, text: str = "") -> Markup:
    link = Markup('<a class="id" href="{}" title="{}">{}</a>')
    return link.format(url("/job", id=job_id), job_id, text or short(job_id))


def planned(line: str | Markup) -> Markup:
    """Return a line of a plan as HTML, with a link to the job that it begins with, and its instants as `timed` does."""
    found = None if isinstance(line, Markup) else _JOB.match(line)
    return timed(line) if found is None else Markup("job ") + job_link(found[1], found[1]) + timed(line[found.end() :])


def plain(text: str) -> str:
    """Return a text for JSON: HTML loses its tags, such as links."""
    return text.striptags() if isinstance(text, Markup) else text


def short(name: str) -> str:
    """Shorten an id: one drawn by chance to its begin, another (`nightly@2026-11-29T02:00:00Z`) to begin and end."""
    if len(name) < 24:
        return name
    return f"{name[:8]}{CUT}" if _CHANCE.fullmatch(name) else f"{name[:10]}{CUT}{name[-12:]}"


def breakable(name: str) -> Markup:
    """Return a long name as HTML that a browser may break behind a dot, a dash and the like."""
    return Markup("<wbr>").join(_ENDS.split(name) if len(name) > 20 else [name])


def labelled(rows: str, heads: Sequence[str]) -> Markup:
    """Add to each cell of these HTML rows the head of its column, which small screens show beside the cell."""
    names = [Markup(head.lstrip("-=")).striptags() for head in heads]

    def row(text: str) -> str:
        left = iter(names)
        return _CELL.sub(lambda cell: f'{cell[0]} data-head="{escape(next(left, ""))}"', text)

    return Markup("<tr".join(map(row, str(rows).split("<tr"))))


def parts(so_far: Mapping[str, float]) -> list[tuple[str, float, str]]:
    """Return the times of an answer as the parts of a bar: (colour, seconds, tooltip). `so_far`: seconds by code. The
    colour is the first word of the code.
    """
    return [(code.partition(".")[0], seconds, spent_on(code, span(seconds))) for code, seconds in so_far.items()]


def runs(run: Job) -> list[tuple[str, float, str]]:
    """Return the course of an ended job as the parts of a bar, (colour, seconds, tooltip): how long it waited in line,
    waited for a slot, ran, and waited for its next attempt.
    """
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


def coded(text: str) -> Markup:
    """Return a help text as HTML, with the parts in backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


FILTERS: dict[str, Callable[..., object]] = {
    "age": age, "ago": ago, "at": at, "breakable": breakable, "by": by, "chain": chain, "coded": coded, "dated": dated,
    "due": due, "labelled": labelled, "lane": shown_lane, "linked": linked, "many": many, "parts": parts,
    "planned": planned, "runs": runs, "short": short, "shown": shown, "span": span, "spent": spent_text,
    "timed": timed,
}  # fmt: skip
