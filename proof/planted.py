"""Histories that are wrong on purpose, one for each way in which a checker may say no, and right ones that look alike.

A judge that cannot say no proves nothing: `python -m proof planted` shows each of these to all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import click

from proof.checkers import judge
from proof.history import SECOND, Event, History


class Script:
    """Writes a history line by line; `wait` lets seconds pass."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 0.0
        self.backfills: dict[str, list[int]] = {}

    def note(self, type: str, f: str, process: str = "n1/1", **value: Any) -> Self:
        self.now += 0.001
        self.events.append(Event(len(self.events), int(self.now * SECOND), process, type, f, value))
        return self

    def wait(self, seconds: float) -> Self:
        self.now += seconds
        return self

    def submit(self, job: str, *keys: str, kind: str = "plain", effects: bool = True) -> Self:
        self.note("invoke", "submit", job=job, kind=kind, keys=keys)
        wanted = [[key, f"{job} 0"] for key in keys] if effects else []
        return self.note("ok", "submit", job=job, kind=kind, keys=keys, effects=wanted)

    def undo(self, job: str, key: str) -> Self:
        """The transaction of an order is rolled back."""
        about: dict[str, Any] = {"job": job, "kind": "undone", "keys": [key]}
        return self.note("invoke", "submit", **about).note("fail", "submit", **about)

    def relay(self, job: str) -> Self:
        return self.note("info", "relayed", job=job)

    def ship(self, job: str, found: bool = True) -> Self:
        return self.note("info", "ship", job=job, found=found)

    def submit_after(self, job: str, key: str, *causes: str) -> Self:
        return self.note("invoke", "submit", job=job, kind="after", keys=[key], after=causes)

    def run_after(self, job: str, fence: int, key: str, *given: str) -> Self:
        about: dict[str, Any] = {"job": job, "keys": [key], "fence": fence, "step": 0, "attempt": 1, "given": given}
        return self.note("invoke", "run", **about).write(job, fence, key).end(job, fence)

    def set_event(self, event: str) -> Self:
        return self.note("invoke", "set", event=event)

    def begin(self, job: str, fence: int, *keys: str, attempt: int = 1, process: str = "n1/1", **uses: int) -> Self:
        """`uses`: the units of quotas."""
        about: dict[str, Any] = {"job": job, "keys": keys, "fence": fence, "step": 0, "attempt": attempt, "uses": uses}
        return self.note("invoke", "run", process, **about)

    def hold(self, job: str, fence: int, key: str, process: str = "n1/1") -> Self:
        """A lock in plain code."""
        return self.note("invoke", "run", process, job=job, keys=[key], fence=fence)

    def end_in(self, process: str, job: str, fence: int, type: str = "ok") -> Self:
        return self.note(type, "run", process, job=job, fence=fence, step=0)

    def starts(self, number: int, pause: float, since: int = 0) -> Self:
        """So many of the quota `pace`, one after the other, in a process each."""
        for place in range(since, since + number):
            process = f"n1/{1000 + place}"
            self.begin(f"p{place}", 1000 + place, process=process, pace=1)
            self.note("ok", "run", process, job=f"p{place}", fence=1000 + place, step=0).wait(pause)
        return self

    def write(self, job: str, fence: int, *keys: str, outcome: str = "applied", **value: Any) -> Self:
        for key in keys:
            self.note("info", "write", cell=key, fence=fence, what=f"{job} 0", outcome=outcome, **value)
        return self

    def end(self, job: str, fence: int, type: str = "ok") -> Self:
        return self.note(type, "run", job=job, fence=fence, step=0)

    def run(self, job: str, fence: int, *keys: str) -> Self:
        return self.begin(job, fence, *keys).write(job, fence, *keys).end(job, fence)

    def is_(self, job: str, state: str = "succeeded", error: str = "", fault: str = "") -> Self:
        error_, fault_ = ({"type": one} if one else None for one in (error, fault))
        return self.note("info", "job", job=job, state=state, error=error_, fault=fault_)

    def fault(self, name: str, seconds: float, **value: Any) -> Self:
        number = len(self.events)
        self.note("invoke", "fault", number=number, name=name, **value)
        return self.wait(seconds).note("ok", "fault", number=number, name=name)

    def tick(self, name: str, at: int, fence: int) -> Self:
        return self.write(f"{name}@{at}", fence, name, tick=name, at=at)

    def fill(self, name: str, *instants: int) -> Self:
        self.backfills[name] = [*instants]
        return self

    def add(self, order: str) -> Self:
        return self.note("invoke", "add", sorter="orders", order=order).note("ok", "add", sorter="orders", order=order)

    def call(self, *names: str, key: str = "c") -> Self:
        for name in names:
            self.note("invoke", "call", job=name, key=key).note("ok", "call", job=name, key=key)
        return self

    def gathers(self, job: str, fence: int, *names: str, type: str = "ok", attempt: int = 1) -> Self:
        about: dict[str, Any] = {"job": job, "fence": fence, "step": 0}
        self.note("invoke", "run", keys=["c"], attempt=attempt, uses={}, calls=names, **about)
        return self.note(type, "run", **about)

    def dead(self, node: str) -> Self:
        return self.note("info", "dead", node=node, at=int(self.now * SECOND))

    def update(self, version: int, **changes: str) -> Self:
        return self.note("ok", "update", version=version, changes=changes)

    def read(self, version: int, sha: str = "s", member: str = "m", halves: bool = False, **value: bool) -> Self:
        """`value`: stale, is_in_set."""
        about: dict[str, Any] = {"member": member, "version": version, "sha": sha, "stale": False, **value}
        return self.note("invoke", "read", member=member).note("ok", "read", halves=[0] * halves, **about)

    def document(self, version: int, sha: str = "s", member: str = "m", **state: str) -> Self:
        about: dict[str, Any] = {"version": version, "sha": sha, "stale": False, "halves": []}
        return self.note("info", "document", member=member, state=state, **about)

    def checked(self, item: str, fence: int, success: bool = True) -> Self:
        return self.note("info", "event", item=item, kind="Checked", success=success, fence=fence)

    def history(self, **left: list[str]) -> History:
        """At its end somebody looks at what is `left`."""
        self.note("info", "left", **dict[str, Any](left))
        quotas = {"units": {"units": 2}, "pace": {"count": 1, "seconds": 1, "burst": 4}}
        about = {"limits": {"wide": 2}, "ticks": {"tick": 1}, "quotas": quotas, "backfills": self.backfills}
        return History(self.events, about)


