"""Work goes to the least busy node, by counts of the tests' own; nodes of different sizes end together."""

import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from bench.schedules import Slots, at_random, best, end_of, heavy_tail, in_turns
from bench.servers import slowed
from coordinator import Coordinator
from tests.fleet import Fleet
from tests.puppet import Puppet
from tests.waiting import wait_until

CAPACITIES = {"a": 1, "b": 1, "c": 2, "d": 4}


class Run(NamedTuple):
    """Seconds: until the last job ended; that each took, and its process needs to come to the next; of each node."""

    took: float
    sizes: list[float]
    busy: Counter[str]


def work_off(fleet: Fleet, sizes: Sequence[int], name: str, slow: str = "") -> Run:
    """Those of the node `slow` count as long as elsewhere."""
    began = fleet.coordinator.store.client.time()
    toil, submit_many = fleet.shop.toil, fleet.coordinator.submit_many
    asked = submit_many((f"{name}{i}", toil.s(f"{name}{i}", size)) for i, size in enumerate(sizes))
    wait_until(lambda: len(fleet.stamps(what="end")) >= len(sizes), 60, fleet.logs)
    starts = {stamp.name: stamp.at for stamp in fleet.stamps(what="begin")}
    ends = {stamp.name: stamp.at for stamp in fleet.stamps(what="end")}
    jobs = [fleet.coordinator.wait(one.job_id, 20) for one in asked]
    spans = [(starts[f"{name}{i}"], ends[f"{name}{i}"]) for i in range(len(sizes))]
    between = hand_over([(job.result, *span) for job, span in zip(jobs, spans, strict=True)])
    lasted = [between + (end - start) / 1e6 for start, end in spans]
    unit = statistics.median(one / size for one, size in zip(lasted, sizes, strict=True))
    if slow:
        lasted = [unit * size if job.node == slow else one for one, size, job in zip(lasted, sizes, jobs, strict=True)]
    busy = Counter[str]()
    for job, one in zip(jobs, lasted, strict=True):
        busy[str(job.node)] += one
    with fleet.server.client(3) as log:
        log.delete(f"{fleet.prefix}.log")
    took = (max(ends.values()) - (began[0] * 1_000_000 + began[1])) / 1e6
    return Run(took, lasted, busy)


def hand_over(spans: Sequence[tuple[int, int, int]]) -> float:
    """The median of what passes between two jobs of one process: (process, begin, end) each."""
    ordered = sorted(spans)
    pairs = [(one, other) for one, other in pairwise(ordered) if one[0] == other[0]]
    return statistics.median((other[1] - one[2]) / 1e6 for one, other in pairs)


def told(run: Run, nodes: Sequence[Slots]) -> str:
    """Beside the best there is, and beside two ways to give jobs to nodes beforehand."""
    least = best(run.sizes, nodes)
    ways = {"round-robin": in_turns(nodes), "random": at_random(nodes, 1)}
    peers = {name: end_of(run.sizes, nodes, way) / least for name, way in ways.items()}
    return f"{len(run.sizes)} jobs: {run.took:.2f} s, {run.took / least:.3f} of the best there is; {peers}"


def test_nodes_of_different_sizes_end_together_and_a_slow_one_holds_nobody_up(fleet: Fleet) -> None:
    """One run that is spoilt by a busy machine is made again with other jobs."""
    for name, capacity in CAPACITIES.items():
        fleet.worker(name, capacity)
    nodes = [Slots(capacity) for capacity in CAPACITIES.values()]
    for seed in (1, 2):
        run = work_off(fleet, heavy_tail(seed, 500), f"even{seed}-")
        used = [run.busy[f"{name}@test"] / capacity for name, capacity in CAPACITIES.items()]
        print(told(run, nodes), "utilisation", [round(one / run.took, 2) for one in used])
        if run.took <= 1.1 * best(run.sizes, nodes) and max(used) <= 1.3 * min(used):
            break
    assert run.took <= 1.1 * best(run.sizes, nodes), told(run, nodes)
    assert max(used) <= 1.3 * min(used), run.busy
    assert end_of(run.sizes, nodes, in_turns(nodes)) > 1.5 * run.took

    nodes[0] = Slots(1, 0.2)
    for seed in (3, 4):
        with slowed(fleet.workers[0].pid):
            run = work_off(fleet, heavy_tail(seed, 700), f"slow{seed}-", fleet.workers[0].name)
        print(told(run, nodes))
        if run.took <= 1.2 * best(run.sizes, nodes):
            break
    assert run.took <= 1.2 * best(run.sizes, nodes), told(run, nodes)
    assert fleet.coordinator.counts()["losses"] == 0


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


def occupied(fleet: Fleet) -> int:
    return sum(node.running + node.rung for node in fleet.coordinator.nodes())


