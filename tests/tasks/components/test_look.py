"""People see why a component works on nothing, and register items for it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from coordinator import Author, Coordinator, Entry, Forbidden, InvalidJob
from coordinator.core.author import acting
from tasks import aio
from tasks.batches import ItemConflict, UnknownItem
from tasks.components import Components, Work, by_hand, look, poll
from tests.harness.command import environment
from tests.harness.hand_node import Puppet
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import start

TASKS = tuple(f"tasks.components.poll.{name}" for name in ("Checker", "Binder"))


@pytest.fixture
def components(
    redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Components]:
    """Two components on a Redis and a store of their own; no node lives."""
    monkeypatch.setenv("TASKS_DATA_DIR", str(tmp_path))
    app = Celery("press", broker="memory://", set_as_current=False)
    components = Components(Coordinator(app, url=redis_server.url(0), prefix=prefix))

    def work(given: Work) -> None: ...

    components.declare("Checker", "1.0", event="Checked", past=["Data_Received"], types=["batch"])(work)
    components.declare("Binder", "1.0", event="Bound", past=["Chekced"], types=["edition"])(work)
    yield components
    components.items.engine.dispose()
    components.coordinator.close()
    app.close()


def idle(components: Components, name: str = "Checker") -> list[str]:
    return look.idle(components, components[name], components.items.count(components[name].wanted))


def test_an_idle_component_says_what_hinders_it(components: Components) -> None:
    coordinator = components.coordinator
    assert idle(components)[0] == "no node is alive"
    Puppet(coordinator.store).up(tasks=TASKS[1:])
    assert idle(components)[0] == "none of the living nodes has this component: one"
    ended = by_hand.run(components, components["Checker"])
    assert (ended.status, ended.why) == (by_hand.UNABLE, "none of the living nodes has this component: one")
    Puppet(coordinator.store, "two").up(tasks=TASKS)
    coordinator.quota("Checker", concurrency=0, why="the disk is full", by="ann")
    coordinator.cool_down("component/Checker", 3600, why="later", by="ann")
    assert idle(components)[:3] == [
        "no beat knows its schedule: start one, or run it by hand",
        "its quota Checker is closed: it has no units, by ann: the disk is full",
        "its quota component/Checker is cooling down for 3600 s, by ann: later",
    ]
    coordinator.quota("Checker", concurrency=2, by="ann")
    coordinator.cool_down("component/Checker", by="ann")
    (entry,) = (one for one in components._entries()[1] if one.name == "component/Checker")
    coordinator.entries.put(entry)
    coordinator.entries.pause("component/Checker", by="ann")
    assert idle(components)[0] == "its schedule is paused by ann: no reason given"


def test_an_idle_component_says_which_event_was_never_made_or_how_many_items_are_eligible(
    components: Components,
) -> None:
    coordinator, items = components.coordinator, components.items
    Puppet(coordinator.store).up(tasks=TASKS)
    for name in ("Checker", "Binder"):
        coordinator.entries.put(Entry(f"component/{name}", 60, TASKS[0], key="k"))
    assert idle(components, "Binder") == ["no item ever had the event Chekced (did you mean 'Checked'?)"]
    assert idle(components) == ["no item ever had the event Data_Received"]
    for name in ("B1-RT1", "B2-RT1"):
        items.register(name)
        look.repair(components, "ann").add(name, "Data_Received")
    assert idle(components) == ["2 items are eligible: the next run submits them"]
    for name in ("B1-RT1", "B2-RT1"):
        look.repair(components, "ann").add(name, "Checked")
    assert idle(components) == ["no item is eligible"]


def test_a_run_that_waits_for_its_children_is_named(
    components: Components, coordinator_jobs: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(coordinator_jobs)
    jobs = coordinator_jobs(components.coordinator)
    components.items.register("B1-RT1")
    look.repair(components, "ann").add("B1-RT1", "Data_Received")
    components.coordinator.quota("Checker", concurrency=0, why="the disk is full", by="ann")
    run = poll.submit_run(components, components["Checker"])
    assert f"its run {run.id} is parked until its children end" in idle(components)
    components.coordinator.quota("Checker", concurrency=1, by="ann")
    assert [job.state for job in jobs.submitted] == ["succeeded", "succeeded"]
    assert [event.type for event in components.items.events("B1-RT1")] == ["Data_Received", "Checked"]


def test_an_item_is_registered_once_and_with_a_type_that_a_component_works_on(components: Components) -> None:
    look.register(components, "B1-RT1", "batch", None, 3)
    assert components.items.item("B1-RT1").priority == 3
    with pytest.raises(ItemConflict, match="B1-RT1 is registered already: coordinator items show B1-RT1"):
        look.register(components, "B1-RT1", "batch", None, None)
    with pytest.raises(ValueError, match=r"'editon' \(did you mean 'edition'\?\): no .* they work on batch, edition"):
        look.register(components, "E1", "editon", None, None)
    with pytest.raises(ValueError, match="item '': give 1 to 200 characters"):
        look.register(components, "", "batch", None, None)
    assert len(components.items.query(components["Checker"].wanted).items) == 0


def codes(components: Components, item: str = "B1-RT1") -> list[tuple[str, str]]:
    return [(cause.code, cause.text) for cause in look.why(components, item).causes]


def test_an_item_says_for_each_component_what_keeps_it_away(components: Components) -> None:
    items = components.items
    with pytest.raises(UnknownItem, match="there is no item B1-RT1"):
        look.why(components, "B1-RT1")
    items.register("B1-RT1")
    assert codes(components) == [
        ("item.lacks", "item B1-RT1 keeps Checker waiting for Data_Received, which is not there")
    ]
    repair = look.repair(components, "ann")
    repair.add("B1-RT1", "Data_Received", success=False)
    assert codes(components) == [("item.lacks", "item B1-RT1 keeps Checker waiting for Data_Received, which failed")]
    repair.add("B1-RT1", "Data_Received")
    [(code, text)] = codes(components)
    assert (code, text[:61]) == ("item.eligible", "item B1-RT1 is not asked for yet by Checker: no node is alive")
    job = components.coordinator.submit(
        "Checker/B1-RT1", components.signature("tasks.components.work", "Checker", "B1-RT1")
    )
    assert codes(components) == [
        ("item.at-work", f"item B1-RT1 has the component Checker, which waits for its turn: job {job.id}"),
        ("waiting.fleet", f"No node is alive: tasks.components.work.Checker ({job.id}) waits for one"),
    ]
    components.coordinator.cancel(job.id)
    repair.add("B1-RT1", "Checked", success=False)
    why = look.why(components, "B1-RT1")
    assert (why.sentence, why.codes) == (
        "item B1-RT1 failed in the component Checker, which made Checked of it",
        ["item.failed"],
    )
    assert why.causes[0].frees == "coordinator items restart B1-RT1 --why …"
    repair.add("B1-RT1", "Checked")
    assert codes(components) == [("item.done", "item B1-RT1 has all its events: Checked")]
    items.register("B2-RT1")
    repair.add("B2-RT1", "Data_Received")
    components.declare("Mender", "1.0", event="Mended", past=["Data_Received"], future=["Bound"])(lambda work: None)
    repair.add("B2-RT1", "Bound")
    assert ("item.has", "item B2-RT1 is left out by Mender, since it has Bound") in codes(components, "B2-RT1")
    repair.stop("B1-RT1")
    assert codes(components)[0] == ("item.stopped", "item B1-RT1 is stopped for every component")


def test_whatever_events_an_item_has_the_causes_are_those_of_the_declaration_and_of_the_query(
    components: Components,
) -> None:
    declare = components.declare(
        "Mender", "1.0", event="Mended", past=["Scanned"], past_failed=["Flawed"], future=["Taken"], types=["batch"]
    )
    declare(lambda work: None)
    repair, expected = look.repair(components, "ann"), dict[str, set[tuple[str, str]]]()
    either, kinds = (None, True, False), [*["batch"] * 54, "edition"]
    ways = [*product(either, either, (None, True), either), (True, False, None, None)]
    for number, (kind, (scanned, flawed, taken, mended)) in enumerate(zip(kinds, ways, strict=True)):
        item = f"B{number}-RT1"
        components.items.register(item, type=kind)
        for event, success in (("Scanned", scanned), ("Flawed", flawed), ("Taken", taken), ("Mended", mended)):
            if success is not None:
                repair.add(item, event, success=success)
        lacks = {("item.lacks", "Scanned")} if not scanned else set[tuple[str, str]]()
        lacks |= {("item.lacks", "Flawed")} if flawed is not False else set()
        lacks |= {("item.has", "Taken")} if taken is not None else set()
        open_to_it = kind == "batch" and mended is None
        expected[item] = (lacks or {("item.eligible", "Mended")}) if open_to_it else set()
        if mended is False:
            expected[item] = {("item.failed", "Mended")}
    found = {
        item: {(one.code, one.facts["event"]) for one in look.why(components, item).causes if "component" in one.facts
               and one.facts["component"] == "Mender"}
        for item in expected
    }  # fmt: skip
    assert found == expected
    eligible = components.items.query(components["Mender"].wanted, limit=1000)
    assert {one.id for one in eligible.items} == {
        item for item, codes in found.items() if "item.eligible" in dict(codes)
    }


def test_a_dry_run_of_a_restart_says_which_component_starts_then(components: Components) -> None:
    components.items.register("B1-RT1")
    for kind, good in (("Data_Received", True), ("Checked", False)):
        look.repair(components, "ann").add("B1-RT1", kind, success=good)
    assert look.starts(components, "B1-RT1") == "then starts nothing: it meets no component's conditions"
    hit = look.repair(components).restart("B1-RT1", dry_run=True)
    assert look.starts(components, "B1-RT1", hit) == "then starts Checker"
    look.restart(components, "B1-RT1", by="ann")
    assert look.starts(components, "B1-RT1") == "then starts Checker"


FLAG, ROUND = "Manual_QA_Flagged", ("B1-RT1",)
ACTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[object, ...], tuple[str, str, str]]] = {
    "restart": (look.restart, aio.restart_item, ROUND, ("restart", "Checked", "removed")),
    "remove": (look.remove, aio.remove_event, (*ROUND, "Data_Received"), ("remove", "Data_Received", "removed")),
    "append": (look.append, aio.append_event, (*ROUND, "Bound"), ("append", "", "succeeded")),
    "prioritise": (look.prioritise, aio.prioritise_item, (*ROUND, 3), ("prioritise", "none", "3")),
    "stop": (look.stop, aio.stop_item, ROUND, ("stop", "", "succeeded")),
    "approve": (look.approve, aio.approve_batch, ("B1",), ("approve", "flagged", "approved")),
}


def state(components: Components) -> tuple[object, ...]:
    item = components.items.item("B1-RT1")
    return item.priority, [one.type for one in components.items.events("B1-RT1")]


def lines(components: Components) -> list[tuple[str, str, str]]:
    return [(one.act, one.before, one.after) for one in components.coordinator.actions(by="ann")]


def failed(components: Components) -> None:
    """An item on which every act can be done."""
    components.items.register("B1-RT1")
    for kind, good in (("Data_Received", True), (FLAG, True), ("Checked", False)):
        look.repair(components, "setup").add("B1-RT1", kind, success=good)


@pytest.mark.parametrize("name", ACTS)
def test_an_act_on_an_item_is_refused_to_a_viewer_done_once_and_written_once(
    components: Components, name: str, proxy: Proxy, prefix: str
) -> None:
    act, awaited, args, line = ACTS[name]
    failed(components)
    before, said = state(components), {"by": "ann", "why": "it burns"}
    with acting(Author("eve", "viewer")):
        with pytest.raises(Forbidden, match="eve is a viewer"):
            act(components, *args, **said)
        with pytest.raises(Forbidden):
            asyncio.run(awaited(components, *args, **said))
    assert (state(components), lines(components)) == (before, [])
    for _ in range(2):
        with suppress(ItemConflict if name == "approve" else ()):  # which says that it is approved
            asyncio.run(awaited(components, *args, **said))
        assert (state(components) != before, lines(components)) == (True, [line])


KILLED = """
import sys
import tasks
from pathlib import Path
from celery import Celery
from coordinator import Coordinator
from tasks.components import Components, look

