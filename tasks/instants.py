"""Instants of the federation: always UTC, microseconds as they come, milliseconds as they are asked for.

Member nodes date their objects to the microsecond, others only to the millisecond, and a query is safe in both worlds
only when it is cut *down* to a millisecond and read inclusively.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Dialect, String
from sqlalchemy.types import TypeDecorator

NEVER = datetime(1900, 1, 1, tzinfo=UTC)
"""What a registry writes for a member that was never harvested."""

TICK = timedelta(milliseconds=1)

_XS_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


def now() -> datetime:
    return datetime.now(UTC)


def parse(text: str) -> datetime:
    """An xs:dateTime (or a bare date). One without a zone is UTC; digits beyond microseconds are cut. ValueError."""
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
    """To the millisecond, as queries and nodelists carry it."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def full(instant: datetime) -> str:
    """To the microsecond; of one width, so that the order of the texts is the order of the instants."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Instant(TypeDecorator[datetime]):
    """A column of instants, kept as text: exact, ordered and readable in every database."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else full(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        return None if value is None else parse(value)