def braked(fleet: Fleet) -> set[str]:
    """Nodes whose machine is at its limit: they may be passed over."""
    store = fleet.coordinator.store
    return {name for name in fleet.nodes() if store.client.hget(store.key("node", name), "braked") == b"1"}


def test_on_real_nodes_a_single_job_rings_one_that_is_least_busy(fleet: Fleet) -> None:
    capacities = {"one": 1, "two": 2, "four": 4}
    for name, capacity in capacities.items():
        fleet.worker(name, capacity, app="depot", pool="threads")
    coordinator, depot = fleet.depot.coordinator, fleet.depot
    drawn, held = random.Random(3), dict[str, tuple[str, str]]()
    for number in range(24):
        counted = Counter(name for name, _ in held.values())
        shares = {f"{name}@test": counted[f"{name}@test"] / capacity for name, capacity in capacities.items()}
        before = {node.name: node.choices[:1] for node in coordinator.nodes()}
        hot = braked(fleet)
        job_id = coordinator.submit(f"k{number}", depot.held.s(f"job{number}")).job_id
        (rung,) = [node.name for node in coordinator.nodes() if node.choices[:1] != before[node.name]]
        least = min(share for name, share in shares.items() if name == rung or name not in hot | braked(fleet))
        assert shares[rung] <= least + 0.01, (number, rung, shares)
        fleet.begun(f"job{number}")
        held[f"job{number}"] = (str(coordinator.job(job_id).node), job_id)
        while len(held) > drawn.randrange(1, 6):
            name = drawn.choice(list(held))
            fleet.go(name)
            coordinator.wait(held.pop(name)[1], 20)
            wait_until(lambda: occupied(fleet) == len(held), 20)
    for name, (_, job_id) in held.items():
        fleet.go(name)
        coordinator.wait(job_id, 20)


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
    coordinator.store.client.zadd(key, {old: coordinator.store.client.zscore(key, bell) or 0})
    coordinator.store.client.zrem(key, bell)
    hung.nodes.beat("hung", "a", {})
    hung.sweep()
    assert (hung.rung(), len(other.rung())) == ([old], 1)
    hung.submit("b")
    assert len(hung.rung()) == 2, "it is better than none"
    for taken in [hung.take(bell=bell) for bell in hung.rung()]:
        assert taken
        hung.finish(taken)
    hung.nodes.beat("hung", "a", {})
    hung.submit("c")
    assert len(hung.rung()) == 1
    assert len(hung.order()) == 1


def test_what_a_node_was_chosen_for_is_kept_with_the_reason_ten_times(coordinator: Coordinator) -> None:
    one, two = Puppet(coordinator.store, "one"), Puppet(coordinator.store, "two")
    one.up(capacity=20)
    two.up(capacity=20)
    two.nodes.beat("two", "a", {"load": 1, "ordinary": 10})
    for number in range(9):
        one.submit(f"k{number}")
    two.up(capacity=20, queue="slow")
    one.nodes.beat("one", "a", {"ordinary": 4})
    one.submit("slow", queue="slow")
    (busy, other) = one.nodes.all()
    assert (busy.name, other.name) == ("one", "two")
    assert [choice["passed"] for choice in busy.choices] == [0] * 9
    assert busy.choices[0]["score"] == pytest.approx(0.4)
    assert (busy.choices[0]["next"], float(busy.choices[0]["next_score"])) == ("two", pytest.approx(0.51))
    assert busy.choices[0]["class"] == "shop\ncelery"
    assert [choice["class"] for choice in other.choices] == ["shop\nslow"]
    one.order()
    two.order()
    one.up(capacity=40)
    for number in range(3):
        one.submit(f"more{number}")
    assert len(one.nodes.all()[0].choices) == 10
    one.order()
    assert time.time() * 1000 - one.nodes.all()[0].choices[0]["at"] < 60_000


def test_who_is_told_as_the_next_choice_is_one_that_could_have_been_chosen(coordinator: Coordinator) -> None:
    one, two, three = (Puppet(coordinator.store, name) for name in ("one", "two", "three"))
    one.up()
    two.up(queue="slow")
    three.up()
    two.nodes.beat("two", "a", {"ordinary": 1})
    three.nodes.beat("three", "a", {"ordinary": 2})
    one.submit("a")
    one.submit("b", queue="slow")
    chosen = {node.name: node.choices[0] for node in one.nodes.all() if node.choices}
    assert (chosen["one"]["next"], float(chosen["one"]["next_score"])) == ("three", 0.5)
    assert (chosen["two"].get("next"), chosen["two"]["passed"]) == (None, 1)
    assert [len(node.order()) for node in (one, two)] == [1, 1]
