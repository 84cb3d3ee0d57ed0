"""A quota of which several kinds of jobs, or locks, want units: none waits for what no node takes."""

import pytest

from coordinator import Coordinator, Locked
from coordinator.core.jobs.options import Use
from tests.coordinator.core.quotas.test_random import retarget
from tests.coordinator.core.quotas.units import used
from tests.harness.hand_node import Puppet, sketch
from tests.harness.waiting import wait_until


def submit_what_nobody_takes(node: Puppet, number: int, **options: object) -> None:
    """Jobs for a queue that no node serves."""
    for n in range(number):
        given = {"uses": "q", **options}
        node.submit([], job_id=f"nobodys-{n}", queue="other", if_unknown="wait", **given)


@pytest.mark.parametrize("number", [2, 3, 40])
def test_jobs_that_no_node_takes_keep_no_units_from_the_others(
    node: Puppet, coordinator: Coordinator, number: int
) -> None:
    coordinator.quota("q", concurrency=2)
    submit_what_nobody_takes(node, number)
    for n in range(4):
        node.submit([], job_id=f"own-{n}", uses="q")
    taken = node.take_all()
    assert [one.id for one in taken] == ["own-0", "own-1"]
    for one in taken:
        node.finish(one)
    assert node.order() == ["own-2", "own-3"]


