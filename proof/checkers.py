"""The promises that every history must keep, a checker for each. It yields a Violation with its event, or None for each
thing that it checked and found right: a checker that had nothing to check has shown nothing.

Checkers rely only on what the documentation promises. `proof/planted.py` has a wrong history for each violation that
they may find.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from proof import IDLE
from proof.history import AFTER, SECOND, Event, History, Run
from proof.linear.judging import Objects, decisions
from proof.linear.reading import grabs, lanes, locks, quotas
from proof.linear.search import Answer

SILENCE = 8 * SECOND  # after a fault: `node_ttl`, and until a busy machine has started a supervisor again
JITTER = 2  # s by which a body may begin later than another, or that a jump of Redis' clock may count
NOTHING = "holds"  # the verdict without violations
# The states in which a job of each kind may end, whatever faults there were.
ENDS = {"fails": {"rolled_back"}, "unmet": {"failed"}, "dies": {"failed"}, "cancelled": {"cancelled", "succeeded"}}


class Violation(NamedTuple):
    """`event`: the index of the event that shows it, or -1."""

    event: int
    text: str


class Judgement(NamedTuple):
    """The result of one checker: how many things it checked, and the violations."""

    checked: int
    wrong: list[Violation]


Checker = Callable[[History], Iterator[Violation | None]]


def one_at_a_time(history: History) -> Iterator[Violation | None]:
    """One job of a lane runs at a time, except one whose lease may have ended since a fault delayed it, and which
    changes nothing any more."""
    last = _last_effects(history)
    for key, runs in _by_key(history).items():
        for place, run in enumerate(runs):
            beside = [one for one in runs[:place] if one.ended and one.ended.index > run.begun.index]
            living = [one for one in beside if not _is_late(history, one, run)]
            if not living:
                pairs = [(one, run) if one.fence < run.fence else (run, one) for one in beside]
                living = [old for old, _ in pairs if last.get((key, old.fence), -1) > run.begun.index]
            text = f"{key}: {run.job} beside {[other.job for other in living]}"
            yield Violation(run.begun.index, text) if living else None


def within_quota(history: History) -> Iterator[Violation | None]:
    """No more units of a quota are used at a time than there are, except by who may have been taken for lost."""
    for name, bounds in history.about.get("quotas", {}).items():
        runs = [run for run in history.runs if name in run.uses and "units" in bounds]
        for place, run in enumerate(runs):
            beside = [one for one in runs[:place] if one.ended and one.ended.index > run.begun.index]
            living = [one for one in beside if not _is_late(history, one, run)]
            used = sum(one.uses[name] for one in [*living, run])
            text = f"{name}: {used} units of {bounds['units']}, {run.job} beside {[one.job for one in living]}"
            yield Violation(run.begun.index, text) if used > bounds["units"] else None


def within_rate(history: History) -> Iterator[Violation | None]:
    """In no time do more units of a quota start than its rate and its burst allow. What a fault may have delayed
    between its claim and its beginning, one run of each process, is not counted.
    """
    for name, bounds in history.about.get("quotas", {}).items():
        runs = [run for run in history.runs if name in run.uses and "count" in bounds]
        runs = list(_on_time(history, runs))
        for place, first in enumerate(runs):
            started, since = 0, first.begun.time
            for run in runs[place:]:
                started += run.uses[name]
                seconds = (run.begun.time - since) / SECOND + JITTER * (1 + history.clocks(since, run.begun.time))
                allowed = bounds["burst"] + bounds["count"] * seconds / bounds["seconds"]
                text = f"{name}: {started} units started in {seconds:.1f} s, {allowed:.1f} may"
                yield Violation(run.begun.index, text) if started > allowed else None


def _on_time(history: History, runs: list[Run]) -> Iterator[Run]:
    """Without the first run of each process after a fault that it, or the store, had."""
    seen: set[tuple[int, str]] = set()
    for run in runs:
        process, at = run.begun.process, run.begun.time
        faults = [(place, one) for place, one in enumerate(history.faults) if one.since <= at <= one.until + AFTER]
        hit = {(place, process) for place, one in faults if one.halts or process.rpartition("/")[2] in one.victims}
        if hit <= seen:
            yield run
        seen |= hit


def _is_late(history: History, one: Run, other: Run) -> bool:
    """True if the one with the older fence may be late."""
    old = min(one, other, key=lambda run: run.fence)
    return old.fence < max(one.fence, other.fence) and history.late(
        old.begun.process, old.begun.time, max(one.begun.time, other.begun.time)
    )


def _last_effects(history: History) -> dict[tuple[str, int], int]:
    """By lane and fence, the last event that applied an effect."""
    writes = history.of("write")
    return {
        (str(event.value["cell"]), int(event.value["fence"])): event.index
        for event in writes
        if event.value["outcome"] == "applied"
    }


def in_order(history: History) -> Iterator[Violation | None]:
    """Of two jobs in a lane, the one whose submit was answered before the other's began has the earlier last run.

    A job that the store lost has no last run: `at_least_once` checks whether it may be lost.
    """
    asked: dict[str, int] = {}
    answered: dict[str, int] = {}
    lanes: dict[str, list[str]] = defaultdict(list)
    for event in history.of("submit"):
        job = str(event.value["job"])
        if event.type == "invoke" and job not in asked:
            asked[job] = event.index
            for key in event.value["keys"]:
                if history.is_lane(key) and "after" not in event.value:  # it joins its lanes later
                    lanes[key].append(job)
        elif event.type == "ok":
            answered.setdefault(job, event.index)
    accepted = _accepted(history)
    gone = {str(event.value["job"]) for event in history.of("job") if event.value["state"] == "unknown"}
    for key, jobs in lanes.items():
        ran = [job for job in jobs if job in accepted and job not in gone]
        for later in ran:
            for earlier in ran:
                if answered.get(earlier, asked[later]) < asked[later]:
                    wrong = accepted[earlier] > accepted[later]
                    text = f"{key}: {later} ran before {earlier}, which was in line before it"
                    yield Violation(asked[later], text) if wrong else None


def at_least_once(history: History) -> Iterator[Violation | None]:
    """Each accepted job ended in an expected state, after a run, unless the store itself lost it."""
    ends = {str(event.value["job"]): event for event in history.of("job")}
    done = {run.job for run in history.runs if run.ended and run.ended.type == "ok"}
    asked = {str(event.value["job"]): event.time for event in history.of("submit", "invoke")}
    relayed = {str(event.value["job"]): event.time for event in history.of("relayed")}
    for event in history.of("submit", "ok"):
        yield None
        job, kind = str(event.value["job"]), str(event.value["kind"])
        end = ends.get(job)
        state = str(end.value["state"]) if end else "unknown"
        if state == "unknown" and history.lost(asked[job], max(event.time, relayed.get(job, 0))):
            continue
        dropped = kind == "parts" and any(fault.drops for fault in history.faults)
        if dropped and end and (end.value.get("error") or {}).get("type") == "TimedOut":
            continue  # it waited for a message or a result that a fault let Celery lose
        if end and state == "double_fault" and (end.value.get("fault") or {}).get("type") == "Lost":
            continue  # a rollback whose process was lost is not repeated
        if state not in ENDS.get(kind, {"succeeded"}):
            yield Violation(event.index, f"{job} ({kind}) is {state}")
        elif state == "succeeded" and job not in done:
            yield Violation(event.index, f"{job} succeeded without a run that ended")


def effects_once(history: History) -> Iterator[Violation | None]:
    """Each effect of a succeeded job was applied once, and no cell accepted an older fence after a newer one.

    An effect may be missing if a cell refused it, and the store has lost the claim with the newer fence since: then the
    older job is the holder again, and ends, although its cell has seen the newer fence.
    """
    applied: Counter[tuple[str, str]] = Counter()
    greatest: dict[str, int] = defaultdict(int)
    newer: dict[str, int] = {}  # cell: when its greatest fence came
    refused: dict[tuple[str, str], int] = {}
    for event in history.events:
        if event.f == "run" and event.type == "invoke":
            for key in event.value["keys"]:
                if history.is_lane(key) and int(event.value["fence"]) > greatest[key]:
                    greatest[key], newer[key] = int(event.value["fence"]), event.time
        if event.f != "write":
            continue
        cell, fence = str(event.value["cell"]), int(event.value["fence"])
        if event.value["outcome"] == "refused" and cell in newer:
            refused[cell, str(event.value["what"])] = newer[cell]
        if event.value["outcome"] == "applied":
            yield None
            applied[cell, str(event.value["what"])] += 1
        if event.value["outcome"] != "refused":
            if fence < greatest[cell]:
                yield Violation(event.index, f"{cell}: fence {fence} after {greatest[cell]}")
            greatest[cell] = max(greatest[cell], fence)
    for (cell, what), times in applied.items():
        if times > 1:
            yield Violation(-1, f"{cell}: {what} was applied {times} times")
    succeeded = {str(event.value["job"]) for event in history.of("job") if event.value["state"] == "succeeded"}
    for event in history.of("submit", "ok"):
        for cell, what in event.value.get("effects", []) if event.value["job"] in succeeded else ():
            gone = (cell, what) in refused and history.lost(refused[cell, what], history.events[-1].time)
            if not applied[cell, what] and not gone:
                yield Violation(event.index, f"{cell}: {what} was never applied")


def after_causes(history: History) -> Iterator[Violation | None]:
    """A job runs once the jobs have succeeded, and the events were set, after which it is to run; and gets their
    results.
    """
    causes = {str(event.value["job"]): event.value["after"] for event in history.of("submit") if "after" in event.value}
    ready = {str(event.value["event"]): event for event in reversed([*history.of("set", "invoke")])}
    # A run that was paused and is fenced out ends long after the one that counts.
    ends = [(run.job, run.ended) for run in history.runs if run.ended and run.ended.type == "ok"]
    ready |= dict(sorted(ends, key=lambda end: -end[1].index))
    for run in history.runs:
        for place, cause in enumerate(causes.get(run.job, ())):
            yield None
            since = ready.get(cause)
            if since is None or since.index > run.begun.index:
                yield Violation(run.begun.index, f"{run.job} ran before {cause}")
            result = cause.partition("/")[2] or cause
            if (given := [*run.begun.value.get("given", ())][place : place + 1]) != [result]:
                yield Violation(run.begun.index, f"{run.job} got {given} of {cause}")


def fences_grow(history: History) -> Iterator[Violation | None]:
    """Each fence is given once, and the runs of a lane have growing ones, except a run that was late to begin."""
    holders: dict[int, tuple[str, object]] = {}
    for run in history.runs:
        holder = run.job, run.begun.value.get("attempt")
        if holders.setdefault(run.fence, holder) != holder:
            yield Violation(run.begun.index, f"fence {run.fence} of {holders[run.fence]} was also given to {holder}")
    for key, runs in _by_key(history).items():
        greatest: Run | None = None
        for run in runs:
            yield None
            if greatest and run.fence < greatest.fence and not _is_late(history, run, greatest):
                yield Violation(run.begun.index, f"{key}: fence {run.fence} of {run.job} after {greatest.fence}")
            greatest = run if greatest is None or run.fence > greatest.fence else greatest


def ticks_once(history: History) -> Iterator[Violation | None]:
    """Each instant of a schedule had its effect once; none is missing between the first and the last, nor in a
    backfill.
    """
    effects: Counter[tuple[str, int]] = Counter()
    for event in history.of("write"):
        if "tick" in event.value and event.value["outcome"] == "applied":
            effects[str(event.value["tick"]), int(event.value["at"])] += 1
    for (name, at), times in effects.items():
        yield Violation(-1, f"tick {name} of {at} had its effect {times} times") if times > 1 else None
    for name, every in history.about.get("ticks", {}).items():
        instants = {at for tick, at in effects if tick == name}
        if effects and not instants:
            yield Violation(-1, f"of {name} no tick was seen")
        for at in range(min(instants, default=0), max(instants, default=0), every):
            if at not in instants:
                yield Violation(-1, f"tick {name} of {at} is missing")
    for name, wanted in history.about.get("backfills", {}).items():
        for at in wanted:
            yield None if effects[name, at] else Violation(-1, f"the backfill of {name} lacks {at}")


def one_winner(history: History) -> Iterator[Violation | None]:
    """Of all grabs of an instance, one at a time wins, and one completes it."""
    winner: dict[str, Event] = {}
    complete: dict[str, Event] = {}
    for event in history.events:
        if event.f == "fault":
            killed = event.value.get("killed", [])
            winner = {instance: one for instance, one in winner.items() if one.process not in killed}
        if event.f != "grab":
            continue
        yield None
        instance, who = str(event.value["instance"]), event.process
        if instance in complete and event.type != "fail":
            done = complete[instance]
            if not history.lost(done.time - SECOND, event.time):
                did = "won" if event.type == "invoke" else "completed"
                yield Violation(event.index, f"{instance}: {who} {did} what {done.process} had completed")
        before = winner.get(instance)
        if event.type == "invoke":  # it won
            if before and before.process != who and not history.late(before.process, before.time, event.time):
                yield Violation(event.index, f"{instance}: {who} won beside {before.process}")
            winner[instance] = event
        else:
            if event.type == "ok":
                complete[instance] = event
            if before and before.process == who:
                winner.pop(instance)


def sorted_in_batches(history: History) -> Iterator[Violation | None]:
    """Orders that arrived within a second, before any flush was due, ran in the order of their names."""
    asked: dict[tuple[str, str], Event] = {}
    came: dict[tuple[str, str], Event] = {}
    for event in history.of("add"):
        (asked if event.type == "invoke" else came).setdefault((event.value["sorter"], event.value["order"]), event)
    accepted = _accepted(history)
    ran = sorted(pair for pair in came if "/".join(pair) in accepted)
    spans = {"/".join(one): (asked[one].time, came[one].time) for one in ran}
    for place, one in enumerate(ran):
        for later in ran[place + 1 :]:
            since, until = min(asked[one].time, asked[later].time), max(came[one].time, came[later].time)
            if one[0] == later[0] and until - since < SECOND and not _may_be_due(history, spans, since, until):
                wrong = accepted["/".join(one)] > accepted["/".join(later)] and not history.lost(since, until)
                yield Violation(came[one].index, f"{one[0]}: {later[1]} ran before {one[1]}") if wrong else None


def _may_be_due(history: History, spans: dict[str, tuple[int, int]], since: int, until: int) -> bool:
    """True if a flush may have been due in this time: no order came to held ones for IDLE, or the clock was moved.
    `spans`: when each order was added and acknowledged; those that began by `since` are no longer held."""
    begun = {run.job for run in history.runs if run.begun.time < since}
    held = [*sorted(span for job, span in spans.items() if span[0] < since and job not in begun), (since, until)]
    moved = [at for fault in history.faults if fault.way == "clock" for at in (fault.since, fault.until)]
    late = 2 * SECOND  # libfaketime reads a new time once a second
    return any(came - asked > IDLE * SECOND for (asked, _), (_, came) in pairwise(held)) or any(
        at <= until and held[0][0] <= at + late for at in moved
    )


def calls_in_one_job(history: History) -> Iterator[Violation | None]:
    """Each acknowledged call is in the list of exactly one job, once, in the order of its client; each attempt of a job
    has the same list."""
    asked: dict[str, Event] = {}
    answered: dict[str, Event] = {}
    for event in history.of("call"):
        (asked if event.type == "invoke" else answered).setdefault(str(event.value["job"]), event)
    last = history.events[-1].time if history.events else 0
    lists: dict[str, Run] = {}
    for run in (run for run in history.runs if "calls" in run.begun.value):
        first = lists.setdefault(run.job, run)
        if run.begun.value["calls"] != first.begun.value["calls"] and not history.lost(first.begun.time, last):
            yield Violation(run.begun.index, f"{run.job} has other calls than at its first attempt")
    accepted = _accepted(history)
    ran = sorted((run for job, run in lists.items() if job in accepted), key=lambda run: accepted[run.job])
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, run in enumerate(ran):
        for place, call in enumerate(run.begun.value["calls"]):
            places[str(call)].append((number, place))
    for call, event in answered.items():
        yield None
        jobs = [ran[number].job for number, _ in places[call]]
        if len(jobs) != 1 and not history.lost(asked[call].time, last):
            yield Violation(event.index, f"{call} is in {jobs or 'no job'}")
    yield from _calls_in_order(history, asked, answered, places)


def _calls_in_order(
    history: History, asked: dict[str, Event], answered: dict[str, Event], places: dict[str, list[tuple[int, int]]]
) -> Iterator[Violation | None]:
    """Of two calls of a lane, the one that was answered before the other was made is before it."""
    for later, event in asked.items():
        for earlier, answer in answered.items():
            if answer.index < event.index and answer.value["key"] == event.value["key"]:
                wrong = bool(places[earlier] and places[later]) and min(places[earlier]) > min(places[later])
                if wrong and not history.lost(asked[earlier].time, history.events[-1].time):
                    yield Violation(event.index, f"{event.value['key']}: {later} is before {earlier}")


def documents_whole(history: History) -> Iterator[Violation | None]:
    """A version of a document is the same on all members, and has whole updates only; a read that is not stale is not
    older than the versions known before it; all acknowledged updates are on all members at the end."""
    sums: dict[int, str] = {}
    known: dict[str, int] = defaultdict(int)  # by member; of authors, of all members
    floors: dict[tuple[str, str], int] = {}
    last: dict[str, tuple[int, set[str | None]]] = {}
    split = [span for fault in history.faults if fault.way == "split" for span in fault.lost]  # members lose it, too
    for event in history.events:
        at, value = event.index, event.value
        if event.f == "update" and event.type == "ok":
            known[""] = max(known[""], value["version"])
            _update(last, event, any(begun <= event.time <= end for begun, end in split))
        elif event.f == "read" and event.type == "invoke":
            floors[event.process, value["member"]] = max(known[""], known[value["member"]])
        elif event.f == "document" or (event.f == "read" and event.type == "ok"):
            yield None
            member, version = str(value["member"]), int(value["version"])
            if version and sums.setdefault(version, value["sha"]) != value["sha"]:
                yield Violation(at, f"version {version} differs on {member}")
            if value["halves"]:
                yield Violation(at, f"version {version} on {member} has half an update")
            floor = floors.get((event.process, member), known[""])
            if version < floor and not value["stale"] and not history.lost(event.time - 10 * SECOND, event.time):
                yield Violation(at, f"{member} has {version}, older than {floor}, which was known before")
            near = event.time - 5 * SECOND
            away = any(one.halts and one.since <= event.time and near <= one.until for one in history.faults)
            if value["stale"] and value.get("is_in_set") and not away:
                yield Violation(at, f"{member} is in the replica set without the newest version")
            if not value["stale"]:
                known[member] = max(known[member], version)
        if event.f == "document":
            for entry, (_, texts) in last.items():
                if value["state"].get(entry) not in texts:
                    yield Violation(at, f"{entry} is {value['state'].get(entry)}, not {texts}")
    ends = {(event.value["version"], event.value["sha"]) for event in history.of("document")}
    if sums and len(ends) != 1:
        yield Violation(-1, f"the members end with {ends or 'nothing'}")


def _update(last: dict[str, tuple[int, set[str | None]]], event: Event, lost: bool) -> None:
    """Note the values that each entry may have at the end; with earlier ones, where the update may be `lost`."""
    for entry, text in event.value["changes"].items():
        version, texts = last.get(entry, (0, {None}))
        if (new := event.value["version"]) >= version:
            last[entry] = new, {text} | (texts if lost or version == new else set())


def events_once(history: History) -> Iterator[Violation | None]:
    """Each delivered item has one event of its component, from a run that ended."""
    ended = {(run.job, run.fence) for run in history.runs if run.ended}
    events: dict[str, list[Event]] = defaultdict(list)
    for event in history.of("event"):
        if event.value["kind"] != "Data_Received":
            events[str(event.value["item"])].append(event)
    for event in history.of("deliver"):
        yield None
        item = str(event.value["item"])
        if len(events[item]) != 1:
            yield Violation(event.index, f"{item} has {len(events[item])} events")
        for one in events[item]:
            if not one.value["success"] or (item, int(one.value["fence"])) not in ended:
                yield Violation(one.index, f"the event of {item} is not from a run that succeeded")


def outbox_kept(history: History) -> Iterator[Violation | None]:
    """A job of an outbox finds what its transaction wrote, and none of a transaction that was rolled back ever runs."""
    for event in history.of("ship"):
        text = f"{event.value['job']} ran without the commit of its order"
        yield None if event.value["found"] else Violation(event.index, text)
    began = {run.job for run in history.runs}
    for event in history.of("submit", "fail"):
        job = str(event.value["job"])
        yield Violation(event.index, f"{job} was rolled back, and ran") if job in began else None


def nobody_healthy_dies(history: History) -> Iterator[Violation | None]:
    """A node without a fault is never declared dead."""
    for _ in history.of("node"):
        yield None
    for event in history.of("dead"):
        node, at = str(event.value["node"]), int(event.value["at"])
        if not any(
            one.since <= at and (one.gone or at <= one.until + SILENCE) and (one.halts or node in one.nodes)
            for one in history.faults
        ):
            yield Violation(event.index, f"{node} was declared dead")


def nothing_left(history: History) -> Iterator[Violation | None]:
    """At the end no key is without an owner, no lane is busy, and no message waits."""
    for event in history.of("left"):
        for what, names in event.value.items():
            yield Violation(event.index, f"{what}: {names}") if names else None
    if not any(history.of("left")):
        yield Violation(-1, "the end was not checked")


def as_a_lane(history: History) -> Iterator[Violation | None]:
    """Each lane is linearizable: a line and a lock could have answered like that, one thing at a time."""
    yield from _linear(history, lanes)


def as_a_lock(history: History) -> Iterator[Violation | None]:
    """Each lock of plain code is linearizable."""
    yield from _linear(history, locks)


def as_a_grab(history: History) -> Iterator[Violation | None]:
    """Each instance that is grabbed is linearizable."""
    yield from _linear(history, grabs)


def as_a_quota(history: History) -> Iterator[Violation | None]:
    """The units of each quota are linearizable."""
    yield from _linear(history, quotas)


def _linear(history: History, objects: Objects) -> Iterator[Violation | None]:
    """Each operation counts as checked. An object that is not decided is a violation, since nobody has judged it."""
    for one, (answer, at, met) in decisions(history, objects):
        if answer is Answer.YES:
            yield from (None for _ in one.operations)
        elif at and at.back is not None:
            did = f"{at.name} {', '.join(map(str, at.given))}"
            yield Violation(at.back, f"{one.name}: {answer} at {did}, after {met} configurations")


CHECKERS: tuple[Checker, ...] = (
    one_at_a_time, within_quota, within_rate, in_order, after_causes, at_least_once, effects_once, fences_grow,
    ticks_once, one_winner, sorted_in_batches, calls_in_one_job, documents_whole, events_once, outbox_kept,
    nobody_healthy_dies, nothing_left, as_a_lane, as_a_lock, as_a_grab, as_a_quota,
)  # fmt: skip


# Checkers of what only some worlds have.
OF_WORLD = {"documents_whole": "documents", "events_once": "items", "outbox_kept": "outbox"}


def judgements(history: History) -> dict[str, Judgement]:
    """The result of each checker, by name."""
    results = {checker.__name__: list(checker(history)) for checker in CHECKERS}
    return {name: Judgement(len(all_), [item for item in all_ if item]) for name, all_ in results.items()}


def judge(history: History, must_apply: bool = False) -> dict[str, list[Violation]]:
    """The violations that each checker finds, by name. `must_apply`: having nothing to check is one."""
    results = judgements(history)
    wrong = {name: result.wrong for name, result in results.items()}
    for name, result in results.items() if must_apply else ():
        if not result.checked and OF_WORLD.get(name, "") in ("", *history.about["world"]):
            wrong[name] = [Violation(-1, "it had nothing to check")]
    return wrong


def _by_key(history: History) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in history.runs:
        for key in filter(history.is_lane, run.keys):
            found[key].append(run)
    return found


def _accepted(history: History) -> dict[str, int]:
    """The greatest fence under which a run of each job ended."""
    found: dict[str, int] = {}
    for run in history.runs:
        if run.ended:
            found[run.job] = max(found.get(run.job, 0), run.fence)
    return found
