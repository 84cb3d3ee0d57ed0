"""Finds time zones by name. A schedule needs a zone that knows the wall times of any year, and Redis stores only the
name of a zone.
"""

import os
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from celery.utils.time import LocalTimezone

_LOCAL = Path("/etc/localtime")


def plain(zone: tzinfo) -> tzinfo:
    """Return a zone that works with `datetime.replace(tzinfo=…)`: for a zone of pytz or Celery's LocalTimezone, the
    ZoneInfo of the same name; any other zone unchanged.

    A pytz zone that `replace` sets has the oldest offset of its place, such as 0:53 in Berlin. Celery 5.4 and 5.5 use
    LocalTimezone with `enable_utc=False`, and it has the wrong sign west of Greenwich. Raises ValueError if the zone
    has no name.
    """
    if hasattr(zone, "localize") and (name := getattr(zone, "zone", None)):
        return zone_named(name)
    return zone_named(local_name()) if isinstance(zone, LocalTimezone) else zone


def local_name() -> str:
    """The name of this machine's time zone, from the variable TZ or /etc/localtime; UTC if neither is there, as in
    libc.
    """
    given = os.environ.get("TZ", "").removeprefix(":")
    if not given and _LOCAL.exists():
        _, found, given = str(_LOCAL.resolve()).rpartition("zoneinfo/")
        if not found:
            raise ValueError(f"{_LOCAL} names no time zone: set the app's `timezone`, such as Europe/Berlin")
    return given or "UTC"


def zone_name(zone: tzinfo) -> str | None:
    """The name of a zone, as `zone_named` takes it; None for a zone that is neither UTC nor a ZoneInfo."""
    return "UTC" if zone is UTC else zone.key if isinstance(zone, ZoneInfo) else None


def zone_named(name: str) -> tzinfo:
    """Find the time zone of a name such as Europe/Berlin. Raises ValueError for an unknown name."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"no time zone {name!r} is known: give a name such as Europe/Berlin") from error
