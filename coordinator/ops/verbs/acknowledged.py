"""The acknowledgements of findings in Redis: one hash, a field for each code, or code and thing, and a ttl by which it
ends with the last of them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from kombu.utils.json import loads

from coordinator.core.finding import Acknowledged, Finding
from coordinator.core.jobs import validation
from coordinator.core.store.client import Store
from coordinator.core.store.reading import text_in
from coordinator.core.store.steps import audit_note, clock_read
from coordinator.core.store.times import ClockReading, instant, milliseconds, moment
from coordinator.core.store.wire import Arg
from coordinator.errors import InvalidJob, SettingsError, StoreRefused, StoreUnavailable

LONGEST = 30 * 86400.0  # seconds for which a finding is acknowledged at most
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def acknowledge(
    store: Store, code: str, thing: str | None, until: datetime | float | str, who: str, act: str,
    doctor: Callable[[], list[Finding]],
) -> datetime:  # fmt: skip
    """Acknowledge what `doctor` finds now, as `Coordinator.ack` does. `act`: author and reason, as JSON. Raises
    InvalidJob.
    """
    field, wall = _field(code, thing), store.clock().wall  # raises where Redis is away; doctor would only find that
    ends, name = _ends(until, wall), store.key("acknowledged")
    if not any(one.code == code and (not thing or thing == one.thing) for one in doctor()):
        about = f" about {thing!r:.200}" if thing else ""
        raise InvalidJob(f"doctor finds no {code!r:.80}{about} now: `coordinator doctor` lists what it finds")
    note = json.dumps(json.loads(act) | {"until": ends}, ensure_ascii=False)
    over = [field for field, one in _read(store).items() if one.until.timestamp() * 1000 <= wall]
    writes: list[Sequence[Arg]] = [("HDEL", name, *over)] if over else []
    writes += [("HSET", name, field, note), ("PEXPIREAT", name, ends, "NX"), ("PEXPIREAT", name, ends, "GT")]
    _write(store, "acknowledge", field, f"ack {who} {field} {until}", act, ("", moment(instant(ends))), writes)
    return instant(ends)


def forget(store: Store, code: str, thing: str | None, act: str) -> bool:
    """End an acknowledgement. Returns False where there is none."""
    field, name = _field(code, thing), store.key("acknowledged")
    known = _read(store).get(field)
    if known is None:
        return False
    id, change = f"unack {field} {known.until}", (moment(known.until), "")
    _write(store, "unacknowledge", field, id, act, change, [("HDEL", name, field)])
    return True


def _write(
    store: Store, verb: str, field: str, id: str, act: str, change: tuple[str, str], writes: Sequence[Sequence[Arg]]
) -> None:
    """Write into the hash, and the act's line into the audit trail, at once: a reply that is lost leaves no half."""
    line = audit_note.looking(store, id, 3_600_000, act, verb, "finding", field, *change)
    store.read_many([line, *writes], atomic=True)


def acknowledged(store: Store, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, each with its acknowledgement that holds now, if any; the others first. Where Redis does not
    answer, none counts as acknowledged.
    """
    known: dict[str, Acknowledged] = {}
    try:
        commands = [clock_read.looking(store), ("HGETALL", store.key("acknowledged"))]
        clock, kept = store.read_many(commands)
        wall = ClockReading(*clock).wall
        known = {field: one for field, one in _parsed(kept).items() if one.until.timestamp() * 1000 > wall}
    except (SettingsError, StoreRefused, StoreUnavailable):  # SettingsError: it is too old
        pass
    marked = [
        replace(one, acknowledged=known.get(_field(one.code, one.thing)) or known.get(_field(one.code, "")))
        for one in findings
    ]
    return sorted(marked, key=lambda one: one.acknowledged is not None)


def acknowledged_text(findings: Iterable[Finding]) -> list[str]:
    """Return a line for each author and instant, `1 acknowledged by ann until …`, and below it what was, and why."""
    groups: defaultdict[tuple[str, datetime], list[Finding]] = defaultdict(list)
    for finding in findings:
        if known := finding.acknowledged:
            groups[known.by, known.until].append(finding)
    lines = []
    for (by, until), several in groups.items():
        lines.append(f"{len(several)} acknowledged by {by} until {moment(until)}:")
        for finding in several:
            why = finding.acknowledged.why if finding.acknowledged else ""
            lines.append(f"  {finding}{f' ({why})' if why else ''}")
    return lines


def _field(code: str, thing: str | None) -> str:
    return f"{code} {thing or ''}".rstrip()


def _read(store: Store) -> dict[str, Acknowledged]:
    """Read all acknowledgements that Redis keeps, also those that have ended."""
    return _parsed(store.read("HGETALL", store.key("acknowledged")))


def _parsed(kept: Mapping[bytes, bytes]) -> dict[str, Acknowledged]:
    """Return the acknowledgements by field. Damaged ones are left out."""
    found = {}
    for field, text in kept.items():
        try:
            note = loads(text)
            thing = text_in(field).partition(" ")[2]
            known = Acknowledged(str(note["by"]), str(note["why"]), instant(int(note["until"])), thing)
            found[text_in(field)] = known
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _ends(until: datetime | float | str, wall: int) -> int:
    """Return `until` as ms since the epoch. `wall`: now. Raises InvalidJob for a time that has passed or is too far."""
    span = _SPAN.fullmatch(until.strip()) if isinstance(until, str) else None
    text = validation.until(float(span[1]) * _UNITS[span[2]] if span else until)
    ends = wall + int(text[1:]) if text.startswith("+") else int(text or 0)
    if not wall < ends <= wall + milliseconds(LONGEST):
        raise InvalidJob(f"until {until!r:.40}: give a time to come, within 30 days")
    return ends