def _two() -> Script:
    """Two jobs in line, and a third elsewhere, as it should be."""
    script = Script().submit("a", "k").submit("b", "k").submit("c", "l")
    return script.run("a", 1, "k").run("b", 2, "k").run("c", 3, "l").is_("a").is_("b").is_("c")


def _one() -> Script:
    return Script().submit("a", "k")


def _grab(type: str, process: str, script: Script | None = None, fence: int = 1) -> Script:
    return (script or Script()).note(type, "grab", process, instance="1", fence=fence)


RIGHT = {
    "calls in two jobs, one of which was tried twice": (
        Script().call("a", "b").gathers("a", 1, "a", "b", type="fail").call("c").gathers("a", 2, "a", "b", attempt=2)
        .gathers("c", 3, "c").history()
    ),
    "a call that the store lost": (
        Script().call("a", "b").fault("loss", 1, halts=True, loses=5).gathers("b", 1, "b").history()
    ),
    "two in line": _two().history(),
    "one after its cause and an event, though another that came later ran before it": (
        Script().submit_after("b", "k", "a", "event/b").submit("a", "l").submit("c", "k").run("c", 1, "k")
        .run("a", 2, "l").set_event("event/b").run_after("b", 3, "k", "a", "b").is_("a").is_("c").history()
    ),
    "two in a lane that takes two": (
        Script().begin("a", 1, "wide").begin("b", 2, "wide").end("b", 2).end("a", 1).history()
    ),
    "two of a quota of two": (
        Script().begin("a", 1, units=1).begin("b", 2, units=1).end("b", 2).begin("c", 3, units=1).end("a", 1)
        .end("c", 3).history()
    ),
    "three of a quota of two, one of which was taken for lost": (
        Script().begin("a", 1, units=1).begin("b", 2, units=1).fault("stop", 9, victims=["1"])
        .begin("c", 3, units=1, process="n1/2").end("a", 1).end("b", 2)
        .note("ok", "run", "n1/2", job="c", fence=3, step=0).history()
    ),
    "a burst, and then the rate": Script().starts(5, 0.0).starts(9, 1.0, 5).history(),
    "the rate, and a burst of what it had not used": Script().starts(1, 30.0).starts(5, 0.0, 1).history(),
    "one that was killed, and runs again": (
        _one().begin("a", 1, "k").begin("a", 2, "k", attempt=1).write("a", 2, "k").end("a", 2).is_("a").history()
    ),
    "one that was stopped past its lease, and is refused": (
        _one().submit("b", "k").begin("a", 1, "k").fault("stop", 5, victims=["1"])
        .begin("a", 2, "k").write("a", 2, "k").write("a", 1, "k", outcome="refused").end("a", 1, "fail").end("a", 2)
        .run("b", 3, "k").is_("a").is_("b").history()
    ),
    "one that the store lost": _one().fault("lose", 1, loses=2).is_("a", "unknown").history(),
    "a second that the store lost with its run, and so the end of the first": (
        _one().submit("b", "k").run("a", 1, "k").run("b", 2, "k").fault("lose", 1, loses=2)
        .begin("a", 3, "k").write("a", 3, "k", outcome="known").end("a", 3).is_("a").is_("b", "unknown").history()
    ),
    "one that is refused for a claim that the store has lost since": (
        _one().begin("a", 1, "k").fault("stop", 5, victims=["1"]).begin("a", 2, "k", attempt=2)
        .write("a", 1, "k", outcome="refused").fault("lose", 1, loses=2).end("a", 1).is_("a").history()
    ),
    "one that waited for a message which the broker lost": (
        Script().fault("hang", 1, drops=True).submit("a", "k", kind="parts").is_("a", "failed", "TimedOut").history()
    ),
    "an update that an old master took, and lost": (
        Script().update(1, a="x").fault("split", 1, way="split", loses=2).document(2).history()
    ),
    "orders of one flush that a store lost, of which the later ran again": (
        Script().add("b").add("a").fault("lose", 1, loses=2).run("orders/b", 1, "k").run("orders/a", 2, "k").history()
    ),
    "a rollback whose process was lost": (
        Script().submit("a", "k", kind="fails").begin("a", 1, "k").end("a", 1, "fail")
        .is_("a", "double_fault", fault="Lost").history()
    ),
    "a transaction that was rolled back, and an order whose job finds it": (
        Script().submit("a", "k", kind="order").undo("b", "k").relay("a").ship("a").run("a", 1, "k").is_("a").history()
    ),
    "two orders, of which the job of the second was submitted and lost long after its commit": (
        Script().submit("a", "k", kind="order").submit("b", "k", kind="order").relay("a").ship("a").run("a", 1, "k")
        .wait(60).relay("b").fault("lose", 1, loses=2).is_("a").is_("b", "unknown").history()
    ),
    "ticks": Script().tick("tick", 1, 1).tick("tick", 2, 2).tick("tick", 3, 3).history(),
    "a backfill beside ticks": (
        Script().fill("past", 1, 9).tick("tick", 1, 1).tick("past", 9, 2).tick("past", 1, 3).history()
    ),
    "a second winner after the first was killed": (
        _grab("ok", "b", _grab("invoke", "b", _grab("invoke", "a").fault("kill", 1, killed=["a"]), 2), 2).history()
    ),
    "a node that is dead": (
        Script().note("info", "node", node="n1").fault("kill", 1, nodes=["n1"], gone=True).wait(60).dead("n1").history()
    ),
    "a document, and a member that is behind and says so": (
        Script().update(1, a="x").update(2, a="y").read(1, "r", stale=True).read(2).document(2, a="y")
        .document(2, member="n", a="y").history()
    ),
    "orders while Redis' clock goes forward": (
        Script().fault("set", 1, way="clock").add("b").add("a").run("orders/b", 1, "k").run("orders/a", 2, "k")
        .history()
    ),
    "an item, and its event": Script().note("ok", "deliver", item="i").run("i", 1, "i").checked("i", 1).history(),
    "two whose submits overlap, and who go the other way round": (
        Script().note("invoke", "submit", job="b", kind="plain", keys=["k"]).submit("a", "k")
        .note("ok", "submit", job="b", kind="plain", keys=["k"], effects=[]).run("a", 1, "k").run("b", 2, "k")
        .is_("a").is_("b").history()
    ),
    "one whose submit was never answered, and that runs": (
        Script().note("invoke", "submit", job="a", kind="plain", keys=["k"]).submit("b", "k").run("a", 1, "k")
        .run("b", 2, "k").is_("a").is_("b").history()
    ),
    "a lock whose holder was stopped past its lease, and the next": (
        Script().hold("a", 1, "k").fault("stop", 9, victims=["1"]).hold("b", 2, "k", "n1/2").end_in("n1/1", "a", 1)
        .end_in("n1/2", "b", 2).history()
    ),
    "a thread whose process was killed before it finished, and its job again": (
        _one().submit("b", "l").begin("b", 1, "l", process="n1.2/7").begin("a", 2, "k", process="n1.1/7")
        .end_in("n1.1/7", "a", 2).write("b", 1, "l").wait(5).begin("a", 3, "k", process="n2/8").end_in("n2/8", "a", 3)
        .begin("b", 4, "l", process="n2/8").write("b", 4, "l", outcome="known").end_in("n2/8", "b", 4)
        .write("a", 3, "k").is_("a").is_("b").history()
    ),
    "a winner that was stopped past its lease, and is told so": (
        _grab("fail", "a/1", _grab("invoke", "a/1").fault("stop", 9, victims=["1"])).history()
    ),
    "orders of two flushes": (
        Script().add("b").run("orders/b", 1, "k").wait(5).add("a").run("orders/a", 2, "k").history()
    ),
    "orders between which a flush was due": (
        Script().add("c").wait(5).add("b").add("a").run("orders/c", 1, "k").run("orders/b", 2, "k")
        .run("orders/a", 3, "k").history()
    ),
}  # fmt: skip

