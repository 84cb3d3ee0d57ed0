"""The acts of operators: each is done or not, stands in the trail once, and is refused to a viewer."""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import pytest

from coordinator import Action, Author, Coordinator, Entry, Forbidden, InvalidJob, Progress, StoreUnavailable, aio
from coordinator.core.author import acting
from coordinator.core.events.event import Event
from coordinator.core.store.times import to_ms
from coordinator.scheduler.backfill import quota_of
from coordinator.scheduler.steering import Entries
from coordinator.sorters.sorter import Sorter
from proof.model.raw import Dump
from tests.coordinator.conftest import ClientAt
from tests.harness.hand_node import Puppet
from tests.harness.proxy import Proxy
from tests.harness.waiting import wait_until

Here = Any  # a Coordinator, or one for asyncio
WORK = {"task": "shop.work", "args": [], "kwargs": {}, "options": {}}
ENTRY = Entry("nightly", 3600, "shop.work")
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="seconds")
EVE = Author("eve", "viewer")


class Act(NamedTuple):
    """`line`: act, thing, before and after; `step`: its name in the library."""

    prepare: Callable[[Puppet, Coordinator], object]
    call: Callable[..., Any]
    step: str
    line: tuple[str, str, str, str]


def waiting(node: Puppet, coordinator: Coordinator) -> None:
    for job_id in ("first", "j"):
        node.submit("k", job_id=job_id)
    node.must_take()


