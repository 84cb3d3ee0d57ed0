"""What must hold of what Redis keeps, where the model knows nothing of it: ttls, courses of jobs, counts by task."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from json import loads

from proof.model.raw import Dump
from proof.model.record import TERMINAL


def broken(dump: Dump) -> Iterator[str]:
    """What does not hold, a sentence each."""
    yield from _crowded(dump)
    for name in dump.held:
        if name.startswith(("lock:", "turn:")) and name not in dump.fading:
            yield f"{name} has no ttl"
    records = dump.records()
    for name, record in records.items():
        lines = [loads(line) for line in record.get("course", "").splitlines()]
        words = Counter(line["what"] for line in lines)
        back = [line["at"] - then["at"] for line, then in pairwise(lines)]
        if len(lines) > 50 or any(ms >= 500 for ms in back):  # the clock goes back by less
            yield f"the course of {name} is too long, or in disorder: {lines}"
        if len(lines) < 50 and words["lost"] - words["found"] < int(record.get("losses", 0)):
            yield f"{name} was lost {record['losses']} times, its course tells {words}"
    by_task = dump.held.get("counts", {})
    over = [record for record in records.values() if "task" in record and record["state"] in TERMINAL]
    kept = Counter(f"{record['state']}\n{record['task']}" for record in over)
    for what, number in kept.items():
        if int(by_task.get(what, 0)) < number:
            yield f"{what!r} are counted {by_task.get(what, 0)}, kept are {number}"


def _crowded(dump: Dump) -> Iterator[str]:
    """Nodes whose score is not their share of occupied slots: they would be rung too often, or not at all. One whose
    processors are used up comes behind all that are less than half full; how busy they are else, and whose turn it is,
    counts for less. How fast its jobs run is measured later than it counts.
    """
    for name, score in dump.scores("room").items():
        about, held = dump.under("node")[name], dump.under("work").get(name, ())
        occupied = len(held) + len(dump.under("rung").get(name, ())) + int(about["ordinary"])
        share = occupied / int(about["capacity"])
        due = 0.5 + share / 2 if about.get("braked") == "1" and share < 1 else share
        if not {"deaf", "pace"} & about.keys() and abs(score - due) > 0.1:
            yield f"{name} has a score of {score}, and {occupied} of its {about['capacity']} slots are occupied"
