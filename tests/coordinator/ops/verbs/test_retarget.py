"""Jobs of a task that was renamed get its new name, and an operator sees that they wait."""

import json
from typing import Any

import pytest
from celery import chain, group, signature

from coordinator import Coordinator, InvalidJob
from coordinator.core.author import act_of
from coordinator.core.fleet.nodes import Nodes
from coordinator.core.jobs.record import fields, fields_of_many
from coordinator.ops.diagnosis.doctor import examine
from coordinator.ops.verbs.retarget import SEEN
from tests.harness.command import Call, told
from tests.harness.hand_node import Puppet

OLD, NEW = "shop.work", "shop.send"


def call_of(task: str) -> Any:
    return signature(task, args=([], {}, "x" * 100))


def warnings(node: Puppet) -> list[str]:
    return [f"{one} {one.fix}" for one in examine(node.store) if one.code == "task.unknown"]


def renamed(node: Puppet) -> None:
    """The fleet is deployed anew: it has the new name, on a queue of its own."""
    node.nodes.leave("one", "a")
    about: Any = {"app": "shop", "capacity": 8, "ordinary": 0, "load": 0, "queue": "celery"}
    about["routes"] = json.dumps({NEW: "post"})
    node.nodes.register("one", "b", about, ["app shop", "queue celery", "queue post"], [NEW, "shop.other"])
    node.incarnation = "b"


def test_jobs_of_a_renamed_task_are_seen_and_given_the_new_one(
    coordinator: Coordinator, node: Puppet, call: Call
) -> None:
    """In each state: ready, behind another, retrying, held, later, at a sorter; the one at work stays."""
    node.submit("w", job_id="at work")
    at_work = node.must_take()
    node.submit("r", job_id="retrying", max_attempts=3)
    node.finish(node.must_take(), "raised", delay=60_000)
    node.submit("h", job_id="held", on_failure="hold")
    node.finish(node.must_take(), "failed")
    for job_id in ("first", "second"):
        node.submit("k", job_id=job_id)
    node.submit("u", job_id="urgent", priority=5)
    node.submit("l", job_id="later", options={"countdown": 3600})
    coordinator.sorter("orders", 60).add("collected", "s", {"task": OLD})
    node.submit("o", job_id="other", task="shop.other")
    assert warnings(node) == []
    renamed(node)
    assert warnings(node) == [
        "error [task.unknown] (task shop.work) 3 jobs wait for a task that no node has "
        "coordinator retarget shop.work NEW --why …"
    ]
    answer = told(call("retarget", OLD, NEW, "--why", "renamed", "--by", "ann"))
    assert answer == "7 jobs with shop.work name shop.send; 1 at work stay as they are: ask again later"
    assert warnings(node) == []
    assert coordinator.retarget(OLD, NEW) == (0, 1)
    assert coordinator.job("held").acts["retargeted"]["by"] == "ann"
    assert {coordinator.job(job_id).task for job_id in ("first", "second", "later", "orders/collected")} == {NEW}
    assert [coordinator.retry("retrying"), coordinator.retry("held")] == ["ready", "ready"]
    assert set(node.order()) == {"urgent", "first", "second", "retrying", "held", "other"}
    assert node.finish(at_work).verdict == "accepted"
    assert fields(node.store, "later", "class") == ["shop\npost"]


def test_steps_members_rollbacks_and_links_get_the_new_name_and_keep_their_arguments(
    coordinator: Coordinator, node: Puppet
) -> None:
    old = call_of(OLD).set(link=[call_of(OLD)])
    whole = chain(call_of("shop.other"), call_of(OLD), group(call_of(OLD)))
    coordinator.submit("k", whole, rollback=call_of(OLD), needs=["gpu"], if_unknown="wait", job_id="chain")
    coordinator.submit("j", old, job_id="linked")
    renamed(node)
    assert coordinator.retarget(OLD, NEW, why="renamed") == (2, 0)
    spec = coordinator._core.spec("chain")
    steps = spec["steps"]
    assert [step.get("task") for step in steps[:2]] == ["shop.other", NEW]
    assert (steps[1]["class"], steps[1]["args"]) == ("shop\npost\ngpu", [[], {}, "x" * 100])
    assert OLD not in json.dumps(spec)
    assert fields(node.store, "chain", "undo") == [f"{NEW}\n0\nshop\npost\ngpu"]
    assert OLD not in json.dumps(coordinator._core.spec("linked"))
    assert node.must_take().id == "linked"


def test_a_record_of_any_length_keeps_its_arguments_when_it_gets_the_new_name(
    coordinator: Coordinator, node: Puppet
) -> None:
    """It becomes shorter, so that pieces of the longer text are left."""
    sizes = range(64)
    for size in sizes:
        coordinator.submit("k", signature("shop.other", link=[signature(OLD, args=("x" * size,))]), job_id=f"j{size}")
    renamed(node)
    assert coordinator.retarget(OLD, NEW) == (len(sizes), 0)
    links = [coordinator._core.spec(f"j{size}")["link"] for size in sizes]
    assert [(link["task"], link["args"]) for (link,) in links] == [(NEW, ["x" * size]) for size in sizes]


def test_a_rollback_that_is_due_gets_the_new_name_and_the_job_stays_what_it_was(
    coordinator: Coordinator, node: Puppet
) -> None:
    node.submit("k", task="shop.other", rollback={"task": OLD}, job_id="j")
    node.finish(node.must_take(), "failed")
    renamed(node)
    assert node.take() is None
    assert coordinator.retarget(OLD, NEW) == (1, 0)
    assert node.finish(node.must_take()).state == "rolled_back"
    assert coordinator.job("j").task == "shop.other"


def test_a_job_that_begins_while_it_is_retargeted_is_left_to_its_node(coordinator: Coordinator, node: Puppet) -> None:
    ids = ("j", "other")
    for job_id in ids:
        node.submit(job_id, job_id=job_id)
    seen = ["\0".join(one) for one in fields_of_many(node.store, ids, *SEEN)]
    taken = node.must_take()
    calls = [(job_id, one, act_of(), "task", NEW, "class", "shop\npost") for job_id, one in zip(ids, seen, strict=True)]
    assert node.store.step_many("job_retarget", calls) == [0, 1]
    assert [coordinator.job(job_id).task for job_id in ids] == [OLD, NEW]
    assert node.finish(taken).verdict == "accepted"
    coordinator.cancel("other")


def test_a_task_that_nobody_has_is_refused(coordinator: Coordinator, node: Puppet) -> None:
    renamed(node)
    with pytest.raises(InvalidJob, match=r"the task 'shop\.sned' \(did you mean 'shop\.send'\?\): start one first$"):
        coordinator.retarget(OLD, "shop.sned")
    Nodes(node.store).leave("one", "b")
    with pytest.raises(InvalidJob, match="start one first"):
        coordinator.retarget(OLD, NEW)
