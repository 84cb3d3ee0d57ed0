"""Instants of the federation: always in UTC, read to the microsecond, sent in queries to the millisecond.

Some members date their objects to the microsecond, others only to the millisecond. A query is safe with both if its
date is cut *down* to the millisecond and counts as included.
"""

import re
from datetime import UTC, datetime, timedelta

NEVER = datetime(1900, 1, 1, tzinfo=UTC)
"""A registry writes this date for a member that was never harvested."""

TICK = timedelta(milliseconds=1)

_XS_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


def now() -> datetime:
    return datetime.now(UTC)


def parse(text: str) -> datetime:
    """Read an xs:dateTime or a bare date. No zone means UTC; digits beyond microseconds are cut. Raises ValueError."""
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
    """Cut down to the millisecond."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def brief(instant: datetime) -> str:
    """The text to the millisecond, as in queries and nodelists."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(instant: datetime) -> str:
    """The text to the second, as commands print it."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def full(instant: datetime) -> str:
    """The text to the microsecond, always of one width: texts and instants have the same order."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