app = Celery("press", broker="memory://", set_as_current=False)
here = Components(Coordinator(app, url=sys.argv[1], prefix=sys.argv[2], timeout=60))
here.declare("Checker", "1.0", event="Checked", past=["Data_Received"], types=["batch"])(lambda work: None)
getattr(look, sys.argv[3])(here, "B1-RT1", by="ann", why="it burns")
"""


@pytest.mark.parametrize("name", ["restart", "stop"])
def test_an_act_that_is_killed_in_its_middle_is_done_once_when_it_is_given_again(
    components: Components, name: str, proxy: Proxy, prefix: str, tmp_path: Path
) -> None:
    """It dies between the line of the trail and the change, while the item is locked."""
    act, _, args, line = ACTS[name]
    failed(components)
    before, proxy.delay = state(components), 0.5
    dying = start(["-c", KILLED, proxy.url(0), prefix, name], tmp_path, environment(TASKS_DATA_DIR=str(tmp_path)))
    wait_until(lambda: lines(components))
    dying.kill()
    dying.wait(60)
    assert (state(components), lines(components)) == (before, [line])
    with pytest.raises(InvalidJob, match="another act on it is under way"):
        act(components, *args, by="bob", why="me too")
    assert state(components) == before
    act(components, *args, by="ann", why="it burns")
    assert (state(components) != before, lines(components)) == (True, [line])
