"""Backfills: past instants of an entry run as jobs, under the ids that their ticks have, so that none runs twice.

`Entries.backfill` computes the instants of a range, and writes to Redis those that did not run. Beats put their jobs in
line, a few at a time (backfilling.py), since only beats have the arguments of an entry. How many are at work is bounded
by a quota, `coordinator/backfill/<entry>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from coordinator.core.jobs.validation import shown
from coordinator.core.store.reading import act_in, text_in
from coordinator.core.store.step import Reply
from coordinator.core.store.times import EPOCH, instant, moment, to_ms
from coordinator.core.store.values import ActNote
from coordinator.core.store.wire import Arg
from coordinator.errors import InvalidJob
from coordinator.scheduler.entry import tick_id
from coordinator.scheduler.schedules import Schedule

MOST = 10_000  # instants of one call
CHUNK = 1000  # instants that one step writes
_AHEAD = timedelta(minutes=1)  # by which the clock of a caller may be ahead of that of Redis


def quota_of(name: str) -> str:
    """The quota that bounds how many jobs of an entry's backfills are at work."""
    return f"coordinator/backfill/{name}"


@dataclass(frozen=True, slots=True)
class Backfill:
    """The state of an entry's backfill: of the range that was asked for last.

    * since, until: the range, until excluded. at_once: how many jobs may be at work. reverse: the newest instant first.
    * to_come: instants whose jobs are not in line yet. in_line: those that wait, run, or are held. succeeded, failed:
      those whose jobs ended so. ended: those whose jobs were cancelled, expired or were rolled back.
    * failed_ids: ids of some jobs that failed. by: who asked for it, when and why. stopped: who stopped it; None:
      nobody. error: why a beat could not make a job, so that it waits for another call; "": none.
    """

    since: datetime
    until: datetime
    at_once: int
    reverse: bool
    to_come: int
    in_line: int
    succeeded: int
    failed: int
    ended: int
    failed_ids: tuple[str, ...] = ()
    by: ActNote | None = None
    stopped: ActNote | None = None
    error: str = ""

    @property
    def number(self) -> int:
        """How many instants of the range it has."""
        return self.to_come + self.in_line + self.succeeded + self.failed + self.ended

    @property
    def over(self) -> bool:
        return not self.to_come and not self.in_line

    def __str__(self) -> str:
        parts = [f"{self.succeeded} of {self.number} succeeded"]
        parts += [f"{number} {what}" for number, what in ((self.failed, "failed"), (self.ended, "ended otherwise"),
                                                          (self.in_line, "in line")) if number]  # fmt: skip
        if self.to_come and (self.stopped or self.error):
            parts.append("stopped")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class BackfillRange:
    """What a backfill of a range does, or would do.

    * first, last: the first and the last instant. number: how many there are. new: those that run by this call.
    * to_come, in_line, succeeded, failed, ended: how the instants stand then, as in `Backfill`. beats: instants that no
      beat has taken yet: beats send them, or pass them over as `misfire` says.
    """

    name: str
    first: datetime
    last: datetime
    number: int
    new: int
    to_come: int
    in_line: int
    succeeded: int
    failed: int
    ended: int
    beats: int

    def __str__(self) -> str:
        parts = [f"{self.new} of {self.number} {'instants' if self.number > 1 else 'instant'} to run"]
        again = self.to_come - self.new
        others = ((again, "were to run before"), (self.in_line, "in line"), (self.succeeded, "ran"))
        parts += [f"{number} {what}" for number, what in others if number]
        if lost := self.failed + self.ended:
            parts.append(f"{lost} ended without success (`retry` runs such a job again)")
        if self.beats:
            parts.append(f"{self.beats} still to be sent by beats")
        return ", ".join(parts)


def range_of(since: object, until: object, now: datetime) -> tuple[datetime, datetime]:
    """Check the range of a backfill. `until`: None or "" is now. Raises InvalidJob."""
    first, end = _read("since", since), now if until in (None, "") else _read("until", until)
    if first < EPOCH:
        raise InvalidJob(f"since {moment(first)}: give an instant from 1970 on")
    if end > now + _AHEAD:
        raise InvalidJob(f"until {moment(end)} is to come: beats send those instants; leave until out, for now")
    if first >= end:
        raise InvalidJob(f"since {moment(first)} is not before until {moment(end)}")
    return first, min(end, now)


def _read(name: str, value: object) -> datetime:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(at, datetime):
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidJob(f"{name} {shown(value)}: give an instant, such as 2026-01-01 or 2026-01-01T07:00:00Z")


def instants_in(name: str, schedule: Schedule, since: datetime, until: datetime) -> list[datetime]:
    """The instants of a schedule from `since` to before `until`. Raises InvalidJob for none, or more than MOST."""
    found: list[datetime] = []
    for at in _from(schedule, since):
        if at >= until:
            break
        if len(found) == MOST:
            raise InvalidJob(
                f"entry {name!r} has more than {MOST:,} instants in that range: give until={at.isoformat()!r}, and the "
                "rest by another call"
            )
        found.append(at)
    if not found:
        raise InvalidJob(
            f"entry {name!r} has no instant from {moment(since)} to {moment(until)}, by its schedule {schedule}"
        )
    return found


def _from(schedule: Schedule, since: datetime) -> Iterator[datetime]:
    at = schedule.next(since - timedelta.resolution)
    while at is not None:
        yield at
        at = schedule.next(at)


def pages(name: str, instants: Sequence[datetime]) -> Iterator[list[Arg]]:
    """The instants as steps take them, in portions: the end of the id and ms, in turns."""
    for start in range(0, len(instants), CHUNK):
        yield [part for at in instants[start : start + CHUNK] for part in (ending_of(name, at), to_ms(at))]


def ending_of(name: str, at: datetime) -> str:
    """What follows the name of the entry and @ in the id of a tick."""
    return tick_id(name, at)[len(name) + 1 :]


def range_from(name: str, instants: Sequence[datetime], replies: Sequence[Sequence[int]]) -> BackfillRange:
    """Sum up the replies of the step entry_backfill."""
    new, to_come, in_line, succeeded, failed, *others, double_fault, beats = map(sum, zip(*replies, strict=True))
    counts = new, to_come, in_line, succeeded, failed + double_fault, sum(others), beats
    return BackfillRange(name, instants[0], instants[-1], len(instants), *counts)


def backfill_from(name: str, reply: Reply) -> Backfill | None:
    """Read an answer of the step backfills_read about one entry."""
    if not reply:
        return None
    (at_once, reverse, since, until, by, stopped, error), numbers, failures = reply
    to_come, in_line, succeeded, failed, *others, double_fault = numbers
    return Backfill(
        instant(int(since)), instant(int(until)), int(text_in(at_once)), reverse == b"1", to_come, in_line, succeeded,
        failed + double_fault, sum(others), tuple(f"{name}@{text_in(one)}" for one in failures), act_in(by),
        act_in(stopped), text_in(error or b""),
    )  # fmt: skip
