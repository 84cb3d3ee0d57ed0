"""Time zones: by name, since a schedule is computed in walls' times of any year, and Redis keeps a name."""

import os
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from celery.utils.time import LocalTimezone

_LOCAL = Path("/etc/localtime")


def plain(zone: tzinfo) -> tzinfo:
    """The zone of the same name where it is one that only its own library can put on a wall time.

    A pytz zone has the oldest offset of its place, such as 0:53 in Berlin, until `localize` finds another. Celery 5.4
    and 5.5 take LocalTimezone for `enable_utc=False`, which moves the west of Greenwich to the east. Raises ValueError
    where it has no name.
    """
    if hasattr(zone, "localize") and (name := getattr(zone, "zone", None)):
        return zone_named(name)
    return zone_named(_local_name()) if isinstance(zone, LocalTimezone) else zone


def _local_name() -> str:
    """The name of this machine's zone; UTC where it names none, as the system's own library has it."""
    given = os.environ.get("TZ", "").removeprefix(":")
    if not given and _LOCAL.exists():
        _, found, given = str(_LOCAL.resolve()).rpartition("zoneinfo/")
        if not found:
            raise ValueError(f"{_LOCAL} names no time zone: set the app's `timezone`, such as Europe/Berlin")
    return given or "UTC"


def zone_name(zone: tzinfo) -> str | None:
    """The name by which `ZoneInfo` finds the zone; None where it has none."""
    return "UTC" if zone is UTC else zone.key if isinstance(zone, ZoneInfo) else None


def zone_named(name: str) -> tzinfo:
    """The zone of this name. Raises ValueError for an unknown zone."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"no time zone {name!r} is known here: give a name such as Europe/Berlin") from error
