"""What must hold of every history, each a function of its own: it yields what it finds wrong, with the place, and None
for each thing that it looked at and found right: one that looked at nothing has shown nothing.

They know nothing of the coordinator but what its documentation promises. `proof/planted.py` has a wrong history for
each way in which each of them may say no.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from proof import IDLE
from proof.history import SECOND, Event, History, Run

SILENCE = 8 * SECOND  # after a fault: `node_ttl`, and until a busy machine has started a warden again
NOTHING = "holds"  # what is said where nothing is wrong
# What an end of each kind of job is, whatever befell it.
ENDS = {"fails": {"rolled_back"}, "dies": {"failed"}, "cancelled": {"cancelled", "succeeded"}}


class Wrong(NamedTuple):
    """`event`: the index of the one that shows it, -1 where none does."""

    event: int
    text: str


class Look(NamedTuple):
    """What a checker looked at, and what was wrong."""

    at: int
    wrong: list[Wrong]


Checker = Callable[[History], Iterator[Wrong | None]]


def one_at_a_time(history: History) -> Iterator[Wrong | None]:
    """In a lane no more run at once than its limit; beyond that only one whose lease may have ended, since it was made
    late itself, and it changes nothing any more."""
    last = _last_effects(history)
    for key, runs in _by_key(history).items():
        limit = history.limit(key)
        for place, run in enumerate(runs):
            beside = [one for one in runs[:place] if one.ended and one.ended.index > run.begun.index]
            living = [one for one in beside if not _is_late(history, one, run)]
            if limit == 1 and not living:
                pairs = [(one, run) if one.fence < run.fence else (run, one) for one in beside]
                living = [old for old, _ in pairs if last.get((key, old.fence), -1) > run.begun.index]
            wrong = len(living) >= limit
            yield Wrong(run.begun.index, f"{key}: {run.job} beside {[one.job for one in living]}") if wrong else None


def _is_late(history: History, one: Run, other: Run) -> bool:
    """Of two at once, may the one of the older fence be late?"""
    old = min(one, other, key=lambda run: run.fence)
    return old.fence < max(one.fence, other.fence) and history.late(
        old.begun.process, old.begun.time, max(one.begun.time, other.begun.time)
    )


def _last_effects(history: History) -> dict[tuple[str, int], int]:
    """By lane and fence, the last event in which an effect was applied."""
    writes = history.of("write")
    return {
        (str(event.value["cell"]), int(event.value["fence"])): event.index
        for event in writes
        if event.value["outcome"] == "applied"
    }


def in_order(history: History) -> Iterator[Wrong | None]:
    """Of two jobs in a lane, the one whose submit was answered before the other's began has its last run before.

    One that the store lost has no last run: `at_least_once` says whether it may be lost.
    """
    asked: dict[str, int] = {}
    answered: dict[str, int] = {}
    lanes: dict[str, list[str]] = defaultdict(list)
    for event in history.of("submit"):
        job = str(event.value["job"])
        if event.type == "invoke" and job not in asked:
            asked[job] = event.index
            for key in event.value["keys"]:
                if history.limit(key) == 1:
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
                    yield Wrong(asked[later], text) if wrong else None


def at_least_once(history: History) -> Iterator[Wrong | None]:
    """Each job that was accepted ended as it was to end, and ran for that, but for what the store itself lost."""
    ends = {str(event.value["job"]): event for event in history.of("job")}
    done = {run.job for run in history.runs if run.ended and run.ended.type == "ok"}
    asked = {str(event.value["job"]): event.time for event in history.of("submit", "invoke")}
    for event in history.of("submit", "ok"):
        yield None
        job, kind = str(event.value["job"]), str(event.value["kind"])
        end = ends.get(job)
        state = str(end.value["state"]) if end else "unknown"
        if state == "unknown" and history.lost(asked[job], event.time):
            continue
        dropped = kind == "parts" and any(fault.drops for fault in history.faults)
        if dropped and end and (end.value.get("error") or {}).get("type") == "TimedOut":
            continue  # it waited for a message or a result that Celery lost
        if end and state == "double_fault" and (end.value.get("fault") or {}).get("type") == "Lost":
            continue  # the process of its rollback was lost, which nobody begins again
        if state not in ENDS.get(kind, {"succeeded"}):
            yield Wrong(event.index, f"{job} ({kind}) is {state}")
        elif state == "succeeded" and job not in done:
            yield Wrong(event.index, f"{job} is said to have succeeded, and no run of it ended")


def effects_once(history: History) -> Iterator[Wrong | None]:
    """Of each job that succeeded each effect was applied once, and no cell took an older fence after a newer one.

    Where a cell refused it, and the store has lost the claim with the newer fence since, the older one is the holder
    again: it ends, though what it writes to knows better.
    """
    applied: Counter[tuple[str, str]] = Counter()
    greatest: dict[str, int] = defaultdict(int)
    newer: dict[str, int] = {}  # cell: when its greatest fence came
    refused: dict[tuple[str, str], int] = {}
    for event in history.events:
        if event.f == "run" and event.type == "invoke":
            for key in event.value["keys"]:
                if history.limit(key) == 1 and int(event.value["fence"]) > greatest[key]:
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
                yield Wrong(event.index, f"{cell}: fence {fence} after {greatest[cell]}")
            greatest[cell] = max(greatest[cell], fence)
    for (cell, what), times in applied.items():
        if times > 1:
            yield Wrong(-1, f"{cell}: {what} was applied {times} times")
    succeeded = {str(event.value["job"]) for event in history.of("job") if event.value["state"] == "succeeded"}
    for event in history.of("submit", "ok"):
        for cell, what in event.value.get("effects", []) if event.value["job"] in succeeded else ():
            gone = (cell, what) in refused and history.lost(refused[cell, what], history.events[-1].time)
            if not applied[cell, what] and not gone:
                yield Wrong(event.index, f"{cell}: {what} was never applied")


def fences_grow(history: History) -> Iterator[Wrong | None]:
    """A fence is given once, and the runs of a lane have growing ones, but for one that was late to begin."""
    holders: dict[int, tuple[str, object]] = {}
    for run in history.runs:
        holder = run.job, run.begun.value.get("attempt")
        if holders.setdefault(run.fence, holder) != holder:
            yield Wrong(run.begun.index, f"fence {run.fence} of {holders[run.fence]} was given to {holder}")
    for key, runs in _by_key(history).items():
        greatest: Run | None = None
        for run in runs if history.limit(key) == 1 else ():
            yield None
            if greatest and run.fence < greatest.fence and not _is_late(history, run, greatest):
                yield Wrong(run.begun.index, f"{key}: fence {run.fence} of {run.job} after {greatest.fence}")
            greatest = run if greatest is None or run.fence > greatest.fence else greatest


def ticks_once(history: History) -> Iterator[Wrong | None]:
    """Each instant of a schedule had its effect, once, and none is missing between the first and the last."""
    effects: Counter[tuple[str, int]] = Counter()
    for event in history.of("write"):
        if "tick" in event.value and event.value["outcome"] == "applied":
            effects[str(event.value["tick"]), int(event.value["at"])] += 1
    for (name, at), times in effects.items():
        yield Wrong(-1, f"tick {name} of {at} had its effect {times} times") if times > 1 else None
    for name, every in history.about.get("ticks", {}).items():
        instants = {at for tick, at in effects if tick == name}
        if effects and not instants:
            yield Wrong(-1, f"of {name} no tick was seen")
        for at in range(min(instants, default=0), max(instants, default=0), every):
            if at not in instants:
                yield Wrong(-1, f"tick {name} of {at} is missing")


def one_winner(history: History) -> Iterator[Wrong | None]:
    """Of all that grab an instance, one at a time wins, and one completes it."""
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
                yield Wrong(event.index, f"{instance}: {who} {did} what {done.process} had completed")
        before = winner.get(instance)
        if event.type == "invoke":  # it won
            if before and before.process != who and not history.late(before.process, before.time, event.time):
                yield Wrong(event.index, f"{instance}: {who} won beside {before.process}")
            winner[instance] = event
        else:
            if event.type == "ok":
                complete[instance] = event
            if before and before.process == who:
                winner.pop(instance)


def sorted_in_batches(history: History) -> Iterator[Wrong | None]:
    """Orders that came within a second, and before any flush was due, ran in the order of their names."""
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
                yield Wrong(came[one].index, f"{one[0]}: {later[1]} ran before {one[1]}") if wrong else None


def _may_be_due(history: History, spans: dict[str, tuple[int, int]], since: int, until: int) -> bool:
    """May a flush have been due in this time? Orders were held, and no other had come for as long, or the clock was
    moved. `spans`: when each was asked for and answered; those that have begun by `since` are held no more."""
    begun = {run.job for run in history.runs if run.begun.time < since}
    held = [*sorted(span for job, span in spans.items() if span[0] < since and job not in begun), (since, until)]
    moved = [at for fault in history.faults if fault.way == "clock" for at in (fault.since, fault.until)]
    late = 2 * SECOND  # libfaketime looks for a new time once a second
    return any(came - asked > IDLE * SECOND for (asked, _), (_, came) in pairwise(held)) or any(
        at <= until and held[0][0] <= at + late for at in moved
    )


def documents_whole(history: History) -> Iterator[Wrong | None]:
    """A version of a document is the same everywhere, and has updates as a whole; a read that is not marked as stale
    gives what was known before it; what authors were told is there at the end, on all members."""
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
                yield Wrong(at, f"version {version} is another on {member}")
            if value["halves"]:
                yield Wrong(at, f"half an update is in version {version} on {member}")
            floor = floors.get((event.process, member), known[""])
            if version < floor and not value["stale"] and not history.lost(event.time - 10 * SECOND, event.time):
                yield Wrong(at, f"{member} has {version}, older than {floor}, which was known before")
            near = event.time - 5 * SECOND
            away = any(one.halts and one.since <= event.time and near <= one.until for one in history.faults)
            if value["stale"] and value.get("is_in_set") and not away:
                yield Wrong(at, f"{member} is in the replica set, and has not the newest version")
            if not value["stale"]:
                known[member] = max(known[member], version)
        if event.f == "document":
            for entry, (_, texts) in last.items():
                if value["state"].get(entry) not in texts:
                    yield Wrong(at, f"{entry} is {value['state'].get(entry)}, and not {texts}")
    ends = {(event.value["version"], event.value["sha"]) for event in history.of("document")}
    if sums and len(ends) != 1:
        yield Wrong(-1, f"the members end with {ends or 'nothing'}")


def _update(last: dict[str, tuple[int, set[str | None]]], event: Event, lost: bool) -> None:
    """Note what each entry may have at the end; where the update may be `lost`, that is what it may have had before."""
    for entry, text in event.value["changes"].items():
        version, texts = last.get(entry, (0, {None}))
        if (new := event.value["version"]) >= version:
            last[entry] = new, {text} | (texts if lost or version == new else set())


def events_once(history: History) -> Iterator[Wrong | None]:
    """Each item that was delivered has one event of its component, of a run that ended."""
    ended = {(run.job, run.fence) for run in history.runs if run.ended}
    events: dict[str, list[Event]] = defaultdict(list)
    for event in history.of("event"):
        if event.value["kind"] != "Data_Received":
            events[str(event.value["item"])].append(event)
    for event in history.of("deliver"):
        yield None
        item = str(event.value["item"])
        if len(events[item]) != 1:
            yield Wrong(event.index, f"{item} has {len(events[item])} events")
        for one in events[item]:
            if not one.value["success"] or (item, int(one.value["fence"])) not in ended:
                yield Wrong(one.index, f"the event of {item} is of no run that ended well")


def nobody_healthy_dies(history: History) -> Iterator[Wrong | None]:
    """A node that nobody harmed is never taken for dead."""
    for _ in history.of("node"):
        yield None
    for event in history.of("dead"):
        node, at = str(event.value["node"]), int(event.value["at"])
        if not any(
            one.since <= at and (one.gone or at <= one.until + SILENCE) and (one.halts or node in one.nodes)
            for one in history.faults
        ):
            yield Wrong(event.index, f"{node} was taken for dead")


def nothing_left(history: History) -> Iterator[Wrong | None]:
    """When all is over no key is without an owner, no lane is busy, no message waits."""
    for event in history.of("left"):
        for what, names in event.value.items():
            yield Wrong(event.index, f"{what}: {names}") if names else None
    if not any(history.of("left")):
        yield Wrong(-1, "nobody looked at what is left")


CHECKERS: tuple[Checker, ...] = (
    one_at_a_time, in_order, at_least_once, effects_once, fences_grow, ticks_once, one_winner, sorted_in_batches,
    documents_whole, events_once, nobody_healthy_dies, nothing_left,
)  # fmt: skip


# These look at what not every world has.
OF_WORLD = {"documents_whole": "documents", "events_once": "items"}


def looks(history: History) -> dict[str, Look]:
    """What each checker looked at, and found wrong, by its name."""
    found = {checker.__name__: list(checker(history)) for checker in CHECKERS}
    return {name: Look(len(all_), [one for one in all_ if one]) for name, all_ in found.items()}


def judge(history: History, all_look: bool = False) -> dict[str, list[Wrong]]:
    """What each checker finds wrong, by its name; `all_look`: also that it had nothing to look at."""
    looked = looks(history)
    found = {name: look.wrong for name, look in looked.items()}
    for name, look in looked.items() if all_look else ():
        if not look.at and OF_WORLD.get(name, "") in ("", *history.about["world"]):
            found[name] = [Wrong(-1, "it had nothing to look at")]
    return found


def _by_key(history: History) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in history.runs:
        for key in run.keys:
            found[key].append(run)
    return found


def _accepted(history: History) -> dict[str, int]:
    """The greatest fence under which a run of each job ended."""
    found: dict[str, int] = {}
    for run in history.runs:
        if run.ended:
            found[run.job] = max(found.get(run.job, 0), run.fence)
    return found
