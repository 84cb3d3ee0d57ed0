"""Times as Redis keeps them: milliseconds since the epoch. Python has seconds and datetimes in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple, overload


class Clock(NamedTuple):
    """One moment in ms (docs/redis.md, Time). `now`: the installation's; `wall`: the server's; `uptime`: of leases."""

    now: int
    wall: int
    uptime: int


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(seconds: float) -> int:
    """The one place where seconds become Redis' milliseconds."""
    return round(seconds * 1000)


def seconds(milliseconds: float | bytes | str | None) -> float | None:
    """The way back; None and the empty text stay None."""
    return None if milliseconds in (None, b"", "") else float(milliseconds) / 1000


@overload
def instant(milliseconds: float) -> datetime: ...


@overload
def instant(milliseconds: float | bytes | str | None) -> datetime | None: ...


def instant(milliseconds: float | bytes | str | None) -> datetime | None:
    """The same as a datetime."""
    when = seconds(milliseconds)
    return None if when is None else datetime.fromtimestamp(when, UTC)


def to_ms(at: datetime) -> int:
    """The whole milliseconds since the epoch of an instant."""
    return (at - EPOCH) // timedelta(milliseconds=1)


def moment(value: datetime | None) -> str:
    """An instant as text for people: to the second, in UTC."""
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
