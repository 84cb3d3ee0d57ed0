"""What a drain would do: what runs on the node, how long that may take, and what no other node has."""

import re

import pytest

from coordinator import Coordinator, InvalidJob
from coordinator.ops.verbs.drain_plan import DrainPlan
from tests.harness.command import Call, loaded, told
from tests.harness.hand_node import TASKS, Puppet

ABOUT = {"app": "shop", "capacity": 4, "ordinary": 0, "load": 0}


def node_with(coordinator: Coordinator, name: str, *more: str, tasks: tuple[str, ...] = TASKS) -> Puppet:
    """A node of the app shop. `more`: what it serves besides, such as `label printer`."""
    node = Puppet(coordinator.store, name)
    assert node.register(ABOUT, ["app shop", "queue celery", *more], tasks)  # type: ignore[arg-type]
    return node


def spent(coordinator: Coordinator, job_id: str, seconds: float) -> None:
    """As if the job had begun so long ago."""
    store = coordinator.store
    store.read("HSET", store.key("job", job_id), "started", store.clock().wall - round(seconds * 1000))


def test_the_plan_names_what_no_other_node_has(coordinator: Coordinator) -> None:
    node_with(coordinator, "one", "queue print", "label printer", tasks=(*TASKS, "shop.scan"))
    node_with(coordinator, "two")
    plan = coordinator.plan.drain("one")
    assert plan.only == ("queue print", "label printer", "task shop.scan")
    assert plan.lines == [
        "no other node that takes jobs has queue print, label printer, task shop.scan",
        "no job runs there: it is empty at once",
    ]
    assert coordinator.plan.drain("two").only == ()
    assert coordinator.plan.drain("two").lines[0] == "other nodes have all of its queues, labels and tasks"
    node_with(coordinator, "three", "queue print", "label printer", tasks=(*TASKS, "shop.scan"))
    assert coordinator.plan.drain("one").only == ()
    coordinator.drain("three", why="it does not count")
    assert len(coordinator.plan.drain("one").only) == 3


def test_the_last_node_of_an_app_is_called_that(coordinator: Coordinator) -> None:
    node_with(coordinator, "one", "queue print")
    other = {**ABOUT, "app": "mail"}
    assert Puppet(coordinator.store, "two").register(other, ["app mail", "queue celery", "queue print"], TASKS)  # type: ignore[arg-type]
    plan = coordinator.plan.drain("one")
    assert plan.only == ("app shop",)
    assert plan.lines[0] == "it is the only node of app shop that takes jobs: none of its jobs starts"


def test_ready_jobs_that_only_this_node_can_take_are_counted(coordinator: Coordinator) -> None:
    one = node_with(coordinator, "one", "queue print", "label printer")
    node_with(coordinator, "two", "queue print")
    for number in range(3):
        one.submit(f"a/{number}", options={"queue": "print"}, needs=["printer"])
    one.submit("b")
    plan = coordinator.plan.drain("one")
    assert plan.ready == 3
    assert plan.lines[1] == "3 ready jobs wait until it comes back, or another comes"
    assert coordinator.plan.drain("two").ready == 0


def test_what_runs_there_says_since_when_and_how_long_it_may_take(coordinator: Coordinator) -> None:
    one = node_with(coordinator, "one")
    node_with(coordinator, "two")
    one.submit("a", job_id="a", time_limit=600)
    one.submit("b", job_id="b", task="shop.other")
    taken = one.take_all()
    spent(coordinator, "a", 180)
    spent(coordinator, "b", 30)
    store = coordinator.store
    store.read("HSET", store.key("usual"), "shop.work", "250000", "shop.other", "40000")
    plan = coordinator.plan.drain("one")
    assert [(job.id, job.usual, job.limit) for job in plan.at_work] == [("a", 250.0, 600.0), ("b", 40.0, None)]
    assert plan.expected == pytest.approx(70, abs=10)
    _, most, first, second = plan.lines
    assert re.fullmatch(r"2 jobs run there, likely for \d+ s more; what still runs after 5 min is handed over", most)
    assert first == "job a (shop.work) has run for 3 min, its task usually takes 4 min, its time limit is 10 min"
    assert second.startswith("job b (shop.other) has run for 3")
    assert (coordinator.plan.drain("two").at_work, coordinator.plan.drain("two").expected) == ((), 0)
    spent(coordinator, "b", 50)  # longer than usual
    late = coordinator.plan.drain("one")
    assert late.expected is None
    assert "nobody can tell for how long" in late.lines[1]
    assert "longer than its task usually takes (40 s)" in late.lines[3]
    store.read("HDEL", store.key("usual"), "shop.work")
    assert coordinator.plan.drain("one").at_work[0].usual is None
    for job in taken:
        one.finish(job)


def test_a_plan_never_takes_longer_than_the_time_after_which_jobs_are_handed_over(coordinator: Coordinator) -> None:
    one = node_with(coordinator, "one")
    one.submit("a", job_id="a")
    taken = one.must_take()
    coordinator.store.read("HSET", coordinator.store.key("usual"), "shop.work", "86400000")
    assert coordinator.plan.drain("one").expected == coordinator.settings.drain_timeout
    one.finish(taken)


def test_ordinary_tasks_are_left_alone(coordinator: Coordinator) -> None:
    node_with(coordinator, "one").nodes.beat("one", "a", {"ordinary": 2})
    assert coordinator.plan.drain("one").lines[1].startswith("2 ordinary tasks there: a drain is of jobs")


def test_an_undrain_says_what_it_brings_back(coordinator: Coordinator) -> None:
    one = node_with(coordinator, "one", "label printer")
    node_with(coordinator, "two")
    coordinator.drain("one", why="a test")
    one.submit("a", needs=["printer"])
    plan = coordinator.plan.undrain("one")
    assert plan.lines == ["no other node that takes jobs has label printer", "1 ready job waits for it alone"]


def test_what_would_change_nothing_and_a_node_that_is_not_there_are_named(coordinator: Coordinator) -> None:
    node_with(coordinator, "one")
    assert coordinator.plan.undrain("one").lines == ["one is not drained: nothing changes"]
    coordinator.drain("one", why="a test")
    assert coordinator.plan.drain("one").lines == ["one is drained already: nothing changes"]
    assert coordinator.plan.drain("nobody").lines == [
        "no node nobody is alive; one of that name gets no jobs when it comes"
    ]
    for call in (coordinator.plan.drain, coordinator.plan.undrain):
        with pytest.raises(InvalidJob, match="node"):
            call("")


def test_a_dry_run_drains_nothing(coordinator: Coordinator, call: Call) -> None:
    node_with(coordinator, "one", "label printer")
    node_with(coordinator, "two")
    dry = ("one", "--dry-run")  # it needs no reason
    assert "has label printer" in told(call("nodes", "drain", *dry))
    assert loaded(call("nodes", "undrain", *dry, "--json"))["plan"] == ["one is not drained: nothing changes"]
    assert "--why" in call("nodes", "drain", "one").stderr
    assert not any(node.drained for node in coordinator.nodes())
    assert isinstance(coordinator.plan.drain("one"), DrainPlan)
