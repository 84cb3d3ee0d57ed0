"""What must hold in Redis after every step, whatever was called: docs/lanes.md and docs/execution.md.

Reads the keys as they are, spelled out here anew; shares nothing with the coordinator or the model.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from json import loads
from typing import Any

from proof.model.raw import Dump

ENDS = {"succeeded", "failed", "rolled_back", "double_fault", "cancelled", "expired"}
ACTING = {"ready", "running", "retrying", "parked", "held"}
PAUSED, LIMIT = "\1paused", "\1limit"
MARKS = (PAUSED, LIMIT)

Record = dict[str, str]


class Held:
    """One dump, its parts named once."""

    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        last, offset, uptime, away, _ = map(int, dump.held["clock"].split())
        self.now = max(last, int(dump.held["time"]) + offset)
        self.uptime = max(uptime, self.now - away)
        self.records = dump.records()
        self.lines = dump.under("line")
        self.limits = {key: int(text.partition("{")[0]) for key, text in dump.held.get("limits", {}).items()}
        self.locks: dict[tuple[str, str], str] = {}
        slots = {f"1:{key}": value for key, value in dump.under("lock").items()} | dump.under("slot")
        for name, value in slots.items():
            slot, _, key = name.partition(":")
            token, _, till = value.rpartition(" ")
            if int(till) > self.now:  # Redis may keep it longer than it counts
                self.locks[key, slot] = token
        self.live = {name: one for name, one in self.records.items() if one["state"] not in ENDS}
        self.leases = {**dump.scores("leases"), **dump.scores("locks")}

    def line(self, key: str) -> list[str]:
        return [name for name, _ in self.lines.get(key, []) if name not in MARKS]

    def paused(self, key: str) -> bool:
        return PAUSED in dict(self.lines.get(key, ()))

    def limit(self, key: str) -> int:
        return self.limits.get(key, 1)

    def within(self, name: str, key: str) -> bool:
        """May it start, as far as this lane goes?"""
        line = self.line(key)
        if name not in line:
            return False
        ahead = line[: line.index(name)]
        heavy = bool(ahead) and any(self.records.get(one, {}).get("exclusive") for one in [*ahead, name])
        return not self.paused(key) and len(ahead) < self.limit(key) and not heavy

    def waits(self, name: str) -> bool:
        return name in self.live and self.live[name]["state"] == "waiting"

    def started(self, key: str) -> list[str]:
        return [name for name in self.line(key) if name in self.live and self.live[name]["state"] in ACTING]


def keys_of(record: Record) -> list[str]:
    return record["keys"].split("\n")


def broken(held: Held) -> list[str]:
    """What does not hold, a sentence each."""
    checks = (
        in_line,
        started_in_front,
        nobody_stuck,
        leases_and_locks,
        ready_lists,
        sets,
        clocks,
        counts,
        coalescing,
        ended,
        listed,
        told,
    )
    return [sentence for check in checks for sentence in check(held)]


def in_line(held: Held) -> Iterator[str]:
    for name, record in held.live.items():
        standing = {key: dict(held.lines.get(key, [])).get(name) for key in keys_of(record)}
        if record["state"] in ("scheduled", "collected"):
            if any(score is not None for score in standing.values()):
                yield f"{name} is {record['state']} and stands in line: {standing}"
        elif None in standing.values():
            yield f"{name} is {record['state']} and stands not in all its lines: {standing}"
        elif len(set(standing.values())) > 1:
            yield f"{name} has not one score in all its lines: {standing}"
    for key, line in held.lines.items():
        for name, _ in line:
            if name not in MARKS and (name not in held.live or key not in keys_of(held.live[name])):
                yield f"{name} stands in line {key} and has no business there"


def started_in_front(held: Held) -> Iterator[str]:
    for key in held.lines:
        started = held.started(key)
        if started != held.line(key)[: len(started)]:
            yield f"{started} were started on {key}, in line stand {held.line(key)}"


def nobody_stuck(held: Held) -> Iterator[str]:
    for name, record in held.live.items():
        if record["state"] == "waiting" and all(held.within(name, key) for key in keys_of(record)):
            yield f"{name} waits and may start"
    for name in held.live:
        path: list[str] = []
        while name not in path and held.waits(name):
            path.append(name)
            lines = [held.line(key) for key in keys_of(held.live[name]) if not held.within(name, key)]
            before = [line[0] for line in lines if line and line[0] != name]
            name = before[0] if before else name
        if len(path) > 1 and held.waits(name) and name in path[:-1]:
            yield f"{path} wait for each other"


def leases_and_locks(held: Held) -> Iterator[str]:
    running = {name for name, record in held.live.items() if record["state"] == "running"}
    if set(held.leases) != running:
        yield f"leases are of {sorted(held.leases)}, running are {sorted(running)}"
    for name in running & set(held.leases):
        record = held.live[name]
        slots = record.get("slots", "").split() or ["1"] * len(keys_of(record))
        for key, slot in zip(keys_of(record), slots, strict=True):
            if held.locks.get((key, slot)) != record.get("token") and held.now == held.uptime < held.leases[name]:
                yield f"{name} is at work on {key} and its lock {slot} is of {held.locks.get((key, slot))}"
        if ("class" in record) != (name in held.dump.scores("leases")):
            yield f"the lease of {name} is in the wrong set"
    for (key, slot), token in held.locks.items():
        tokens = [held.live[name].get("token") for name in held.started(key) if name in running]
        if token not in tokens:
            yield f"lock {slot} of {key} is of {token}, at work are {tokens}"
    for name in held.dump.held:
        if name.startswith(("lock:", "slot:")) and name not in held.dump.fading:
            yield f"{name} has no ttl"


def ready_lists(held: Held) -> Iterator[str]:
    groups = held.dump.under("group")
    listed = Counter(
        (kind, name) for where, names in groups.items() for kind in [where.partition("\n")[2]] for name, _ in names
    )
    ready = Counter((record["class"], name) for name, record in held.live.items() if record["state"] == "ready")
    if listed != ready:
        yield f"ready lists hold {dict(listed)}, ready are {dict(ready)}"
    turns = Counter(f"{group}\n{kind}" for kind, names in held.dump.under("ready").items() for group in names)
    if turns != Counter(list(groups)):
        yield f"turns are of {dict(turns)}, something ready have {list(groups)}"


def sets(held: Held) -> Iterator[str]:
    if held.dump.held.get("ready", set()) != set(held.dump.under("ready")):
        yield f"ready has {held.dump.held.get('ready')}, something ready have {list(held.dump.under('ready'))}"
    for state in ("ready", "scheduled", "collected", "retrying", "parked", "held"):
        named = held.dump.held.get(f"state:{state}", set())
        are = {name for name, record in held.live.items() if record["state"] == state}
        if named != are:
            yield f"state:{state} has {named}, {state} are {are}"
    rolling = {name for name, record in held.live.items() if record.get("phase") == "rollback"}
    if held.dump.held.get("state:rolling_back", set()) != rolling:
        yield f"state:rolling_back has {held.dump.held.get('state:rolling_back')}, rolling back are {rolling}"
    for name in rolling:
        if held.live[name]["state"] not in ("ready", "running", "parked"):
            yield f"{name} is rolled back and {held.live[name]['state']}"
    for what, mark in (("paused", PAUSED), ("limits", LIMIT)):
        marked = {key for key, line in held.lines.items() if mark in dict(line)}
        if set(held.dump.held.get(what, {})) != marked:
            yield f"{what} has {set(held.dump.held.get(what, {}))}, marks stand in {marked}"
    if set(held.dump.scores("lanes")) != set(held.lines):
        yield f"lanes has {held.dump.scores('lanes')}, lines are {set(held.lines)}"


def clocks(held: Held) -> Iterator[str]:
    due = {name for name, record in held.live.items() if record["state"] in ("scheduled", "retrying")}
    starts = held.dump.scores("due") | held.dump.scores("starts")
    if set(starts) != due:
        yield f"due and starts have {starts}, waiting for their time are {due}"
    expiry = held.dump.scores("expiry") | held.dump.scores("latest")
    for name in expiry:
        if name not in held.live:
            yield f"expiry has {name}, which is over"
    for name, record in held.live.items():
        idle = record["state"] in ("ready", "retrying", "parked", "held") and "attempt" in record
        if idle and "taken" in record and name not in expiry:
            yield f"{name} was taken, is {record['state']} and never expires"
        if record.get("expires") and "taken" not in record and name not in expiry:
            yield f"{name} must be started in time and nothing ends it"
    parked = {name for name, record in held.live.items() if record["state"] == "parked"}
    looked = {name for looks in held.dump.under("parked").values() for name, _ in looks}
    if not parked <= looked:
        yield f"nobody looks at {parked - looked}"


def counts(held: Held) -> Iterator[str]:
    by_task = {name: int(number) for name, number in held.dump.held.get("counts", {}).items()}
    counted: Counter[str] = Counter()
    for name, number in by_task.items():
        counted[name.partition("\n")[0]] += number
    live = sum("class" in record for record in held.live.values())
    outcomes = sum(counted.get(state, 0) for state in ENDS)
    if counted.get("created", 0) != live + outcomes:
        yield f"created are {counted.get('created', 0)}, there are {live} and ended {outcomes}"
    jobs = [record for record in held.records.values() if "task" in record]
    kept = Counter(f"{record['state']}\n{record['task']}" for record in jobs if record["state"] in ENDS)
    for name, number in kept.items():
        if by_task.get(name, 0) < number:
            yield f"{name!r} are counted {by_task.get(name, 0)}, kept are {number}"


def coalescing(held: Held) -> Iterator[str]:
    coalesces, coalesced = held.dump.under("equal"), held.dump.scores("coalesced")
    for what, name in coalesces.items():
        record = held.live.get(name)
        if not record or not what.startswith(record.get("equal", "-") + ":") or "taken" in record:
            yield f"what comes coalesces into {name}, which is {record and record['state']}"
    for name, record in held.live.items():
        if record.get("equal") and name not in coalesces.values():
            yield f"nothing can coalesce into {name}"
    for alias, record in held.dump.under("job").items():
        of = record.get("alias")
        if of is not None and alias not in held.dump.held.get(f"aliases:{of}", ()):
            yield f"{alias} is an alias of {of}, which does not know"
        if of is not None and (of in held.live) == (of in coalesced):
            yield f"{alias} is to be forgotten with {of}, whose alias it is, and {of} is {held.live.get(of)}"


def listed(held: Held) -> Iterator[str]:
    """Each job that is over is listed by its end, and by each of its keys."""
    runs = held.dump.scores("lane-runs")
    for name, record in held.records.items():
        if record["state"] not in ENDS or "task" not in record:
            continue
        at = held.dump.scores(f"ended:{record['state']}").get(name)
        if at != int(record["ended"]):
            yield f"{name} is {record['state']} since {record['ended']} and listed at {at}"
        if not {f"{key}\0{record['ended']}\0{name}" for key in keys_of(record)} <= runs.keys():
            yield f"{name} is over and not listed in all its lanes"


def told(held: Held) -> Iterator[str]:
    for name, record in held.records.items():
        lines = [loads(line) for line in record.get("course", "").splitlines()]
        words = Counter(line["what"] for line in lines)
        back = [line["at"] - then["at"] for line, then in pairwise(lines)]
        if len(lines) > 50 or any(ms >= 500 for ms in back):  # the clock goes back by less
            yield f"the course of {name} is too long, or in disorder: {lines}"
        if len(lines) < 50 and words["lost"] - words["found"] < int(record.get("losses", 0)):
            yield f"{name} was lost {record['losses']} times, its course tells {words}"


def ended(held: Held) -> Iterator[str]:
    places: dict[str, Any] = {name: dict(line) for name, line in held.lines.items()}
    places |= {
        name: dict(held.dump.held.get(name, ())) for name in ("leases", "locks", "due", "starts", "expiry", "latest")
    }
    apart = (*ACTING, "scheduled", "collected")
    places |= {f"state:{state}": held.dump.held.get(f"state:{state}", ()) for state in apart}
    for name, record in held.records.items():
        if (record["state"] in ENDS) != (f"job:{name}" in held.dump.fading):
            yield f"{name} is {record['state']}; it has {'a' if f'job:{name}' in held.dump.fading else 'no'} ttl"
        if record["state"] in ENDS and (left := [place for place, names in places.items() if name in names]):
            yield f"{name} is over and left in {left}"