def failed(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("k", job_id="j")
    node.finish(node.must_take(), "failed")


def nothing(node: Puppet, coordinator: Coordinator) -> None:
    """No preparation."""


def entry(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.entries.put(ENTRY, by=Author("code", "system"))


def filled(node: Puppet, coordinator: Coordinator) -> None:
    entry(node, coordinator)
    coordinator.entries.backfill("nightly", "2026-03-01", "2026-03-02", by=Author("code", "system"))


def paused(node: Puppet, coordinator: Coordinator) -> None:
    entry(node, coordinator)
    system: Any = {"by": Author("code", "system")}
    coordinator.entries.pause("nightly", **system)
    coordinator.entries.change("nightly", 60, **system)
    coordinator.pause("k", **system)
    coordinator.quota("tenant/*", concurrency=2, **system)
    coordinator.drain("one", **system)


def known(node: Puppet, coordinator: Coordinator) -> None:
    paused(node, coordinator)
    coordinator.ack("node.draining", until=TOMORROW, by=Author("code", "system"))


def collected(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.sorter("s").add("1", "k", WORK)


def collecting(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("k", job_id="j", collect={"idle": 60})


def act_on_many(at: Here, verb: str, wanted: dict[str, str], **acting: Any) -> Any:
    steps = at.act(verb, **wanted, **acting)

    async def awaited() -> list[Progress]:
        return [one async for one in steps]

    return list(steps) if isinstance(at, Coordinator) else awaited()


ACTS = {
    "act": Act(
        waiting, lambda at, **a: act_on_many(at, "cancel", {"state": "waiting", "key": "k"}, **a), "job_cancel",
        ("cancel", "jobs state=waiting key=k", "1 found", ""),
    ),
    "act on lanes": Act(
        waiting, lambda at, **a: act_on_many(at, "pause", {"key": "k*"}, **a), "lane_pause",
        ("pause", "lanes key=k*", "1 found", ""),
    ),
    "cancel": Act(waiting, lambda at, **a: at.cancel("j", **a), "job_cancel",
                  ("cancel", "job j", "waiting", "cancelled")),
    "cancel at work": Act(
        waiting, lambda at, **a: at.cancel("first", **a), "job_cancel", ("cancel", "job first", "running", "stopping")
    ),
    "retry": Act(failed, lambda at, **a: at.retry("j", **a), "job_retry", ("retry", "job j", "failed", "ready")),
    "move": Act(
        waiting, lambda at, **a: at.move("j", priority=5, token="t", **a), "job_move", ("move", "job j", "0", "5 back")
    ),
    "quota": Act(
        nothing, lambda at, **a: at.quota("q", concurrency=3, **a), "quota_declare", ("quota", "quota q", "", "3   ")
    ),
    "set": Act(
        nothing, lambda at, **a: at.event("e").set({"yes": 1}, **a), "event_set", ("set", "event e", "", "set")
    ),
    "drop_quota": Act(
        paused, lambda at, **a: at.drop_quota("tenant/*", **a), "quota_drop", ("drop", "quota tenant/*", "2 ", "")
    ),
    "cool_down": Act(
        nothing, lambda at, **a: at.cool_down("q", "2100-01-01T00:00:00Z", **a), "quota_cool",
        ("cool", "quota q", "", "4102444800000"),
    ),
    "weight": Act(nothing, lambda at, **a: at.weight("g", 3, **a), "weight_set", ("weight", "group g", "1", "3")),
    "release": Act(
        waiting, lambda at, **a: at.release("k", holder="first", **a), "lane_release",
        ("release", "lane k", "first", "j"),
    ),
    "pause": Act(nothing, lambda at, **a: at.pause("k", **a), "lane_pause", ("pause", "lane k", "open", "paused")),
    "resume": Act(paused, lambda at, **a: at.resume("k", **a), "lane_resume", ("resume", "lane k", "paused", "open")),
    "drain": Act(nothing, lambda at, **a: at.drain("one", **a), "node_drain", ("drain", "node one", "open", "drained")),
    "undrain": Act(
        paused, lambda at, **a: at.undrain("one", **a), "node_drain", ("undrain", "node one", "drained", "open")
    ),
    "retarget": Act(
        waiting, lambda at, **a: at.retarget("shop.work", "shop.other", **a), "job_retarget",
        ("retarget", "task shop.work", "shop.work", "shop.other"),
    ),
    "release_grab": Act(
        lambda _, coordinator: coordinator.grab("g", "1", "me"), lambda at, **a: at.release_grab("g", "1", 1, **a),
        "grab_release", ("release", "grab g 1", "running grab:", "abandoned"),
    ),
    "ack": Act(
        paused, lambda at, **a: at.ack("node.draining", "nodes", until=TOMORROW, **a), "audit_note",
        ("acknowledge", "finding node.draining nodes", "", TOMORROW[:10]),
    ),
    "unack": Act(
        known, lambda at, **a: at.unack("node.draining", **a), "audit_note",
        ("unacknowledge", "finding node.draining", TOMORROW[:10], ""),
    ),
    "acted": Act(
        nothing, lambda at, **a: at.acted("count", "shelf", "1", id="1", before="2", after="3", **a), "audit_note",
        ("count", "shelf 1", "2", "3"),
    ),
    "flush a job": Act(collecting, lambda at, **a: at.flush("j", **a), "job_flush",
                       ("flush", "job j", "collecting", "ready")),
    "flush": Act(
        collected, lambda at, **a: at.sorter("s").flush(**a), "sorter_flush", ("flush", "sorter s", "1", "")
    ),
    "add": Act(
        nothing, lambda at, **a: at.sorter("s").add("1", "k", WORK, token="t", **a), "sorter_add",
        ("add", "sorter s", "", "s/1"),
    ),
    "put": Act(nothing, lambda at, **a: at.entries.put(ENTRY, **a), "entry_put", ("put", "entry nightly", "", "")),
    "remove": Act(
        entry, lambda at, **a: at.entries.remove("nightly", **a), "entry_remove", ("remove", "entry nightly", "", "")
    ),
    "entry pause": Act(
        entry, lambda at, **a: at.entries.pause("nightly", **a), "entry_pause",
        ("pause", "entry nightly", "open", "paused"),
    ),
    "entry resume": Act(
        paused, lambda at, **a: at.entries.resume("nightly", **a), "entry_resume",
        ("resume", "entry nightly", "paused", "open"),
    ),
    "skip_next": Act(
        entry, lambda at, **a: at.entries.skip_next("nightly", **a), "entry_omit", ("skip", "entry nightly", "", "20")
    ),
    "run_now": Act(
        entry, lambda at, **a: at.entries.run_now("nightly", token="t", **a), "entry_run",
        ("run", "entry nightly", "", "t"),
    ),
    "change": Act(
        entry, lambda at, **a: at.entries.change("nightly", 60, **a), "entry_change",
        ("change", "entry nightly", "", "every 60"),
    ),
    "restore": Act(
        paused, lambda at, **a: at.entries.restore("nightly", **a), "entry_change",
        ("restore", "entry nightly", "every 60", ""),
    ),
    "backfill": Act(
        entry, lambda at, **a: at.entries.backfill("nightly", "2026-03-01", "2026-03-02", at_once=2, **a),
        "entry_backfill", ("backfill", "entry nightly", "", "2026-03-01"),
    ),
    "stop_backfill": Act(
        filled, lambda at, **a: at.entries.stop_backfill("nightly", **a), "entry_backfill_stop",
        ("stop", "entry nightly", "open", "stopped"),
    ),
}  # fmt: skip


@pytest.fixture
def far(proxy: Proxy, client_at: ClientAt) -> Coordinator:
    """A client behind the proxy."""
    return client_at(proxy.url(), timeout=10)


def whole(coordinator: Coordinator) -> dict[str, Any]:
    return Dump.of(coordinator.store._client, coordinator.store.prefix).stable()


def told(action: Action) -> tuple[str, str, str, str]:
    return action.act, action.thing, action.before, action.after


def tidy(coordinator: Coordinator) -> None:
    """Nothing without an owner is left: the harness looks."""
    coordinator.resume("k")
    coordinator.undrain("one")
    for job_id in ("j", "first", "s/1"):
        with suppress(Exception):
            coordinator.cancel(job_id)
            Puppet(coordinator.store).lanes.release("k", holder=job_id)
    coordinator.drop_quota("q")
    coordinator.drop_quota(quota_of("nightly"))
    coordinator.drop_quota("tenant/*")
    coordinator.cool_down("q")
    coordinator.weight("g", 1)


def test_every_act_stands_in_this_file() -> None:
    kinds = (*Coordinator.__mro__, Entries, Sorter, Event)
    takes = {
        (kind, name)
        for kind in kinds
        for name, call in vars(kind).items()
        if inspect.isfunction(call)
        if {"acting", "why"} & inspect.signature(call).parameters.keys() or "Acting" in str(inspect.signature(call))
    }
    own = {name for kind, name in takes if kind is not Entries and name != "why"}
    assert own - set(ACTS) == {"requeue", "discard"}, "tests/coordinator/inbox/test_refused.py"
    of_entries = {name for kind, name in takes if kind is Entries}
    assert of_entries == {name for name in of_entries if name in ACTS or f"entry {name}" in ACTS}


def test_a_dry_run_does_nothing_and_names_the_plan(coordinator: Coordinator) -> None:
    calls: list[Any] = [partial(coordinator.pause, "k"), partial(coordinator.cool_down, "q")]
    calls += [partial(coordinator.drain, "one"), coordinator.sorter("s").flush, partial(coordinator.cancel, "j")]
    for call in calls:
        with pytest.raises(
            InvalidJob, match=r"^dry_run: no argument of this act.*: coordinator\.plan says what an act would"
        ):
            call(dry_run=True)
    assert (coordinator.lanes(), coordinator.actions()) == ([], [])
    with pytest.raises(InvalidJob, match="state 5: one of"):
        coordinator.jobs(state=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ACTS)
def test_an_act_is_refused_to_a_viewer_done_once_and_written_once(
    name: str, node: Puppet, coordinator: Coordinator, far: Coordinator, proxy: Proxy
) -> None:
    act = ACTS[name]
    held = act.prepare(node, coordinator)
    before = whole(coordinator)

    async def awaited() -> None:
        async with aio.Coordinator(far) as at:
            with acting(EVE):
                await act.call(at)

    with acting(EVE), pytest.raises(Forbidden, match="eve is a viewer"):
        act.call(far, by="somebody else")
    with pytest.raises(Forbidden):
        act.call(far, by=EVE)
    with pytest.raises(Forbidden):
        asyncio.run(awaited())
    assert whole(coordinator) == before

    said: Any = {"why": "it burns", "by": Author("ann"), "ticket": "OPS-7"}
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        act.call(far, **said)
    assert whole(coordinator) == before, "the request was lost"
    proxy.heal()
    proxy.lose_reply(act.step.encode())
    with pytest.raises(StoreUnavailable):
        act.call(far, **said)
    assert (after := whole(coordinator)) != before, "the reply was lost"
    act.call(far, **said)
    assert whole(coordinator) == after, "asked again it changes nothing"
    *stops, action = coordinator.actions()
    assert [stop.after for stop in stops] == ["stopped: 1 changed"] * act.line[1].startswith(("jobs", "lanes"))
    assert (action.by, action.why, action.ticket) == ("ann", "it burns", "OPS-7")
    assert all(part.startswith(wanted) for part, wanted in zip(told(action), act.line, strict=True)), told(action)
    assert told(action)[:2] == act.line[:2]
    if held is not None:
        held._lease and held._let_go()  # type: ignore[attr-defined]
    tidy(coordinator)


def test_of_two_operators_at_once_the_trail_tells_who_was_last(coordinator: Coordinator, node: Puppet) -> None:
    waiting(node, coordinator)
    with ThreadPoolExecutor(8) as pool:
        for call in (coordinator.pause, coordinator.resume):
            list(pool.map(lambda by: call("k", by=by), ["ann", "bob"] * 4))  # noqa: B023
        states = list(pool.map(lambda by: coordinator.cancel("j", by=by), ["ann", "bob"] * 4))
    assert set(states) == {"cancelled"}
    trail = coordinator.actions()[::-1]
    assert [one.act for one in trail].count("resume") == 1
    (cancelled,) = coordinator.actions(thing="job j")
    error = coordinator.job("j").error
    assert error
    assert cancelled.by == error["by"]
    assert next(one for one in trail if one.act == "pause").before == "open"
    coordinator.pause("k", by="ann", why="one")
    coordinator.pause("k", by="ann", why="another")
    pause = coordinator.lane("k").pause
    assert pause
    assert (coordinator.actions(1)[0].why, coordinator.actions(1)[0].before, pause["why"]) == (
        "another", "paused", "another",
    )  # fmt: skip
    node.lanes.release("k")
    tidy(coordinator)


def test_the_trail_is_read_in_pages_by_author_and_by_thing(coordinator: Coordinator) -> None:
    for number in range(5):
        coordinator.pause(f"lane/{number}", by="ann" if number % 2 else "bob")
        coordinator.resume(f"lane/{number}", by="code")
    first = coordinator.actions(4)
    rest = coordinator.actions(100, first[-1].id)
    assert [one.id for one in (*first, *rest)] == [one.id for one in coordinator.actions()]
    assert len(rest) == 6
    assert [one.name for one in coordinator.actions(by="ann")] == ["lane/3", "lane/1"]
    assert [one.after for one in coordinator.actions(thing="lane lane/2")] == ["open", "paused"]
    assert coordinator.actions(thing="job") == []
    with pytest.raises(InvalidJob, match="the id of an action"):
        coordinator.actions(after="yesterday")
    with pytest.raises(InvalidJob, match="why is text of at most 1000 characters"):
        coordinator.pause("k", why="x" * 1001)


def test_the_trail_is_read_between_two_instants(coordinator: Coordinator) -> None:
    for number in range(3):
        coordinator.pause(f"lane/{number}", by="ann")
        wait_until(lambda: coordinator.store.clock().wall > to_ms(coordinator.actions(1)[0].at))
    third, second, first = coordinator.actions()
    assert coordinator.actions(since=second.at) == [third, second]
    assert coordinator.actions(until=second.at.isoformat()) == [second, first]
    assert coordinator.actions(since=second.at, until=second.at) == [second]
    assert coordinator.actions(1, third.id, since="1h") == [second]
    with pytest.raises(InvalidJob, match="since 'soon': give 90s, 1h"):
        coordinator.actions(since="soon")


def test_an_act_on_the_lane_of_a_grab_is_found_by_its_name(coordinator: Coordinator) -> None:
    lane = "grab¦nightly¦1"
    list(coordinator.act("pause", key=lane, by="ann"))
    coordinator.resume(lane, by="bob")
    assert [one.by for one in coordinator.actions(thing=f"lane {lane}")] == ["bob", "ann", "ann"]


def test_the_act_of_an_app_is_written_once_and_refused_while_another_does_it(coordinator: Coordinator) -> None:
    assert coordinator.acted("count", "shelf", "1", id="x", by="ann")
    assert not coordinator.acted("count", "shelf", "1", id="x", by="ann")
    for act, by in (("count", "bob"), ("clear", "ann")):
        with pytest.raises(InvalidJob, match="shelf 1: another act on it is under way"):
            coordinator.acted(act, "shelf", "1", id="x", by=by)
    assert len(coordinator.actions()) == 1