# By the checker that has to say no.
WRONG = {
    "one_at_a_time": {
        "two at once": Script().begin("a", 1, "k").begin("b", 2, "k").end("a", 1).end("b", 2).history(),
        "two at once in the second of their lanes": (
            Script().begin("a", 1, "k", "l").begin("b", 2, "m", "l").end("a", 1).end("b", 2).history()
        ),
        "two at once long after a fault": (
            Script().fault("stop", 5, halts=True).wait(60)
            .begin("a", 1, "k").begin("b", 2, "k").end("a", 1).end("b", 2).history()
        ),
        "two at once while somebody else was stopped": (
            Script().begin("a", 1, "k").fault("stop", 9, victims=["2"]).begin("b", 2, "k").end("a", 1).end("b", 2)
            .history()
        ),
        "two at once after a stop that is shorter than a lease": (
            Script().begin("a", 1, "k").fault("stop", 1, victims=["1"]).begin("b", 2, "k").end("a", 1).end("b", 2)
            .history()
        ),
        "one that was stopped past its lease, and writes": (
            Script().begin("a", 1, "k").fault("stop", 9, victims=["1"]).begin("b", 2, "k").write("a", 1, "k")
            .end("a", 1).end("b", 2).history()
        ),
    },
    "within_quota": {
        "three of a quota of two": (
            Script().begin("a", 1, units=1).begin("b", 2, units=1).begin("c", 3, units=1)
            .end("a", 1).end("b", 2).end("c", 3).history()
        ),
        "one of two units beside one": (
            Script().begin("a", 1, units=1).begin("b", 2, units=2).end("a", 1).end("b", 2).history()
        ),
        "one more than there are": Script().begin("a", 1, units=3).end("a", 1).history(),
        "three of a quota of two long after a fault": (
            Script().fault("stop", 5, halts=True).wait(60).begin("a", 1, units=2).begin("b", 2, units=1)
            .end("a", 1).end("b", 2).history()
        ),
    },
    "within_rate": {
        "more at once than the burst": Script().starts(9, 0.0).history(),
        "faster than the rate": Script().starts(30, 0.5).history(),
        "another burst where Redis begins": (
            Script().starts(6, 0.1).starts(5, 1.0, 6).fault("restart", 2, halts=True).starts(9, 0.1, 11).history()
        ),
        "another burst where Redis' clock was set": (
            Script().starts(6, 0.1).fault("clock", 1, way="clock").starts(12, 0.1, 6).history()
        ),
    },
    "in_order": {
        "the second before the first": (
            _one().submit("b", "k").run("b", 1, "k").run("a", 2, "k").is_("a").is_("b").history()
        ),
        "the second before the last run of the first": (
            _one().submit("b", "k").run("a", 1, "k").run("b", 2, "k").run("a", 3, "k").is_("a").is_("b").history()
        ),
    },
    "after_causes": {
        "one before its cause has ended": (
            Script().submit_after("b", "k", "a").submit("a", "l").begin("a", 1, "l").run_after("b", 2, "k", "a")
            .end("a", 1).history()
        ),
        "one after a cause that failed": (
            Script().submit_after("b", "k", "a").submit("a", "l").begin("a", 1, "l").end("a", 1, "fail")
            .run_after("b", 2, "k", "a").history()
        ),
        "one before its event": (
            Script().submit_after("b", "k", "event/b").run_after("b", 1, "k", "b").set_event("event/b").history()
        ),
        "one without the result of its cause": (
            Script().submit_after("b", "k", "a").submit("a", "l").run("a", 1, "l").run_after("b", 2, "k", "").history()
        ),
        "one with the results of its causes exchanged": (
            Script().submit_after("c", "k", "a", "b").submit("a", "l").submit("b", "l").run("a", 1, "l")
            .run("b", 2, "l").run_after("c", 3, "k", "b", "a").history()
        ),
    },
    "at_least_once": {
        "one that waits for ever": _one().is_("a", "waiting").history(),
        "one that nobody knows": _one().history(),
        "one of an order that was submitted long before the store lost something": (
            Script().submit("a", "k", kind="order").relay("a").wait(60).fault("lose", 1, loses=2).is_("a", "unknown")
            .history()
        ),
        "one that was lost before the store lost anything": (
            _one().wait(60).fault("lose", 1, loses=2).is_("a", "unknown").history()
        ),
        "one that was lost after the store had lost what it lost": (
            Script().fault("lose", 1, loses=2).submit("a", "k").is_("a", "unknown").history()
        ),
        "one that succeeded and never ran": _one().is_("a").history(),
        "one that waited for a message which nobody lost": (
            Script().submit("a", "k", kind="parts").is_("a", "failed", "TimedOut").history()
        ),
        "one that failed and was to be rolled back": (
            Script().submit("a", "k", kind="fails").begin("a", 1, "k").end("a", 1, "fail").is_("a", "failed").history()
        ),
        "a rollback that failed by itself": (
            Script().submit("a", "k", kind="fails").begin("a", 1, "k").end("a", 1, "fail")
            .is_("a", "double_fault", fault="ValueError").history()
        ),
    },
    "effects_once": {
        "an effect twice": _two().write("a", 4, "k").history(),
        "an effect that is missing": _one().begin("a", 1, "k").end("a", 1).is_("a").history(),
        "an effect that was refused, and nothing was lost": (
            _one().begin("a", 1, "k").fault("stop", 5, victims=["1"]).begin("a", 2, "k", attempt=2)
            .write("a", 1, "k", outcome="refused").end("a", 1).end("a", 2).is_("a").history()
        ),
        "a cell that took an older fence": Script().write("a", 2, "k").write("b", 1, "k").history(),
    },
    "fences_grow": {
        "one fence for two jobs": Script().run("a", 1, "k").run("b", 1, "l").history(),
        "one fence for two attempts": Script().begin("a", 1, "k").begin("a", 1, "k", attempt=2).end("a", 1).history(),
        "an older fence after a newer one": Script().run("a", 2, "k").run("b", 1, "k").history(),
    },
    "ticks_once": {
        "a tick twice": Script().tick("tick", 1, 1).tick("tick", 1, 2).history(),
        "a schedule without any tick": Script().tick("other", 1, 1).history(),
        "an instant that a backfill lacks": Script().fill("past", 1, 9).tick("tick", 1, 1).tick("past", 9, 2).history(),
        "a tick that is missing": Script().tick("tick", 1, 1).tick("tick", 3, 2).history(),
    },
    "one_winner": {
        "two winners": _grab("ok", "a", _grab("invoke", "b", _grab("invoke", "a"))).history(),
        "a winner of what is complete": _grab("invoke", "b", _grab("ok", "a", _grab("invoke", "a"))).history(),
        "two who complete it": _grab("ok", "b", _grab("ok", "a", _grab("invoke", "a"))).history(),
    },
    "sorted_in_batches": {
        "orders of one flush that ran as they came": (
            Script().add("b").add("a").run("orders/b", 1, "k").run("orders/a", 2, "k").history()
        ),
        "orders that came long after a flush": (
            Script().add("c").run("orders/c", 1, "k").wait(5).add("b").add("a").run("orders/b", 2, "k")
            .run("orders/a", 3, "k").history()
        ),
    },
    "calls_in_one_job": {
        "a call that is in no job": Script().call("a", "b").gathers("a", 1, "a").history(),
        "a call whose job never ran": Script().call("a").history(),
        "a call that is in two jobs": Script().call("a", "b").gathers("a", 1, "a", "b").gathers("b", 2, "b").history(),
        "a call that is twice in a list": Script().call("a", "b").gathers("a", 1, "a", "b", "a").history(),
        "an attempt with fewer calls": (
            Script().call("a", "b").gathers("a", 1, "a", "b", type="fail").gathers("a", 2, "a", attempt=2).history()
        ),
        "an attempt with more calls": (
            Script().call("a", "b").gathers("a", 1, "a", type="fail").gathers("a", 2, "a", "b", attempt=2).history()
        ),
        "a list in another order": Script().call("a", "b").gathers("a", 1, "b", "a").history(),
        "a later call in an earlier job": (
            Script().call("a", "b").gathers("b", 1, "b").gathers("a", 2, "a").history()
        ),
        "a call that is lost long after a loss": (
            Script().fault("loss", 1, halts=True, loses=5).wait(60).call("a", "b").gathers("b", 1, "b").history()
        ),
    },
    "documents_whole": {
        "a version that is another elsewhere": Script().read(1).read(1, "t", "n").document(1).history(),
        "half an update": Script().read(1, halves=True).document(1).history(),
        "a read that is older than what an author knows": (
            Script().update(2, a="x").read(1, "r").document(2, a="x").history()
        ),
        "a read that is older than the one before": Script().read(2).read(1, "r").document(2).history(),
        "a member that is behind, and counts as up to date": (
            Script().update(2, a="x").read(1, "r", stale=True, is_in_set=True).document(2, a="x").history()
        ),
        "an update that is gone": Script().update(1, a="x").document(1).history(),
        "an update that is gone, and came after a split": (
            Script().fault("split", 1, way="split", loses=2).update(1, a="x").document(1).history()
        ),
        "an update that an older one has replaced": (
            Script().update(1, a="x").update(2, a="y").document(2, a="x").history()
        ),
        "members that end with different versions": Script().document(1, "r").document(2, member="n").history(),
        "members that never agree": Script().read(1).history(),
    },
    "events_once": {
        "an item without an event": Script().note("ok", "deliver", item="i").history(),
        "an item with two": (
            Script().note("ok", "deliver", item="i").run("i", 1, "i").checked("i", 1).checked("i", 1).history()
        ),
        "an event of nobody": Script().note("ok", "deliver", item="i").run("i", 1, "i").checked("i", 2).history(),
        "an event of a run that was killed": (
            Script().note("ok", "deliver", item="i").begin("i", 1, "i").checked("i", 1).history()
        ),
        "a failure of what went well": (
            Script().note("ok", "deliver", item="i").run("i", 1, "i").checked("i", 1, success=False).history()
        ),
    },
    "outbox_kept": {
        "one of a transaction that was rolled back": Script().undo("a", "k").run("a", 1, "k").history(),
        "one before its commit": _one().ship("a", found=False).run("a", 1, "k").history(),
    },
    "nobody_healthy_dies": {
        "a node that nobody harmed": Script().fault("kill", 1, nodes=["n2"], gone=True).dead("n1").history(),
        "a node long after it was stopped": (
            Script().fault("stop", 5, nodes=["n1"], victims=["1"]).wait(60).dead("n1").history()
        ),
    },
    "nothing_left": {
        "a key without an owner": _two().history(keys=["proof:lock:k"]),
        "nobody looked": History(_two().events),
    },
    "as_a_lane": {
        "one that overtook another, was killed, and ran again in its place": (
            _one().submit("b", "k").begin("b", 1, "k", process="n1/2").run("a", 2, "k").run("b", 3, "k")
            .is_("a").is_("b").history()
        ),
        "one between two attempts of another": (
            Script().note("invoke", "submit", job="b", kind="plain", keys=["k"]).submit("a", "k", kind="retries")
            .note("ok", "submit", job="b", kind="plain", keys=["k"], effects=[]).begin("a", 1, "k").end("a", 1, "fail")
            .run("b", 2, "k").begin("a", 3, "k", attempt=2).write("a", 3, "k").end("a", 3).is_("a").is_("b").history()
        ),
        "one that ended well, and is at work again": (
            _one().run("a", 1, "k").begin("a", 2, "k").write("a", 2, "k", outcome="known").end("a", 2).is_("a")
            .history()
        ),
        "one of a thread that ended well, and is at work again while its process goes on": (
            _one().begin("a", 1, "k", process="n1.1/1").write("a", 1, "k").end_in("n1.1/1", "a", 1).wait(5)
            .begin("b", 2, "l", process="n1.2/1").begin("a", 3, "k", process="n2/8").end_in("n2/8", "a", 3)
            .is_("a").history()
        ),
        "the second before the first": (
            _one().submit("b", "k").run("b", 1, "k").run("a", 2, "k").is_("a").is_("b").history()
        ),
    },
    "as_a_lock": {
        "a late release that frees the next holder's": (
            Script().hold("a", 1, "k").fault("stop", 9, victims=["1"]).hold("b", 2, "k", "n1/2")
            .end_in("n1/1", "a", 1).hold("c", 3, "k", "n1/3").wait(9).end_in("n1/2", "b", 2).end_in("n1/3", "c", 3)
            .history()
        ),
        "an older fence after a newer one": (
            Script().hold("a", 2, "k").end("a", 2).hold("b", 1, "k").end("b", 1).history()
        ),
        "a lock that is held beside a job": (
            Script().begin("a", 1, "k").hold("b", 2, "k", "n1/2").end("a", 1).end_in("n1/2", "b", 2).history()
        ),
    },
    "as_a_grab": {
        "a winner that is refused, though nobody else won": _grab("fail", "a", _grab("invoke", "a")).history(),
        "a second winner with an older fence": (
            _grab("invoke", "b", _grab("invoke", "a", fence=2).fault("kill", 1, killed=["a"]), 1).history()
        ),
        "two winners": _grab("ok", "a", _grab("invoke", "b", _grab("invoke", "a"), 2)).history(),
    },
    "as_a_quota": {
        "three of two, the third of a process that was late before, and is not now": (
            Script().begin("a", 2, units=1).begin("b", 3, units=1, process="n1/2").fault("stop", 9, victims=["3"])
            .begin("d", 4, process="n1/3").end_in("n1/3", "d", 4).begin("c", 1, units=1, process="n1/3")
            .end_in("n1/3", "c", 1).end("a", 2).end_in("n1/2", "b", 3).history()
        ),
        "three of a quota of two": (
            Script().begin("a", 1, units=1).begin("b", 2, units=1).begin("c", 3, units=1)
            .end("a", 1).end("b", 2).end("c", 3).history()
        ),
    },
}  # fmt: skip


def shown() -> Iterator[tuple[str, bool]]:
    """The name of each history, and whether the judges say of it what they must."""
    for name, history in RIGHT.items():
        yield f"right: {name}", not any(judge(history).values())
    for checker, histories in WRONG.items():
        for name, history in histories.items():
            yield f"{checker}: {name}", bool(judge(history)[checker])


@click.command("planted")
def planted() -> None:
    """Show the judges histories that are wrong, and some that are right: each of them says no where it must."""
    red = 0
    for name, well in shown():
        red += not well
        click.echo(f"{'ok  ' if well else 'RED '} {name}")
    raise SystemExit(red > 0)
