"""Says in some sentences why a thing is where it is: what is wrong first, and then where the thing stands.

A sentence has one fact a clause. It names things; their ids, fences and leases are in the causes below it.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.core.jobs.validation import shown_lane
from coordinator.ops.diagnosis.cause import Cause
from coordinator.ops.diagnosis.codes import called, counted, nth

_CLOSED = ("waiting.paused", "waiting.cooldown")
_WRONG = (*_CLOSED, "held", "held.cause", "waiting.fleet", "waiting.node", "running.orphan", "damaged", "event.unset")
_WELL = ("node.busy", "node.full", "node.idle", "node.lacks", "node.offered")
# Code of what rejects all nodes -> what no node has, and what to do.
_NONE = {
    "rejected.app": ("is of the app {}", "Start a worker of that app"),
    "rejected.queue": ("serves the queue {}", "Start a worker that serves it"),
    "rejected.label": ("has the label {}", "Start a worker that has it"),
    "rejected.task": ("has the task {}", "Start a worker that has it, or give its jobs another task"),
}
_WANTS = {
    "rejected.app": "the app {}",
    "rejected.queue": "the queue {}",
    "rejected.label": "the label {}",
    "rejected.task": "{}",
}


def sentence(thing: str, causes: Sequence[Cause]) -> str:
    """Return the answer in short, made of the causes of a thing."""
    first = causes[0]
    if first.code.startswith("node.") and thing.startswith("node "):
        return _of_node(thing, causes)
    if line := next((cause for cause in causes if cause.code == "lane.line" and cause.thing == thing), None):
        return _of_line(line, causes)
    end = _end(causes)
    closed = [cause for cause in causes if cause.code in _CLOSED][:1]
    wrong = [*closed, *([end] if end.code in _WRONG else [])]
    told = list(dict.fromkeys(map(_key, [*wrong, first, end])))
    by_key = {_key(cause): cause for cause in (*wrong, first, end)}
    said = [_clause(by_key[key], causes, place) for place, key in enumerate(told)]
    others = len({cause.thing for cause in causes if not cause.of} - {cause.thing for cause in (end, *closed)})
    if others:
        said.append(f"{counted(others, 'other reason')} below.")
    return " ".join(said)


def _name(cause: Cause) -> str:
    return called(cause.thing, str(cause.facts.get("task") or ""))


def _key(cause: Cause) -> tuple[str, str, str]:
    return cause.code, cause.thing, cause.text


def _end(causes: Sequence[Cause]) -> Cause:
    """Return the last cause of the chain that begins with the first one."""
    end, passed = causes[0], set[str]()
    while end.of and end.thing not in passed:
        passed.add(end.thing)
        ahead = (cause for cause in causes if cause.thing in end.of and cause.thing not in passed)
        end = next(ahead, None) or next((cause for cause in causes if not cause.of), end)
    return end


def _clause(cause: Cause, causes: Sequence[Cause], place: int) -> str:
    """Write a cause as a sentence. `place`: how many sentences stand before it."""
    if cause.code == "waiting.node":
        return _unserved(cause, causes)
    text = cause.text
    if cause.code == "held" and any(_stops(cause, other) for other in causes):
        text = f"Lane {shown_lane(str(cause.facts['key']))} is stopped: {text}"
    elif cause.code == "waiting.lane" and place and any(_stops(other, cause) for other in causes):
        text = f"{_name(cause)} is {nth(int(str(cause.facts['place'])))} in line"
    return text if text.endswith(".") else f"{text}."


def _stops(held: Cause, other: Cause) -> bool:
    """True if the job of `held` has the lane for which the thing of `other` waits, or which `other` is about."""
    if held.code != "held" or held.thing not in other.of:
        return False
    return other.code == "lane.held" or (other.code == "waiting.lane" and other.facts.get("key") == held.facts["key"])


def _unserved(cause: Cause, causes: Sequence[Cause]) -> str:
    """Say what no node has that a job wants; or, where each lacks something else, who lacks what."""
    lacks = [one for one in causes if one.code.startswith("rejected.") and one.thing == cause.thing]
    if len(lacks) == 1 and lacks[0].code in _NONE:
        (has, advice), facts = _NONE[lacks[0].code], lacks[0].facts
        return f"No node {has.format(facts['lacks'])} ({facts['count']} of {facts['nodes']} asked). {advice}."
    return f"{cause.text}."


def _of_line(first: Cause, causes: Sequence[Cause]) -> str:
    """Say why nothing runs in a lane whose first job was not started."""
    lane = f"Nothing runs in {shown_lane(str(first.facts['key']))}: its first job"
    waits = next((cause for cause in causes if cause.thing in first.of), None)
    closed = [cause.text for cause in causes if cause.code in _CLOSED and cause is not waits][:1]
    if waits is None:
        said = [first.text]
    elif waits.code == "waiting.lane":
        end = _end(causes)
        where = f"{lane}, {_name(waits)}, also needs {shown_lane(str(waits.facts['key']))}"
        said = [f"{where}, where {_standing(end)}"] if end.thing in waits.of else [where, end.text]
    elif waits.text.startswith(name := _name(waits)):
        said = [f"{lane}, {name}, {waits.text.removeprefix(f'{name} ')}"]
    else:
        said = [f"{lane} is {name}", _clause(waits, causes, 1).rstrip(".")]
    return " ".join(f"{one}." for one in dict.fromkeys([*closed, *said]))


def _standing(cause: Cause) -> str:
    """Say in short what a job does that has a lane which another one needs, too."""
    if cause.code == "held":
        return f"{_name(cause)} failed and waits for you"
    return cause.text


def _of_node(thing: str, causes: Sequence[Cause]) -> str:
    """Say how a node is: first what is wrong with it, then how busy it is, then which ready jobs are not for it."""
    name, own = called(thing), [cause for cause in causes if cause.thing == thing]
    wrong = [cause for cause in own if cause.code not in _WELL]
    busy = next((cause for cause in own if cause.code in ("node.busy", "node.idle")), None)
    said = [cause.text for cause in wrong]
    if busy:
        slots = f"{busy.facts['taken']} of {busy.facts['capacity']} slots busy"
        said.append(f"{name} has {slots}" if wrong else f"{name} is well: {slots}")
    said += [cause.text for cause in own if cause.code in ("node.full", "node.offered")]
    if lacks := [cause for cause in own if cause.code == "node.lacks"]:
        said.append(_not_for_it(lacks))
    elif busy and busy.code == "node.idle" and not wrong:
        said[-1] += ", and no job is ready for it"
    return " ".join(f"{one}." for one in said)


def _not_for_it(lacks: Sequence[Cause]) -> str:
    """Say how many ready jobs are not for a node, and what these want."""
    counts = [int(str(cause.facts["count"])) for cause in lacks]
    wanted = [_WANTS[str(cause.facts["code"])].format(cause.facts["lacks"]) for cause in lacks]
    verbs = ["want" + "s" * (counts[0] == 1), *[""] * len(lacks)]
    each = zip(map(str, counts), verbs, wanted, strict=False)
    parts = [" ".join(filter(None, one)) for one in each]
    are = "are" if sum(counts) != 1 else "is"
    return f"{counted(sum(counts), 'ready job')} {are} not for it ({', '.join(parts)})"
