"""A job rings the least busy node, by a count of the tests' own."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from coordinator import Coordinator
from tests.harness.hand_node import Puppet


class Busy:
    """The test's own count: what was begun on each node and has not ended, and the bells that were rung."""

    def __init__(self, puppets: Sequence[Puppet], capacities: Sequence[int]) -> None:
        self.puppets = {puppet.name: puppet for puppet in puppets}
        self.capacities = dict(zip(self.puppets, capacities, strict=True))
        self.running: dict[str, list[Any]] = {name: [] for name in self.puppets}
        self.ordinary = dict.fromkeys(self.puppets, 0)

    def share(self, name: str) -> float:
        return (len(self.running[name]) + self.ordinary[name]) / self.capacities[name]

    def least(self) -> float:
        return min(self.share(name) for name in self.puppets)


def test_on_an_idle_fleet_each_job_rings_the_node_that_is_least_busy_then(coordinator: Coordinator) -> None:
    drawn = random.Random(5)
    capacities = (1, 1, 2, 4, 8)
    count = Busy([Puppet(coordinator.store, f"n{i}") for i in range(len(capacities))], capacities)
    for name, puppet in count.puppets.items():
        puppet.up(capacity=count.capacities[name])
    for number in range(200):
        for name, puppet in count.puppets.items():
            count.ordinary[name] = drawn.randrange(2) if count.capacities[name] > 2 else 0
            puppet.nodes.beat(name, "a", {"load": drawn.random(), "ordinary": count.ordinary[name]})
            while count.running[name] and (drawn.random() < 0.5 or count.share(name) >= 1):
                puppet.finish(count.running[name].pop())
        least = count.least()
        next(iter(count.puppets.values())).submit(f"k{number}")
        (rung,) = [name for name, puppet in count.puppets.items() if puppet.rung()]
        assert count.share(rung) <= least + 0.01, (number, rung, least)
        taken = count.puppets[rung].take(bell=count.puppets[rung].rung()[0])
        count.running[rung].append(taken)
    for name, running in count.running.items():
        for taken in running:
            count.puppets[name].finish(taken)


def test_those_who_submit_at_one_instant_never_ring_by_the_same_figure(coordinator: Coordinator) -> None:
    puppets = [Puppet(coordinator.store, f"n{i}") for i in range(8)]
    for puppet in puppets:
        puppet.up(capacity=1)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(puppets[0].submit, f"k{i}") for i in range(8)]:
            done.result()
    assert [len(puppet.rung()) for puppet in puppets] == [1] * 8
    assert len(puppets[0].order()) == 8


@pytest.mark.parametrize("running", [1, 3])
def test_a_node_whose_processor_is_used_up_comes_behind_those_less_than_half_full(
    coordinator: Coordinator, running: int
) -> None:
    hot, other = Puppet(coordinator.store, "hot"), Puppet(coordinator.store, "other")
    for puppet in (hot, other):
        puppet.up(capacity=4)
    other.nodes.beat("other", "a", {"ordinary": running})
    hot.nodes.beat("hot", "a", {"braked": 1, "load": 0.99})
    hot.submit("a")
    assert [len(puppet.rung()) for puppet in (hot, other)] == ([0, 1] if running < 2 else [1, 0])
    assert hot.order()


def test_a_node_that_does_not_answer_its_bells_comes_last_until_it_does(coordinator: Coordinator) -> None:
    hung, other = Puppet(coordinator.store, "hung"), Puppet(coordinator.store, "other")
    hung.up(capacity=8)
    other.up(capacity=4)
    other.nodes.beat("other", "a", {"ordinary": 3})
    hung.submit("a")
    (bell,) = hung.rung()
    key = coordinator.store.key("rung", "hung")
    old = f"{int(bell.split('-')[0]) - 1100}-0"
    coordinator.store._client.zadd(key, {old: coordinator.store._client.zscore(key, bell) or 0})
    coordinator.store._client.zrem(key, bell)
    hung.nodes.beat("hung", "a", {})
    hung.sweep()
    assert (hung.rung(), len(other.rung())) == ([old], 1)
    hung.submit("b")
    assert len(hung.rung()) == 2, "it is better than none"
    for taken in [hung.must_take(bell=bell) for bell in hung.rung()]:
        hung.finish(taken)
    hung.nodes.beat("hung", "a", {})
    hung.submit("c")
    assert len(hung.rung()) == 1
    assert len(hung.order()) == 1
