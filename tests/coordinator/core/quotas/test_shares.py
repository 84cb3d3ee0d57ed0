"""Fair shares: groups of keys get slot seconds by their weights; what a claim takes counts at once."""

from collections import Counter
from itertools import cycle

import pytest

from coordinator import Coordinator, InvalidJob
from tests.harness.hand_node import Puppet, Taken


@pytest.fixture
def other_node(coordinator: Coordinator) -> Puppet:
    return Puppet(coordinator.store, "two")


def run_for(node: Puppet, taken: Taken, ms: int) -> None:
    """End it as if it had run for so long."""
    job = node.store.key("job", taken.id)
    node.store._client.hset(job, "started", node.store.now() - ms)
    node.finish(taken)


def served(node: Puppet, number: int, ms: dict[str, int]) -> list[str]:
    """The groups of the next jobs, each run for the time of its group."""
    groups = []
    for _ in range(number):
        taken = node.must_take()
        group = taken.id.partition("/")[0]
        groups.append(group)
        run_for(node, taken, ms[group])
    return groups


def fill(node: Puppet, number: int, *groups: str) -> None:
    for group in groups:
        for n in range(number):
            node.submit(f"{group}/{n}", job_id=f"{group}/{n}", task="shop.other" if group == "long" else "shop.work")


def drain(node: Puppet) -> None:
    while taken := node.take():
        node.finish(taken)


def test_a_group_of_long_jobs_gets_as_many_slot_seconds_as_one_of_short_jobs(
    node: Puppet, coordinator: Coordinator
) -> None:
    fill(node, 60, "long", "short")
    groups = served(node, 50, {"long": 10_000, "short": 1_000})
    assert 4 <= groups.count("long") <= 7, groups
    drain(node)


def test_weights_of_three_to_one_give_three_to_one_of_slot_seconds(node: Puppet, coordinator: Coordinator) -> None:
    assert coordinator.weight("acme", 3, why="pays") == 1
    fill(node, 100, "acme", "other")
    groups = served(node, 80, {"acme": 2_000, "other": 2_000})
    assert 58 <= groups.count("acme") <= 62, groups
    assert coordinator.weight("acme", 1) == 3
    assert coordinator._quotas.weights() == {}
    drain(node)


def test_running_jobs_count_so_that_a_flood_does_not_start_while_a_light_tenant_is_ready(
    node: Puppet, coordinator: Coordinator
) -> None:
    fill(node, 100, "flood")
    running = [node.must_take() for _ in range(8)]
    assert {taken.id.partition("/")[0] for taken in running} == {"flood"}
    starts = []
    for n in range(30):
        node.submit(f"light/{n}", job_id=f"light/{n}", task="shop.other")
        run_for(node, running.pop(0), 60_000)
        first = node.must_take()
        starts.append(first.id.partition("/")[0])
        run_for(node, first, 100)
        running.append(node.must_take())
    assert starts == ["light"] * 30
    for taken in running:
        node.finish(taken)
    drain(node)


def test_a_group_that_comes_back_begins_where_the_others_are(node: Puppet, coordinator: Coordinator) -> None:
    fill(node, 40, "busy")
    served(node, 30, {"busy": 5_000})
    fill(node, 20, "away")
    groups = served(node, 10, {"busy": 5_000, "away": 5_000})
    assert 4 <= groups.count("away") <= 6, groups
    drain(node)


def test_groups_in_several_queues_of_a_node_share_its_slots(node: Puppet) -> None:
    node.up(queue="celery,other")
    for n in range(60):
        node.submit(f"long/{n}", job_id=f"long/{n}", task="shop.other")
        node.submit(f"short/{n}", job_id=f"short/{n}", queue="other")
    groups = served(node, 50, {"long": 10_000, "short": 1_000})
    assert 4 <= groups.count("long") <= 7, groups
    drain(node)


def test_a_flood_in_one_queue_does_not_start_while_a_light_tenant_is_ready_in_another(node: Puppet) -> None:
    node.up(queue="celery,other")
    fill(node, 60, "flood")
    running = [node.must_take() for _ in range(8)]
    starts = []
    for n in range(20):
        node.submit(f"light/{n}", job_id=f"light/{n}", task="shop.other", queue="other")
        run_for(node, running.pop(0), 60_000)
        first = node.must_take()
        starts.append(first.id.partition("/")[0])
        run_for(node, first, 100)
        running.append(node.must_take())
    assert starts == ["light"] * 20
    for taken in running:
        node.finish(taken)
    drain(node)


def test_a_job_that_was_started_stops_no_other_queue_of_the_node(node: Puppet) -> None:
    node.up(queue="celery,other")
    fill(node, 40, "a")
    node.submit("b/1", job_id="b/1", queue="other", max_attempts=100)
    groups = []
    for _ in range(30):
        taken = node.must_take()
        groups.append(taken.id[0])
        node.store._client.hset(node.store.key("job", taken.id), "started", node.store.now() - 5_000)
        node.finish(taken, "raised" if taken.id == "b/1" else "succeeded")
    assert 10 <= groups.count("a") <= 20, groups
    node.lanes.cancel("b/1")
    drain(node)


