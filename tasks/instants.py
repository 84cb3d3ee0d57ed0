"""Parses, cuts and formats dates with a time: always in UTC, read to the microsecond, sent to the millisecond.

Some members date their objects to the microsecond, others only to the millisecond. A query from a date on misses no
object of either if the date is cut *down* to the millisecond.
"""

import re
from datetime import UTC, datetime, timedelta

NEVER = datetime(1900, 1, 1, tzinfo=UTC)
"""The date that DataONE's registry writes for a member that was never harvested, so from its beginning."""

TICK = timedelta(milliseconds=1)

_XS_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


def now() -> datetime:
    return datetime.now(UTC)


def parse(text: str) -> datetime:
    """Parse an xs:dateTime or a date alone; without a time zone it is in UTC. Digits after microseconds are cut.

    Raises ValueError for any other text.
    """
    text = text.strip()
    if not _XS_DATE_TIME.fullmatch(text):
        raise ValueError(f"not a date and time: {text[:60]!r}")
    return utc(datetime.fromisoformat(text))


def utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        return instant.replace(tzinfo=UTC)
    try:
        return instant.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"outside the calendar: {instant}") from error


def floor(instant: datetime) -> datetime:
    """Cut an instant down to the millisecond."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def brief(instant: datetime) -> str:
    """Format an instant to the millisecond, as queries and nodelists contain it."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(instant: datetime) -> str:
    """Format an instant to the second, as commands print it."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def full(instant: datetime) -> str:
    """Format an instant to the microsecond, always with the same length, so that texts sort as the instants do."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
