"""Which node is woken for what, and that wake-ups, room and ready lists heal."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from coordinator import Coordinator
from tests.harness.hand_node import TASKS, Puppet, Taken


def pair(coordinator: Coordinator, **second: Any) -> tuple[Puppet, Puppet]:
    one, two = Puppet(coordinator.store, "one"), Puppet(coordinator.store, "two")
    one.up()
    two.up(**second)
    return one, two


def make_overdue(node: Puppet) -> list[str]:
    """Let the time pass in which a runner would have answered; the bells."""
    node.store._client.zadd(node.store.key("rung", node.name), dict.fromkeys(node.rung(), 0))
    return node.rung()


def woken(node: Puppet, incarnation: str = "a") -> list[str]:
    """What waits for the supervisor of this worker."""
    wakes: Any = node.store._client.lrange(node.store.key("wakes", incarnation, node.name), 0, -1)
    return [wake.decode() for wake in wakes]


def scores(node: Puppet) -> dict[str, float]:
    found: Any = node.store._client.zrange(node.store.key("room"), 0, -1, withscores=True)
    return {name.decode(): score for name, score in found}


def test_of_two_equally_busy_nodes_the_one_with_the_idle_processor_is_rung(coordinator: Coordinator) -> None:
    one, two = pair(coordinator)
    one.nodes.beat("one", "a", {"load": 0.9})
    one.submit("a")
    assert (one.rung(), len(two.rung())) == ([], 1)
    two.order()


def test_a_full_node_is_not_rung_and_takes_the_next_job_when_one_ends(node: Puppet) -> None:
    node.up(capacity=2)
    for i in range(4):
        node.submit(f"k{i}")
    bells = node.rung()
    assert len(bells) == 2
    first, second = (node.must_take(bell=bell) for bell in bells)
    assert node.rung() == []
    following = node.finish(first, next_token="next").next
    assert following
    assert node.rung() == []
    node.finish(following)
    node.finish(second)
    node.order()


def test_a_slice_that_ends_with_work_ready_rings_again(node: Puppet) -> None:
    node.up(capacity=1)
    node.submit("a")
    node.submit("b")
    taken = node.must_take(bell=node.rung()[0])
    node.finish(taken)
    assert len(node.rung()) == 1
    node.order()


def test_a_slice_that_ends_rings_once_for_what_its_own_job_made_ready(node: Puppet) -> None:
    node.submit("a")
    node.submit("a")
    taken = node.must_take(bell=node.rung()[0])
    assert node.rung() == []
    node.finish(taken)
    assert len(node.rung()) == 1
    node.order()


@pytest.mark.parametrize("end", [Puppet.lose, partial(Puppet.lose, how="stopped"), partial(Puppet.lose, how="handed")])
def test_a_job_whose_process_is_gone_is_rung_at_once_at_a_node_whose_only_slot_it_had(
    node: Puppet, end: Callable[[Puppet, Taken], str]
) -> None:
    node.up(capacity=1)
    node.submit("a", job_id="j")
    taken = node.must_take(bell=node.rung()[0])
    end(node, taken)
    assert len(node.rung()) == 1
    assert node.order() == ["j"]


@pytest.mark.parametrize(
    ("registered", "wanted"),
    [
        ({"queue": "slow"}, {}),
        ({"tasks": ("shop.other",)}, {}),
        ({}, {"queue": "slow"}),
        ({}, {"needs": ["gpu"]}),
    ],
    ids=["its queue", "its task", "another queue", "a label"],
)
def test_a_node_that_lacks_what_a_job_needs_is_neither_rung_nor_given_it(
    node: Puppet, registered: dict[str, Any], wanted: dict[str, Any]
) -> None:
    node.up(**registered)
    node.submit("a", job_id="j", **wanted)
    assert node.rung() == []
    node.sweep()
    assert node.rung() == []
    assert node.take() is None
    assert node.lanes.job("j").state == "ready"
    node.lanes.cancel("j")


def test_a_job_that_waited_for_a_node_is_rung_when_one_registers(coordinator: Coordinator) -> None:
    node = Puppet(coordinator.store)
    node.submit("a", job_id="j")
    assert node.take() is None
    assert node.up()
    assert len(node.rung()) == 1
    assert node.order() == ["j"]


def test_a_job_whose_bell_was_on_its_way_to_a_node_that_leaves_is_rung_elsewhere(coordinator: Coordinator) -> None:
    one, two = pair(coordinator)
    one.submit("a")
    leaving, other = (one, two) if one.rung() else (two, one)
    assert other.rung() == []
    leaving.nodes.leave(leaving.name, "a")
    assert len(other.rung()) == 1
    other.order()


def test_jobs_that_no_node_knows_do_not_hide_the_others(coordinator: Coordinator) -> None:
    node = Puppet(coordinator.store)
    strangers = [node.submit(f"s{i}", task="shop.unknown").id for i in range(20)]
    node.submit("a", job_id="known")
    node.up()
    assert len(node.rung()) >= 1
    found = None
    for _ in range(4):
        found = found or node.take()
    assert found
    assert found.id == "known"
    node.finish(found)
    assert {node.lanes.job(stranger).state for stranger in strangers} == {"ready"}
    node.up(tasks=(*TASKS, "shop.unknown"))
    assert sorted(node.order()) == sorted(strangers)


def test_entries_of_jobs_that_are_gone_vanish_from_the_ready_list(node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.store._client.zadd(node.store.key("group", "\nshop\ncelery"), {"never-was": -2, "nor-this": -1})
    assert node.order() == ["j"]
    assert node.ready() == []
    assert node.store._client.exists(node.store.key("ready", "shop\ncelery")) == 0


def test_a_ready_group_without_a_job_keeps_no_node_out(node: Puppet) -> None:
    """Redis 7.0 applies half a step of a file that a power cut tore."""
    node.submit("a", job_id="j")
    node.nodes.leave("one", "a")
    node.store._client.zadd(node.store.key("ready", "shop\ncelery"), {"without": -1})
    assert node.up(incarnation="b")
    assert node.order() == ["j"]
    assert node.store._client.exists(node.store.key("ready", "shop\ncelery")) == 0


def test_a_wake_up_that_is_none_counts_as_one_that_nobody_answers(node: Puppet) -> None:
    node.store._client.zadd(node.store.key("rung", "one"), {"rubbish": 0})
    node.submit("k")
    node.sweep()
    assert node.take(bell=woken(node)[0])


def test_a_bell_that_nobody_answers_is_due_again_after_two_seconds_and_counts_for_no_job_after_one(
    node: Puppet,
) -> None:
    key, client = node.store.key("rung", "one"), node.store._client
    node.submit("a")
    ((bell, due),) = client.zrange(key, 0, -1, withscores=True)
    assert due == int(bell.partition(b"-")[0]) + 2000
    client.zrem(key, bell)
    client.zadd(key, {f"{node.store.now() - 1000}-0": 2**53})
    node.sweep()
    assert len(node.rung()) == 2
    node.order()


def test_the_supervisor_of_a_worker_finds_a_wake_up_in_a_list_of_its_own_which_lasts_a_minute(node: Puppet) -> None:
    node.submit("a")
    bells = node.rung()
    assert (len(bells), woken(node)) == (1, bells)
    assert 50_000 < node.store._client.pttl(node.store.key("wakes", "a", "one")) <= 60_000
    node.nodes.leave("one", "a")
    node.up(incarnation="b")
    assert woken(node, "b") == node.rung() != bells
    assert woken(node) == bells, "nobody reads it any more"
    node.order()


def test_a_wake_up_that_no_runner_answers_is_told_to_the_supervisor_by_a_beat(node: Puppet) -> None:
    node.submit("a")
    assert node.nodes.beat("one", "a", {}).wakes == []
    (bell,) = make_overdue(node)
    assert node.nodes.beat("one", "a", {}).wakes == [bell.encode()]
    assert node.nodes.beat("one", "a", {}).wakes == [], "not before another second is over"
    node.finish(node.must_take(bell=bell))


def test_what_a_node_held_is_known_for_an_hour_after_it_has_left(node: Puppet) -> None:
    node.submit("a")
    taken = node.must_take()
    node.nodes.leave("one", "a", [taken.id])
    for kind in ("gone", "work"):
        assert 3_500_000 < node.store._client.pttl(node.store.key(kind, "one")) <= 3_600_000
    node.up()
    assert node.renew(taken) == [True]
    node.finish(taken)


def test_bells_that_were_lost_are_rung_again_one_of_them_each_second_and_all_once_it_arrives(node: Puppet) -> None:
    for number in range(4):
        node.submit(f"a{number}")
    key = node.store.key("rung", "one")
    node.store._client.zrem(key, node.rung()[0])
    node.store._client.zadd(key, {f"{node.store.now() - 60_000}-0": 0})  # rung for a minute, and no more patient for it
    bells = make_overdue(node)

    def again(ordinary: int = 0) -> list[str]:
        """Of what a beat tells the supervisor, once all are due."""
        beat = node.nodes.beat("one", "a", {"ordinary": ordinary})
        before = node.store.now()
        for bell in node.rung():
            assert (node.store._client.zscore(key, bell) or 0) <= before + 1000
            node.store._client.zadd(key, {bell: before - 60_000})
        return [bell.decode() for bell in beat.wakes] if beat else []

    assert again() == bells
    (probe,) = again()
    assert again() == [probe]
    assert again(ordinary=4) == [], "no slot is free"
    assert again() == [probe]
    taken = [node.must_take(bell=probe)]
    assert sorted(again()) == sorted({*bells} - {probe})
    taken += [node.must_take(bell=bell) for bell in node.rung()]
    for one in taken:
        node.finish(one)


def test_bells_for_work_that_was_taken_by_others_leave_and_free_the_room(coordinator: Coordinator) -> None:
    one, two = pair(coordinator)
    one.submit("a")
    assert len(one.rung()) == 1
    assert two.order()
    assert scores(one)["one"] > 0.2
    make_overdue(one)
    assert one.nodes.beat("one", "a", {}).wakes == []
    assert one.rung() == []
    assert scores(one)["one"] < 0.2


def test_ready_work_beside_a_node_with_room_is_rung_by_the_sweep(node: Puppet) -> None:
    for i in range(3):
        node.submit(f"k{i}")
    node.store._client.delete(node.store.key("rung", "one"))
    node.nodes.beat("one", "a", {})
    node.sweep()
    assert len(node.rung()) == 3
    node.sweep()
    assert len(node.rung()) == 3, "bells on their way are not rung twice"
    node.order()


def test_a_dead_nodes_bells_and_entries_are_not_its_successors(node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.submit("b")
    node.must_take()
    client, rung = node.store._client, node.store.key("rung", "one")
    bells = set(client.zrange(rung, 0, -1))
    client.zadd(node.store.key("alive"), {"one": 1})
    assert node.up(incarnation="b") is True
    assert node.work() == {}
    assert len(bells) == 2
    assert not bells & set(client.zrange(rung, 0, -1))
    node.lapse("j")
    node.sweep()
    assert len(node.order()) == 2


def test_a_node_shows_what_it_is(node: Puppet) -> None:
    node.submit("a")
    taken = node.must_take()
    (found,) = node.nodes.all()
    assert (found.name, found.app, found.queues, found.tasks) == ("one", "shop", ("celery",), tuple(sorted(TASKS)))
    assert (found.capacity, found.running, found.rung, found.draining) == (4, 1, 1, False)
    node.finish(taken)


def test_classes_take_turns_so_that_none_starves_the_others(coordinator: Coordinator) -> None:
    node = Puppet(coordinator.store)
    serves = ["app shop", "queue celery", "queue other"]
    about = {"app": "shop", "capacity": 1, "ordinary": 0, "load": 0}
    node.nodes.register("one", "a", about, serves, TASKS)
    for i in range(300):
        node.submit(f"flood/{i}")
    other = [node.submit(f"other/{i}", queue="other").id for i in range(3)]
    order = node.order()
    assert max(order.index(job_id) for job_id in other) < 250


def test_a_job_of_another_class_that_became_ready_rings_its_own_nodes(coordinator: Coordinator) -> None:
    one, two = pair(coordinator, queue="slow")
    one.submit("a", job_id="first")
    one.submit("a", job_id="slow", queue="slow")
    one.submit("b", job_id="next")
    first = one.must_take()
    assert two.rung() == []
    following = one.finish(first, next_token="next").next
    assert following
    assert len(two.rung()) == 1
    one.finish(following)
    assert two.order() == ["slow"]
