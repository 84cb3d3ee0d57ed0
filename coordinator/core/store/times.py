"""Converts times between Redis, which stores milliseconds since the epoch, and Python: seconds, datetimes in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple, overload


class ClockReading(NamedTuple):
    """The values of three clocks at one moment, in ms (docs/redis.md, section Time).

    `now`: the installation's clock: that of the server, corrected where the server's goes back; `wall`: the clock of
    the Redis server; `uptime`: the clock of leases: it is `now` without the times in which Redis was unreachable.
    """

    now: int
    wall: int
    uptime: int


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(seconds: float) -> int:
    """Convert seconds to whole milliseconds, as Redis takes them."""
    return round(seconds * 1000)


def seconds(milliseconds: float | bytes | str | None) -> float | None:
    """Convert milliseconds to seconds; None and the empty text become None."""
    return None if milliseconds in (None, b"", "") else float(milliseconds) / 1000


@overload
def instant(milliseconds: float) -> datetime: ...


@overload
def instant(milliseconds: float | bytes | str | None) -> datetime | None: ...


def instant(milliseconds: float | bytes | str | None) -> datetime | None:
    """Convert milliseconds since the epoch to a datetime; None and the empty text become None."""
    when = seconds(milliseconds)
    return None if when is None else datetime.fromtimestamp(when, UTC)


def to_ms(at: datetime) -> int:
    """Convert a datetime to whole milliseconds since the epoch."""
    return (at - EPOCH) // timedelta(milliseconds=1)


def span_text(seconds: float) -> str:
    """Format a duration for people, in one or two units: 42 s, 90 min, 23 h 56 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    if whole < 172_800:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def moment(value: datetime | None) -> str:
    """Format a time for people: to the second, in UTC; "-" for None."""
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
