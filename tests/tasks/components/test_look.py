"""People see why a component works on nothing, and register items for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from coordinator import Coordinator, Entry
from tasks.batches import ItemConflict, UnknownItem
from tasks.components import Components, Work, by_hand, look
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer

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
    coordinator.pause("Checker", why="the disk is full", by="ann")
    coordinator.set_limit("component/Checker", 0, why="later", by="ann")
    assert idle(components)[:3] == [
        "no beat knows its schedule: start one, or run it by hand",
        "its lane Checker is paused by ann: the disk is full",
        "its lane component/Checker is closed: its limit is 0",
    ]
    coordinator.resume("Checker", by="ann")
    coordinator.set_limit("component/Checker", 1, by="ann")
    coordinator.entries.put(Entry("component/Checker", 60, TASKS[0], key="component/Checker"))
    coordinator.entries.pause("component/Checker", by="ann")
    assert idle(components)[0] == "its schedule is paused by ann: no reason given"


def test_an_idle_component_says_which_event_was_never_made_or_how_many_items_are_eligible(
    components: Components,
) -> None:
    coordinator, items = components.coordinator, components.items
    Puppet(coordinator.store).up(tasks=TASKS)
    for name in ("Checker", "Binder"):
        coordinator.entries.put(Entry(f"component/{name}", 60, TASKS[0], key=f"component/{name}"))
    assert idle(components, "Binder") == ["no item ever had the event Chekced (did you mean 'Checked'?)"]
    assert idle(components) == ["no item ever had the event Data_Received"]
    for name in ("B1-RT1", "B2-RT1"):
        items.register(name)
        look.repair(components, "ann").add(name, "Data_Received")
    assert idle(components) == ["2 items are eligible: its next run asks for them"]
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
    components.coordinator.pause("Checker", why="the disk is full", by="ann")
    run = components.coordinator.submit("component/Checker", components.signature("tasks.components.poll", "Checker"))
    assert f"its run {run.id} is parked until its children end" in idle(components)
    components.coordinator.resume("Checker", by="ann")
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
    assert codes(components) == [("item.lacks", "Checker waits for Data_Received, which is not there")]
    repair = look.repair(components, "ann")
    repair.add("B1-RT1", "Data_Received", success=False)
    assert codes(components) == [("item.lacks", "Checker waits for Data_Received, which failed")]
    repair.add("B1-RT1", "Data_Received")
    [(code, text)] = codes(components)
    assert (code, text[:50]) == ("item.eligible", "Checker has not asked for it yet: no node is alive")
    job = components.coordinator.submit(
        "Checker/B1-RT1", components.signature("tasks.components.work", "Checker", "B1-RT1")
    )
    assert codes(components) == [("item.at-work", f"Checker waits for its turn on it: job {job.id}")]
    components.coordinator.cancel(job.id)
    repair.add("B1-RT1", "Checked", success=False)
    why = look.why(components, "B1-RT1")
    assert (why.sentence, why.codes) == ("Checked of Checker failed", ["item.failed"])
    assert why.causes[0].frees == "coordinator items restart B1-RT1 --why TEXT"
    repair.add("B1-RT1", "Checked")
    assert codes(components) == [("item.done", "B1-RT1 has all its events: Checked")]
    items.register("B2-RT1")
    repair.add("B2-RT1", "Data_Received")
    components.declare("Mender", "1.0", event="Mended", past=["Data_Received"], future=["Bound"])(lambda work: None)
    repair.add("B2-RT1", "Bound")
    assert ("item.has", "Mender leaves it out, since it has Bound") in codes(components, "B2-RT1")
    repair.stop("B1-RT1")
    assert codes(components)[0] == ("item.stopped", "B1-RT1 is stopped for every component")
