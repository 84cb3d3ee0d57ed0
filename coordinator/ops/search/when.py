"""Reads the bounds of time of a filter, `since` and `until`, as people write them. There is one rule for zones: what
names none is in UTC, as commands print instants; the dashboard turns what its viewer types into UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta

from coordinator.core.fleet.nodes import Nodes
from coordinator.core.jobs import validation
from coordinator.core.store.client import Store
from coordinator.core.store.times import instant, milliseconds, to_ms
from coordinator.errors import InvalidJob

When = datetime | timedelta | str

WORDS = "90s, 1h, 2d, last hour, 10:00, today, yesterday, newest node, or an instant, in UTC"
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LAST = {"last hour": "1h", "last day": "1d", "last week": "1w"}
_CLOCK = re.compile(r"\d\d?:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?")


def ms_of(store: Store, name: str, value: object) -> int | None:
    """Turn the bound `value` into ms of Redis' clock; None if it is empty. `name`: of the filter, for the error.

    A bound is an instant (a datetime, or a text as in ISO 8601), a time before now (a timedelta, `90s`, `1h`, `last
    hour`), the last time that a clock showed `10:00`, the beginning of `today` or `yesterday`, or `newest node`: when
    the newest living node came. Raises InvalidJob.
    """
    if value in (None, ""):
        return None
    try:
        if isinstance(value, str):
            value = _named(store, " ".join(value.split()))
        if isinstance(value, timedelta):
            return store.now() - milliseconds(value.total_seconds())
        if isinstance(value, datetime):
            return to_ms(value if value.tzinfo else value.astimezone())
        moment = datetime.fromisoformat(str(value))
        return to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except InvalidJob:
        raise
    except (OverflowError, ValueError) as error:
        raise InvalidJob(f"{name} {validation.shown(value)}: give {WORDS}") from error


def _named(store: Store, text: str) -> When:
    """Read a text that stands for a time before now, a time of day or a word; return another text as it is."""
    if read := _WORDS.get(text.lower()):
        return read(store)
    if span := _SPAN.fullmatch(_LAST.get(text.lower(), text)):
        return timedelta(seconds=float(span[1]) * _UNITS[span[2]])
    return _clock_time(store, text) if _CLOCK.fullmatch(text) else text


def _clock_time(store: Store, text: str) -> datetime:
    """Return the last instant at which a clock showed this time of day. Raises ValueError where none ever does."""
    shown, now = time.fromisoformat(text if text[1] != ":" else f"0{text}"), _now(store)
    zone = shown.tzinfo or UTC
    last = datetime.combine(now.astimezone(zone), shown, zone)
    return last if last <= now else last - timedelta(days=1)


def _now(store: Store) -> datetime:
    return instant(store.clock().wall)


def _today(store: Store) -> datetime:
    return _now(store).replace(hour=0, minute=0, second=0, microsecond=0)


def _newest_node(store: Store) -> datetime:
    began = [node.since for node in Nodes(store).living() if node.since]
    if not began:
        raise InvalidJob("newest node: no node is alive; give an instant, or 1h")
    return max(began)


_WORDS: Mapping[str, Callable[[Store], datetime]] = {
    "today": _today,
    "yesterday": lambda store: _today(store) - timedelta(days=1),
    "newest node": _newest_node,
}
