"""Changes and reads the schedule's entries: code stores entries in Redis, and operators pause, run or reschedule any
entry.

`coordinator.entries` is an instance of `Entries`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Unpack, cast

from coordinator.core.author import Acting, Author, act_of, author_of, refuses_viewers
from coordinator.core.jobs.record import fields_of_many, state_of
from coordinator.core.jobs.request import RequestMaker
from coordinator.core.jobs.validation import checks_arguments, count, printable, shown
from coordinator.core.quotas.client import QuotaClient
from coordinator.core.store import steps
from coordinator.core.store.client import Store
from coordinator.core.store.reading import FieldReader, reader_of, text_in
from coordinator.core.store.times import instant, moment, to_ms
from coordinator.core.store.values import ActNote, Json
from coordinator.core.verbs import ENTRY, NOTHING, Answer, AnyCoordinator, Given, Option, reading, verb
from coordinator.errors import InvalidJob, UnknownEntry
from coordinator.scheduler import history
from coordinator.scheduler.backfill import (
    Backfill,
    BackfillRange,
    backfill_from,
    instants_in,
    pages,
    quota_of,
    range_from,
    range_of,
)
from coordinator.scheduler.entry import Entry, run_id, schedule_from
from coordinator.scheduler.entry_plan import COUNTED, EntryPlan, jitter_of
from coordinator.scheduler.history import EntryEvent
from coordinator.scheduler.quartz import Quartz
from coordinator.scheduler.schedules import Crontab, Schedule, schedule_of, text_of
from coordinator.scheduler.schedules import Given as GivenSchedule
from coordinator.scheduler.zones import zone_name

_PAGE = 500  # entries that are read in one round trip
_LINES = 20  # lines of the history that are read to find the last tick
_STATE = ("state", "phase", "lack")
MEANS = 5  # instants that say what a schedule means
_POLL = 0.05  # seconds between two checks whether a beat still publishes a task of a paused entry


@dataclass(frozen=True, slots=True)
class EntryStatus:
    """The current state of a schedule entry. Times are aware UTC datetimes.

    * source: the name of the source from which beats read the entry.
    * when: the schedule in force as text, with zone, jitter, first and last instant; text: its expression alone.
    * since: the last instant that a beat took, or the time after which instants are due. last: the last tick or run;
      None: there was none. upcoming: the next instants, including one that an operator skipped.
    * ran: the last tick or run, among the last ten, of which a job or task was made; state: of its job, "" = unknown,
      or an ordinary task. failing: since when none could be made (`last` has the error); None: the last one could.
    * paused: who paused the entry, when and why; None: it is not paused. other: the schedule that an operator set in
      place of the entry's own, "" = none; changed: who set it. omitted: the next instant if an operator skipped it,
      else None; omitted_by: who skipped it. backfill: the range of past instants that was asked for last; None: none.
    """

    name: str
    source: str
    task: str
    key: Json
    when: str
    text: str
    since: datetime | None
    upcoming: tuple[datetime, ...]
    paused: ActNote | None = None
    other: str = ""
    changed: ActNote | None = None
    omitted: datetime | None = None
    omitted_by: ActNote | None = None
    when_busy: str = "queue"
    misfire: str = "once"
    last: EntryEvent | None = None
    backfill: Backfill | None = None
    ran: EntryEvent | None = None
    state: str = ""
    failing: datetime | None = None

    @property
    def next(self) -> datetime | None:
        """The next instant at which a beat will send the entry; None if it is paused, or no instant is to come."""
        sent = (at for at in self.upcoming if at != self.omitted)
        return None if self.paused else next(sent, None)


def _entries(coordinator: AnyCoordinator, given: Given) -> object:
    return coordinator.entries


def _paused(_: object, given: Given, new: bool) -> Answer:
    name = given["name"]
    return {"entry": name, "paused": new}, f"{name} is paused" if new else f"{name} was paused already"


def _resumed(_: object, given: Given, was: bool) -> Answer:
    name = given["name"]
    return {"entry": name, "resumed": was}, f"{name} goes on" if was else f"{name} was not paused"


def _skipped(_: object, given: Given, at: datetime) -> Answer:
    name = given["name"]
    return {"entry": name, "omitted": at.isoformat()}, f"{name} will not be sent at {moment(at)}"


def _run(_: object, given: Given, job_id: str) -> Answer:
    name = given["name"]
    return {"entry": name, "id": job_id}, f"{name} runs within seconds, once a beat is there, as {job_id}"


def _changed(coordinator: AnyCoordinator, given: Given, new: bool) -> Answer:
    name = given["name"]
    return {"entry": name, "changed": new}, f"{name}: {coordinator.entries.entry(name, 1).when}"


def _change_planned(coordinator: AnyCoordinator, given: Given) -> list[str]:
    """Say what an expression means by its next instants; a form, which has none yet, says it of the present one."""
    entries: Entries = coordinator.entries
    entry, new = entries.entry(given["name"], MEANS), given["schedule"]
    lines = [f"now: {entry.when}", *(["paused"] if entry.paused else map(_day, entry.upcoming))]
    return [*lines, f"then: {new}", *map(_day, entries.plan_change(given["name"], new))] if new else lines


def _day(at: datetime) -> str:
    return f"{at:%a} {moment(at)}"


def _restored(coordinator: AnyCoordinator, given: Given, was: bool) -> Answer:
    name = given["name"]
    when = coordinator.entries.entry(name, 1).when
    return {"entry": name, "restored": was}, f"{name}: {when}" if was else f"{name} had its own schedule: {when}"


def _filled(_: object, given: Given, found: BackfillRange) -> Answer:
    values = {**asdict(found), "first": found.first.isoformat(), "last": found.last.isoformat()}
    return values, f"{found.name}: {found}"


def _fill_planned(coordinator: AnyCoordinator, given: Given) -> list[str]:
    """Plan a backfill; a form is shown before it has a range."""
    name, since, at_once = given["name"], given["since"], given["at_once"]
    if not since:
        return ["Say from when. The instants from then on that did not run will run."]
    entries: Entries = coordinator.entries
    planned, entry = entries.plan_backfill(name, since, given["until"]), entries.entry(name, 1)
    order = ", the newest first" if given["reverse"] else ""
    lines = [str(planned), f"from {moment(planned.first)} to {moment(planned.last)}, by {entry.when}{order}"]
    in_lane = entry.key is not None and at_once > 1
    lines.append("one at a time, in the lane of its key" if in_lane else f"{at_once} at once")
    if entry.when_busy == "skip":
        lines.append("a tick that is skipped for a job of the backfill runs as a part of it")
    if entry.when_busy == "replace":
        lines.append("each tick of the entry cancels the job of the backfill that is at work")
    oldest = next((one.at for one in entries.history(name) if one.kind == "tick"), None)
    if oldest is None or planned.first < oldest:
        before = "" if oldest is None else f" before {moment(oldest)}"
        lines.append(f"whether instants{before} ran, only records that are kept tell: the others run")
    return lines


def _fill_stopped(_: object, given: Given, was: bool) -> Answer:
    name = given["name"]
    text = f"{name}: its backfill is stopped; the jobs at work go on" if was else f"{name}: no backfill is under way"
    return {"entry": name, "stopped": was}, text


TOKEN = Option("token", "Repeated calls with the same token run the entry once.", form="")
SCHEDULE = Option(
    "schedule", 'A Quartz expression in the entry\'s zone, such as "0 0 1 * * ?", or "every 30" for seconds.',
    default="", argument=True, metavar="EXPRESSION",
)  # fmt: skip
SINCE = Option(
    "since",
    "The first instant, such as 2026-01-01 or 2026-01-01T07:00:00Z; without a zone in UTC, a time on a page in its "
    "viewer's.", argument=True, metavar="SINCE",
)  # fmt: skip
UNTIL = Option("until", "The end, which is left out. Empty: now.", argument=True, metavar="[UNTIL]")
AT_ONCE = Option(
    "at_once", "So many of its jobs are at work at most.", "At work at once", int, 1, least=1, most=1000
)  # fmt: skip
REVERSE = Option("reverse", "The newest instant first.", kind=bool, default=False, choices={"": "no", "true": "yes"})


@checks_arguments
class Entries:
    """Reads and changes the schedule's entries in Redis. `by`: who acts; by default the name of this host. All calls
    but `change` and `put` do nothing if repeated.
    """

    def __init__(self, store: Callable[[], Store], requests: Callable[[], RequestMaker]) -> None:
        self._store_of, self._requests_of = store, requests

    @property
    def _store(self) -> Store:
        return self._store_of()

    @refuses_viewers
    def put(self, entry: Entry, **acting: Unpack[Acting]) -> bool:
        """Store an entry in Redis for all beats, in place of a stored entry of the same name. Returns False if the same
        entry is stored already.

        Instants of a new or changed entry are due from now on. Raises InvalidJob if the entry is invalid, or another
        source has an entry of that name.
        """
        if not isinstance(entry, Entry):
            raise InvalidJob(f"put takes an Entry(name, schedule, task, …), not {shown(entry)}")
        try:
            text = entry.to_json()
            plan = EntryPlan(Entry.from_json(text))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidJob(f"entry {getattr(entry, 'name', entry)!r}: {error}") from error
        entry.check_job(self._requests_of())
        following = plan.schedule.next(self._now())
        if following is None and not self._store.read("EXISTS", self._store.key("tick", entry.name)):
            raise InvalidJob(f"entry {entry.name!r}: no instant of {plan.schedule} is still to come")
        at = 0 if following is None else to_ms(following)
        reply = steps.entry_put(self._store, entry.name, text, plan.hash, at, plan.about, act_of(**acting))
        return self._own(entry.name, *reply)

    @refuses_viewers
    def remove(self, name: str, **acting: Unpack[Acting]) -> bool:
        """Remove an entry that `put` stored: once this call has returned, no beat sends a tick of it. Returns False if
        there is none.

        Raises InvalidJob if the entry comes from another source.
        """
        return self._own(name, *steps.entry_remove(self._store, name, act_of(**acting)))

    @verb(ENTRY, tell=_paused, name="entry-pause", command="schedule pause", title="Pause", host=_entries)
    def pause(self, name: str, **acting: Unpack[Acting]) -> bool:
        """Pause an entry: no beat sends its ticks until `resume`. The instants that pass during the pause are never
        sent.

        If a beat is publishing a task of the entry at this moment, the call waits for that, 5 seconds at most. Returns
        False if the entry is paused already. Raises UnknownEntry.
        """
        act = act_of(**acting)
        new, left = steps.entry_pause(self._store, name, act)
        while left > 0:
            self._store.pause(min(_POLL, left / 1000))
            left = steps.entry_pause(self._store, name, act)[1]
        return self._known(name, new)

    @verb(ENTRY, tell=_resumed, name="entry-resume", command="schedule resume", title="Resume", host=_entries)
    def resume(self, name: str, **acting: Unpack[Acting]) -> bool:
        """Resume a paused entry: beats send its ticks again, from its next instant on.

        Returns False if the entry was not paused. Raises UnknownEntry.
        """
        following = next(iter(self.entry(name, 1).upcoming), None)
        at = 0 if following is None else to_ms(following)
        return self._known(name, steps.entry_resume(self._store, name, at, act_of(**acting)))

    @verb(ENTRY, tell=_skipped, name="entry-skip", command="schedule skip", title="Skip the next", host=_entries)
    def skip_next(self, name: str, **acting: Unpack[Acting]) -> datetime:
        """Skip the next instant of an entry: no beat sends its tick.

        Returns that instant. Raises UnknownEntry, and InvalidJob if no instant is to come.
        """
        while True:
            upcoming = self.entry(name, 1).upcoming
            if not upcoming:
                raise InvalidJob(f"entry {name!r} has no next instant")
            verdict = steps.entry_omit(self._store, name, to_ms(upcoming[0]), act_of(**acting))
            if verdict != -2:  # -2: a beat took this instant meanwhile
                self._known(name, verdict)
                return upcoming[0]

    @verb(ENTRY, TOKEN, tell=_run, name="entry-run", command="schedule run", title="Run now", host=_entries)
    def run_now(self, name: str, *, token: str | None = None, **acting: Unpack[Acting]) -> str:
        """Run an entry once, now, even while it is paused.

        A beat submits its job, or publishes its task, within two seconds. Returns the id of that job or task. Repeated
        calls with the same `token` run the entry once. Raises UnknownEntry.
        """
        token = uuid.uuid4().hex if token is None else token
        if not isinstance(token, str) or not printable(token) or " " in token or len(token.encode()) > 64:
            raise InvalidJob(f"token {token!r}: give 1 to 64 bytes of text without blanks and control characters")
        self._known(name, steps.entry_run(self._store, name, token, act_of(**acting)))
        return str(run_id(name, token))

    @verb(
        ENTRY, SCHEDULE, tell=_changed, name="entry-change", command="schedule change", title="Change", host=_entries,
        plan=_change_planned,
    )  # fmt: skip
    def change(self, name: str, schedule: GivenSchedule, **acting: Unpack[Acting]) -> bool:
        """Replace an entry's schedule until `restore`. The new schedule applies from now on, in the entry's time zone.

        Returns False if the entry has that schedule already. Raises UnknownEntry, and InvalidJob if `schedule` is
        invalid or in another time zone.
        """
        return self._rescheduled(name, *self._checked(name, schedule), act_of(**acting))

    @reading(ENTRY, SCHEDULE, name="plan-change", host=_entries)
    def plan_change(self, name: str, schedule: GivenSchedule) -> list[datetime]:
        """Return the next five instants that an entry would have after `change`, and do nothing. Raises as that does.

        An interval counts from when it is changed.
        """
        planned, at, instants = self._checked(name, schedule)[1], self._now(), list[datetime]()
        while planned and len(instants) < MEANS and (following := planned.next(at)):
            instants.append(at := following)
        return instants

    def _checked(self, name: str, schedule: GivenSchedule) -> tuple[str, Schedule | None]:
        """Check the new schedule of an entry, and return it as text and as a Schedule. Raises as `change` does."""
        about = self._about(name)
        try:
            other, zone = schedule_of(schedule), str(about.get("zone", "UTC"))
            if isinstance(other, Quartz | Crontab) and not isinstance(schedule, str) and zone_name(other.tz) != zone:
                raise ValueError(f"its zone is {zone}, not {other.tz}; give an expression as text, in {zone}")
            text = text_of(other)
            if text is None:
                raise ValueError(f"{schedule!r} has no text by which Redis could keep it; give an expression")
            planned = schedule_from(about, text)
            if planned and planned.next(self._now()) is None:
                raise ValueError(f"no instant of {planned} is still to come")
        except (TypeError, ValueError) as error:
            raise InvalidJob(f"entry {name!r}: {error}") from error
        return text, planned

    @verb(ENTRY, tell=_restored, name="entry-restore", command="schedule restore", title="Restore", host=_entries)
    def restore(self, name: str, **acting: Unpack[Acting]) -> bool:
        """Restore the entry's own schedule after `change`. It applies from now on.

        Returns False if the entry's schedule was not changed. Raises UnknownEntry.
        """
        return self._rescheduled(name, "", schedule_from(self._about(name)), act_of(**acting))

    @verb(
        ENTRY, SINCE, UNTIL, AT_ONCE, REVERSE, tell=_filled, name="entry-backfill", command="schedule backfill",
        title="Backfill", host=_entries, plan=_fill_planned,
    )  # fmt: skip
    def backfill(
        self, name: str, since: datetime | str, until: datetime | str | None = None, *, at_once: int = 1,
        reverse: bool = False, **acting: Unpack[Acting],
    ) -> BackfillRange:  # fmt: skip
        """Run the instants of an entry from `since` to before `until`, by its schedule as it is now: those that did not
        run. Their jobs have the ids that ticks have, so that none runs twice.

        `until`: None is now. A text or datetime without a zone is in UTC. Beats put the jobs in line, a few at a time,
        also while the entry is paused; the quota `coordinator/backfill/<name>` has `at_once` units. `reverse`: the
        newest instant first. Returns how the instants of the range stand. A repeated call goes on with what was
        stopped. Raises UnknownEntry, and InvalidJob for a range in which no instant or more than 10,000 are.
        """
        instants, since, until = self._instants(name, since, until)
        count("at_once", at_once, 1)
        _declare(self._store, name, at_once, **acting)
        ends = to_ms(since), to_ms(until)
        asked = f"{since.isoformat()} {until.isoformat()}"
        about = {"id": uuid.uuid4().hex, "kind": "entry", "name": name, "before": "", "after": asked}
        act = act_of(**acting, about=about)
        replies = [
            steps.entry_backfill(self._store, name, at_once, reverse, *ends, act, *page)
            for page in pages(name, instants)
        ]
        return self._range(name, instants, replies)

    @reading(ENTRY, SINCE, UNTIL, name="plan-backfill", host=_entries)
    def plan_backfill(
        self, name: str, since: datetime | str, until: datetime | str | None = None
    ) -> BackfillRange:  # fmt: skip
        """Return what `backfill` would return, and do nothing. Raises as that does."""
        instants, _, _ = self._instants(name, since, until)
        replies = [steps.entry_backfill_plan(self._store, name, *page) for page in pages(name, instants)]
        return self._range(name, instants, replies)

    @verb(
        ENTRY, tell=_fill_stopped, name="entry-stop-backfill", command="schedule stop-backfill", title="Stop backfill",
        host=_entries,
    )  # fmt: skip
    def stop_backfill(self, name: str, **acting: Unpack[Acting]) -> bool:
        """Stop an entry's backfill: no more of its jobs start, and those that wait leave their lines. Those at work go
        on. The same call of `backfill` goes on.

        Returns False if no backfill is under way. Raises UnknownEntry.
        """
        return self._known(name, steps.entry_backfill_stop(self._store, name, act_of(**acting)))

    def _instants(
        self, name: str, since: object, until: object
    ) -> tuple[list[datetime], datetime, datetime]:  # fmt: skip
        """Check the range of a backfill, and compute its instants. Raises as `backfill` does."""
        about, other = self._about(name), self._store.read("HGET", self._store.key("tick", name), "other")
        schedule = schedule_from(about, text_in(other))
        first, end = range_of(since, until, self._now())
        if schedule is None:
            raise InvalidJob(
                f"entry {name!r} has a schedule of the app's own class, of which only beats know the instants: give it "
                "an expression by `change` meanwhile"
            )
        return instants_in(name, schedule, first, end), first, end

    def _range(self, name: str, instants: list[datetime], replies: list[list[int]]) -> BackfillRange:
        for reply in replies:
            self._known(name, reply[0])
        return range_from(name, instants, [reply[1:] for reply in replies])

    def _rescheduled(self, name: str, text: str, schedule: Schedule | None, act: str) -> bool:
        following = schedule.next(self._now()) if schedule else None
        at = 0 if following is None else to_ms(following)
        return self._known(name, steps.entry_change(self._store, name, text, at, act))

    @reading(ENTRY, host=_entries)
    def entry(self, name: str, upcoming: int = 10) -> EntryStatus:
        """Read the state of an entry. `upcoming`: the number of its next instants to list. Raises UnknownEntry."""
        entries = self._read([name], upcoming)
        if not entries:
            raise UnknownEntry(name)
        return entries[0]

    @reading(NOTHING, Option("prefix", default=""), name="entries", host=_entries)
    def all(self, prefix: str = "", most: int = 1000, after: str = "") -> list[EntryStatus]:
        """Read the entries whose names begin with `prefix`, sorted by name, `most` of them.

        `after`: for the next page, the last name of this one.
        """
        key, read = self._store.key, self._store.read
        sources = [name.decode() for name in read("SMEMBERS", key("schedule-sources"))]
        names = {name.decode() for source in sources for name in read("SMEMBERS", key("schedule-entries", source))}
        chosen = sorted(name for name in names if name.startswith(prefix) and name > after)[:most]
        pages = (chosen[start : start + _PAGE] for start in range(0, len(chosen), _PAGE))
        return [entry for page in pages for entry in self._read(page, 2)]  # two instants, since the next may be skipped

    @reading(ENTRY, host=_entries)
    def history(self, name: str) -> list[EntryEvent]:
        """Read the outcomes of an entry's last hundred ticks; of the last ten if there are more than 1,000 entries.

        The list also has runs that operators requested, and operators' acts; the latest is last. Raises UnknownEntry.
        """
        self._about(name)
        return history.read(name, self._store.read("LRANGE", self._store.key("ticks", name), 0, -1))

    def _read(self, names: list[str], upcoming: int) -> list[EntryStatus]:
        now = self._now()
        asked: list[tuple[str, ...]] = [("HGETALL", self._store.key("tick", name)) for name in names]
        lines = [("LRANGE", self._store.key("ticks", name), str(-_LINES), "-1") for name in names]
        *replies, backfills = self._store.read_many([*asked, *lines, steps.backfills_read.looking(self._store, *names)])
        known = zip(names, replies, replies[len(names) :], backfills, strict=False)
        found = [
            replace(_scheduled(name, tick, lines, now, upcoming), backfill=backfill_from(name, backfill))
            for name, tick, lines, backfill in known
            if b"source" in tick
        ]
        return [replace(one, state=state) for one, state in zip(found, self._states(found), strict=True)]

    def _states(self, entries: Sequence[EntryStatus]) -> list[str]:
        """Read the states of the jobs that ran last; one whose record is gone has the state in which it ended."""
        fields = fields_of_many(self._store, [one.ran.job_id if one.ran else "" for one in entries], *_STATE)
        states = [str(state_of(dict(zip(_STATE, values, strict=True)))) for values in fields]
        return [state or (one.ran.state if one.ran else "") for one, state in zip(entries, states, strict=True)]

    def _about(self, name: str) -> dict[str, Json]:
        """Read the JSON that a beat wrote to Redis about an entry: its task and schedule. Raises UnknownEntry."""
        about = self._store.read("HGET", self._store.key("tick", name), "about")
        if about is None:
            raise UnknownEntry(name)
        return _about_in(FieldReader({"about": text_in(about)}))

    def _now(self) -> datetime:
        return instant(self._store.clock().wall)

    def _own(self, name: str, verdict: int, source: bytes = b"") -> bool:
        if verdict < 0:
            raise InvalidJob(
                f"entry {name!r} comes from the source {source.decode()}: change it there, or give another name"
            )
        return bool(verdict)

    def _known(self, name: str, verdict: int) -> bool:
        if verdict < 0:
            raise UnknownEntry(name)
        return bool(verdict)


def _declare(store: Store, name: str, at_once: int, **acting: Unpack[Acting]) -> None:
    """Declare the quota of a backfill, and keep a rate that somebody gave it. The trail has the backfill alone."""
    quotas, quota = QuotaClient(store), quota_of(name)
    [now] = quotas.read_many([quota])
    act = {**acting, "by": Author(author_of(acting.get("by")).name, "system")}
    act["why"] = acting.get("why") or f"the backfill of {name}"
    rate, burst = (now.rate, now.burst) if now.declared else (None, None)
    quotas.declare(quota, at_once, rate, burst or 1, **cast(Acting, act))


def _scheduled(
    name: str, tick: Mapping[bytes, bytes], lines: Sequence[bytes], now: datetime, upcoming: int
) -> EntryStatus:  # fmt: skip
    reader = reader_of(tick)
    about = _about_in(reader)
    other, jitter = reader.record.get("other", ""), float(str(about.get("jitter", 0)))
    schedule = reader.get("other", partial(schedule_from, about), None) or schedule_from(about)
    last, events = reader.instant("last") or now, history.read(name, lines)
    if schedule is None:
        coming = [at] if (at := reader.instant("next")) and at > last else []
    else:
        coming = _upcoming(name, schedule, last, now, jitter, upcoming)
    return EntryStatus(
        name=name,
        source=reader.record["source"],
        task=str(about["task"]),
        key=about.get("key"),
        when=_when(other or str(about["schedule"]), about),
        text=other or str(about["schedule"]),
        since=last,
        upcoming=tuple(coming),
        other=other,
        omitted=reader.instant("omit"),
        omitted_by=reader.act("omitted"),
        when_busy=str(about.get("when_busy", "queue")),
        misfire=str(about.get("misfire", "once")),
        paused=reader.act("paused"),
        changed=reader.act("changed"),
        last=next((one for one in reversed(events) if one.kind != "act"), None),
        ran=history.last_run(events),
        failing=history.failing_since(events),
    )


def _about_in(reader: FieldReader) -> dict[str, Json]:
    """The JSON that a beat wrote to Redis about an entry; if it is damaged, one with an empty task and schedule."""
    return reader.json("about", dict) or {"task": "", "schedule": "", "opaque": True}


def _when(text: str, about: Mapping[str, Json]) -> str:
    zone, jitter = about.get("zone"), float(str(about.get("jitter", 0)))
    parts = [f"{text} ({zone})" if zone and not text.startswith("every ") else text]
    parts += [f"up to {jitter:g} s later"] if jitter else []
    bounds = (("from", "first"), ("until", "last"))
    parts += [f"{word} {moment(datetime.fromisoformat(str(about[name])))}" for word, name in bounds if name in about]
    return ", ".join(parts)


def _upcoming(name: str, schedule: Schedule, last: datetime, now: datetime, jitter: float, most: int) -> list[datetime]:
    """The next `most` instants of the entry `name` that no beat has taken, and that are still to be sent. `last`: the
    last instant taken; `jitter`: seconds.
    """
    instants: list[datetime] = []
    at = schedule.next(max(last, now - timedelta(seconds=jitter)))
    looked = 0
    while at is not None and len(instants) < most:
        if at + jitter_of(name, at, jitter) > now:
            instants.append(at)
        looked += 1
        at = schedule.next(at if looked < COUNTED else max(at, now))
    return instants