def test_those_that_wait_already_pass_jobs_of_a_kind_that_is_offered_all_there_is(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit([], job_id="first", uses="q")
    first = node.must_take()
    submit_what_nobody_takes(node, 3)
    node.submit([], job_id="own", uses="q")
    assert node.take() is None
    node.finish(first)
    assert node.order() == ["own"]


def test_nobody_passes_one_of_another_kind_that_lacks_units(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=2)
    node.submit([], job_id="first", uses="q")
    first = node.must_take()
    node.submit([], job_id="big", task="shop.other", uses={"q": 2})
    node.submit([], job_id="small", uses="q")
    assert node.take() is None
    node.finish(first)
    assert node.order() == ["big", "small"]


def test_jobs_of_one_task_that_use_different_numbers_of_units_hold_to_their_order(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=2)
    node.submit([], job_id="runs", uses="q")
    runs = node.must_take()
    node.submit([], job_id="ready", uses="q")
    node.submit([], job_id="big", uses={"q": 2})
    node.submit([], job_id="other", task="shop.other", uses="q")
    node.submit([], job_id="urgent", uses="q", priority=5)
    assert {node.lanes.job(one).lacks for one in ("big", "other", "urgent")} == {"q"}
    node.sweep()
    assert node.lanes.job("other").lacks  # though `urgent`, who is first, lacks none
    node.finish(runs)
    assert node.order() == ["urgent", "ready", "big", "other"]


def test_a_rate_goes_on_for_those_whom_nodes_take(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", rate="20/s", burst=1)
    submit_what_nobody_takes(node, 3)
    for n in range(4):
        node.submit([], job_id=f"own-{n}", uses="q")
    wait_until(lambda: node.sweep() is not None and len(node.order()) == 0 and used(coordinator, "q").waiting == 2)


def test_a_lock_waits_for_ready_jobs_that_a_node_can_run_and_for_no_others(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    submit_what_nobody_takes(node, 2)
    with coordinator.lock(uses="q", blocking_timeout=60):
        pass
    node.submit([], job_id="own", uses="q")
    with pytest.raises(Locked):
        coordinator.lock(uses="q", blocking_timeout=0).__enter__()
    node.finish(node.must_take())
    with coordinator.lock(uses="q", blocking_timeout=60):
        pass


def test_units_are_set_apart_though_no_node_takes_what_was_offered(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("a", concurrency=1)
    coordinator.quota("b", concurrency=1)
    node.submit([], job_id="of-b", uses="b")
    of_b = node.must_take()
    submit_what_nobody_takes(node, 1, uses="a")
    node.submit([], job_id="both", uses=["a", "b"])
    node.pass_a_minute("both")
    coordinator.cool_down("b", 0.001)
    wait_until(lambda: node.sweep() is not None and used(coordinator, "a").units == 1)
    node.finish(of_b)
    wait_until(lambda: node.sweep() is not None and node.order() == ["both"])


def test_a_job_that_is_given_another_task_stands_among_its_like(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit([], job_id="first", uses="q")
    first = node.must_take()
    for name in ("a", "b", "c"):
        node.submit([], job_id=name, uses="q")
    retarget(node.store, "b", "shop.other")
    assert [one.job_id for one in coordinator.quota_status("q").queue] == ["a", "b", "c"]
    node.finish(first)
    assert node.order() == ["a", "b", "c"]
    assert used(coordinator, "q") == (0, 0, 0)


def test_queue_and_places_are_those_of_all_kinds_together(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit([], job_id="first", uses="q")
    first = node.must_take()
    places = [
        node.submit(
            [], job_id=f"j{n}", task=f"shop.{'work' if n % 2 else 'other'}", uses="q", priority=int(n == 3)
        ).position
        for n in range(4)
    ]
    assert places == [0, 1, 2, 0]
    status = coordinator.quota_status("q")
    assert [one.job_id for one in status.queue] == ["j3", "j0", "j1", "j2"]
    assert status.quota.waiting == 4
    assert [one.job_id for one in coordinator.quota_status("q", 2).queue] == ["j3", "j0"]
    node.finish(first)
    assert node.order() == ["j3", "j0", "j1", "j2"]


def test_why_leads_to_the_ready_jobs_that_no_node_takes(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=2)
    submit_what_nobody_takes(node, 3)
    why = coordinator.why("nobodys-2")
    assert why.codes[:2] == ["waiting.ready", "waiting.node"]
    assert "waits until nodes have taken nobodys-0, nobodys-1 of the same task" in why.sentence
    assert not why.causes[0].frees


def test_a_started_job_goes_before_one_of_another_kind(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit([], job_id="tried", uses={"q": Use(1)}, max_attempts=2)
    tried = node.must_take()
    node.submit([], job_id="other", task="shop.other", uses="q")
    node.finish(tried, "raised")
    assert node.order() == ["tried", "other"]


def test_jobs_of_two_kinds_that_started_in_one_ms_go_on_after_a_cool_down(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=8)
    for n in range(8):
        node.submit([], job_id=f"j{n}", task=f"shop.{'work' if n % 2 else 'other'}", uses="q", max_attempts=3)
    taken = node.take_all()
    for one in taken:
        node.store._client.hset(node.store.key("job", one.id), "taken", node.store.now())
    at = node.store.now()
    for one in taken:
        node.store._client.hset(node.store.key("job", one.id), "taken", at)
    coordinator.cool_down("q", 60)
    for one in taken:
        node.finish(one, "raised")
    coordinator.cool_down("q")
    assert len(node.order()) == 8


def test_a_lock_gets_its_turn_between_two_kinds_that_always_have_jobs(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    tasks = ("shop.work", "shop.other")
    node.submit([], job_id="j0", task=tasks[0], uses="q")
    assert node.store.step("lock_take", "lock", "", "queue", "token", 60_000, 86_400_000, "1 - q")[0] == b"queued"
    for number in range(1, 10):
        node.submit([], job_id=f"j{number}", task=tasks[number % 2], uses="q")
        if taken := node.take():
            node.finish(taken)
    assert node.lanes.job("lock").state == "running"
    node.store.step("lock_release", "lock", "token")
    assert len(node.order()) == 9


def test_a_kind_whose_jobs_are_gone_stops_no_queue(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit([], job_id="runs", uses="q")
    runs = node.must_take()
    node.submit([], job_id="waits", uses="q")
    node.store._client.zadd(node.store.key("quota-queue", "q"), {"1 shop.gone\nshop\ncelery": -1})
    node.finish(runs)
    assert node.order() == ["waits"]
    assert used(coordinator, "q") == (0, 0, 0)


def submit_kinds(node: Puppet, number: int) -> None:
    """Of each so many jobs that no node takes that one of them waits for the others."""
    for n in range(number):
        for m in range(3):
            given = {"task": f"shop.k{n}", "queue": "other", "if_unknown": "wait", "uses": "q"}
            node.submit([], job_id=f"{n}-{m}", **given)


def test_units_do_not_idle_behind_however_many_kinds_that_no_node_takes(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=2)
    submit_kinds(node, 120)
    node.submit([], job_id="first", uses="q")
    node.submit([], job_id="second", task="shop.other", uses="q")
    wait_until(lambda: node.sweep() is not None and len(node.ready()) == 2)
    assert node.order() == ["first", "second"]


def test_nobody_passes_one_that_lacks_units_behind_however_many_kinds(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=2)
    node.submit([], job_id="runs", uses="q")
    runs = node.must_take()
    for n in range(105):
        for m in range(2):
            node.submit([], job_id=f"{n}-{m}", task=f"shop.k{n}", queue="other", if_unknown="wait", uses="q")
    node.submit([], job_id="big", task="shop.other", uses={"q": 2})
    node.submit([], job_id="small", uses="q")
    for _ in range(3):
        node.sweep()
    assert node.take() is None
    node.finish(runs)
    wait_until(lambda: node.sweep() is not None and node.lanes.job("big").state == "ready")
    assert node.order() == ["big", "small"]


def test_a_rate_whose_jobs_no_node_takes_is_looked_at_once(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", rate="100/s", burst=1)
    submit_what_nobody_takes(node, 3)
    wait_until(lambda: node.sweep() is not None and not node.store._client.exists(node.store.key("quotas-due")))


def test_a_runner_that_gets_a_job_leaves_the_alarm_to_another(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", rate="10/s", burst=1)
    node.lanes.submit_many([sketch([], job_id=f"rated-{n}", uses="q") for n in range(1000)])  # each try may end some
    assert any(alarm_goes_over(node, f"other-{n}") for n in range(30))  # some come too late for an alarm


def alarm_goes_over(node: Puppet, job_id: str) -> bool:
    """Whether a second runner is told to wait for a quota once the first, which waited, got this job."""
    first: list[str] = []
    while asks(node, "first", first) != "waits":  # without a pause: that would let every alarm pass
        assert len(first) < 20_000
    if asks(node, "second", first) != "rests":
        return False
    node.submit("a", job_id=job_id)
    return asks(node, "first", first) == job_id and asks(node, "second", first) == "waits"


def asks(node: Puppet, runner: str, ended: list[str]) -> str:
    """What a runner is told: a job, which ends at once; to come again when a quota lets its queue go on; or nothing."""
    bell, token = f"{len(ended)}-{runner}", f"{runner}-{len(ended)}"
    ended.append(bell)
    node.store._client.zadd(node.store.key("rung", node.name), {bell: 2**53})
    given = node.store.step("runner_take", node.name, node.incarnation, runner, bell, token, node.ttl)
    if not given:
        return "rests"
    if len(given) == 2:
        return "waits"
    node.store.step("job_finish", given[0], token, "succeeded", "1", 0, "", "", "", "", node.name, runner, "", node.ttl)
    return str(given[0].decode())


def test_a_lock_that_takes_the_last_units_stops_the_kinds_that_were_passed(
    node: Puppet, coordinator: Coordinator
) -> None:
    """In one step: a kind waits for its like, a lock is granted, and then that kind lacks units, too."""
    coordinator.quota("q", concurrency=3)
    node.submit([], job_id="runs", uses={"q": 2})
    runs = node.must_take()
    node.submit([], job_id="pair-0", uses={"q": 2}, queue="other", if_unknown="wait")
    node.submit([], job_id="pair-1", uses={"q": 2}, queue="other", if_unknown="wait")
    assert node.store.step("lock_take", "lock", "", "queue", "token", 60_000, 86_400_000, "2 - q")[0] == b"queued"
    node.submit([], job_id="small", task="shop.other", uses="q")
    node.finish(runs)
    node.sweep()
    assert node.lanes.job("lock").state == "running"
    assert node.take() is None
    assert node.lanes.job("small").lacks == "q"
    node.store.step("lock_release", "lock", "token")
    assert node.order() == ["small"]