@pytest.mark.parametrize("met", [True, False])
def test_a_group_that_comes_back_in_another_queue_begins_where_the_others_are(node: Puppet, met: bool) -> None:
    if met:
        node.up(queue="celery,other")
        node.submit("away/first", job_id="away/first", queue="other")
        run_for(node, node.must_take(), 5_000)
    fill(node, 50, "busy")
    served(node, 30, {"busy": 5_000})
    node.up(queue="celery,other")
    for n in range(20):
        node.submit(f"away/{n}", job_id=f"away/{n}", queue="other")
    groups = served(node, 10, {"busy": 5_000, "away": 5_000})
    assert 4 <= groups.count("away") <= 6, groups
    drain(node)


def test_queues_that_come_to_share_a_node_share_it_from_then_on(node: Puppet, other_node: Puppet) -> None:
    node.up(queue="celery")
    other_node.up(queue="other")
    for n in range(60):
        node.submit(f"much/{n}", job_id=f"much/{n}")
        node.submit(f"little/{n}", job_id=f"little/{n}", queue="other")
    served(node, 20, {"much": 5_000})
    served(other_node, 2, {"little": 5_000})
    node.up(queue="celery,other")
    groups = served(node, 10, {"much": 5_000, "little": 5_000})
    assert 4 <= groups.count("much") <= 6, groups
    drain(node)


def test_a_queue_that_is_new_to_a_node_begins_where_the_others_are(node: Puppet) -> None:
    node.up(queue="celery,third,other")
    node.submit("third/1", job_id="third/1", queue="third")
    fill(node, 40, "busy")
    served(node, 30, {"busy": 5_000, "third": 5_000})
    for n in range(20):
        node.submit(f"away/{n}", job_id=f"away/{n}", queue="other")
    groups = served(node, 10, {"busy": 5_000, "away": 5_000})
    assert 4 <= groups.count("away") <= 6, groups
    drain(node)


def test_a_queue_whose_task_a_node_gets_later_begins_where_the_others_are(node: Puppet) -> None:
    node.up(queue="celery,other", tasks=("shop.work",))
    for n in range(20):
        node.submit(f"away/{n}", job_id=f"away/{n}", task="shop.other", queue="other", if_unknown="wait")
    fill(node, 50, "busy")
    served(node, 30, {"busy": 5_000})
    node.up(queue="celery,other")
    groups = served(node, 10, {"busy": 5_000, "away": 5_000})
    assert 4 <= groups.count("away") <= 7, groups
    drain(node)


def test_a_damaged_share_stops_no_claim(node: Puppet, coordinator: Coordinator) -> None:
    fill(node, 2, "a", "b")
    node.store._client.hset(node.store.key("shares"), "a", "rubbish")
    node.store._client.hset(node.store.key("shares"), "b", "1.5")
    assert len(node.order()) == 4


def test_what_a_run_took_less_than_usual_is_credit_that_a_waiting_group_keeps(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.weight("acme", 3)
    fill(node, 400, "acme", "other")
    spent = Counter[str]()
    lengths, running = cycle((8_000, 400, 2_000, 400, 400, 6_000, 400)), []
    for _ in range(400):
        while len(running) < 4:
            running.append((node.must_take(), next(lengths)))
        taken, ms = running.pop(0)
        spent[taken.id.partition("/")[0]] += ms
        run_for(node, taken, ms)
    assert 2.6 <= spent["acme"] / spent["other"] <= 3.9, spent  # the clock of a busy machine counts, too
    for taken, _ in running:
        node.finish(taken)
    drain(node)


def test_a_task_that_this_node_lacks_does_not_stop_another_group(node: Puppet) -> None:
    node.up(tasks=("shop.work",))
    for n in range(20):
        node.submit(f"a/{n}", job_id=f"a/{n}", task="shop.other", if_unknown="wait")
    node.submit("b/1", job_id="b/1")
    taken = None
    for _ in range(5):
        taken = taken or node.take()
    assert taken
    assert taken.id == "b/1"
    node.finish(taken)
    node.up()
    drain(node)


@pytest.mark.parametrize(
    ("group", "weight", "says"),
    [
        ("tenant/acme", 2, "the group of such keys is 'tenant'"), ("a", 0, "weight is a number"),
        ("a", True, "weight is a number"), ("a\n", 2, "control characters"),
    ],
)  # fmt: skip
def test_a_weight_that_means_nothing_is_refused(coordinator: Coordinator, group: str, weight: float, says: str) -> None:
    with pytest.raises(InvalidJob, match=says):
        coordinator.weight(group, weight)
