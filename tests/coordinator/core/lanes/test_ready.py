"""Ready jobs: the old ones count more, counting costs little, and a class that nobody needs is forgotten."""

from typing import Any

from coordinator import Coordinator
from coordinator.core.jobs.record import TERMINAL
from tests.harness.hand_node import Puppet, sketch

LIVE = (
    "waiting", "scheduled", "collected", "collecting", "blocked", "ready", "running", "retrying", "parked", "held",
    "rolling_back",
)  # fmt: skip
WORTH = 2**20  # places that one point of priority is worth


def test_low_priorities_age_by_the_jobs_that_come_after_them(node: Puppet) -> None:
    client = node.store._client
    node.submit("a", job_id="low")
    client.incrby(node.store.key("sequence"), WORTH)  # so many became ready since
    node.submit("b", priority=1, job_id="late")
    node.submit("c", priority=2, job_id="later")
    assert node.order() == ["later", "low", "late"]


def test_a_job_over_several_keys_that_is_taken_with_the_end_of_another_is_put_in_no_list(node: Puppet) -> None:
    for name in ("one", "two"):
        node.submit(["a", "b", "c"], job_id=name)
    taken = node.must_take()
    before = node.store._client.get(node.store.key("sequence"))
    following = node.finish(taken, "succeeded", "its token").next
    assert following
    assert following.id == "two"
    assert node.store._client.get(node.store.key("sequence")) == before, "each place in a list has a number"
    node.finish(following)


def test_counts_of_many_groups_ask_no_group(node: Puppet) -> None:
    many = [sketch(f"g{i}/x", job_id=f"j{i}") for i in range(3000)]
    for start in range(0, len(many), 1000):
        node.lanes.submit_many(many[start : start + 1000])
    undone = [node.must_take() for _ in range(3)]
    assert commands(node, node.lanes.counts) < 20
    found = node.lanes.counts()
    assert (found["ready"], found["running"], found["waiting"]) == (2997, 3, 0)
    for one in undone:
        node.finish(one)
    for one in many:
        node.lanes.cancel(one.id)


def test_before_anything_was_counted_every_counter_is_nought(coordinator: Coordinator) -> None:
    counts = coordinator.counts()
    assert set(counts) == {"created", "retries", "losses", "faults", *LIVE, *TERMINAL}
    assert set(counts.values()) == {0}


def commands(node: Puppet, ask: Any) -> int:
    """How many commands the server did meanwhile, those within functions too."""

    def done() -> int:
        stats: Any = node.store._client.info("commandstats")
        return sum(stats[name]["calls"] for name in stats)

    before = done()
    ask()
    return done() - before


def test_a_class_without_a_node_and_without_a_ready_job_is_forgotten(node: Puppet) -> None:
    known = node.store.key("classes")
    node.submit("usual")
    for i in range(300):
        node.submit("a", queue=f"old{i}", job_id=f"j{i}")
    for i in range(300):
        node.lanes.cancel(f"j{i}")
    assert node.store._client.scard(known) >= 300
    for _ in range(20):
        node.sweep()
    assert node.store._client.smembers(known) == {b"shop\ncelery"}  # type: ignore[comparison-overlap]
    node.order()


def test_a_job_whose_class_was_forgotten_while_it_waited_is_taken_in_its_turn(node: Puppet) -> None:
    node.submit("a", job_id="first")
    taken = node.must_take()
    node.submit("a", queue="later", job_id="second")
    node.sweep()
    assert node.store._client.smembers(node.store.key("classes")) == {b"shop\ncelery"}  # type: ignore[comparison-overlap]
    other = Puppet(node.store, "two")
    other.up(queue="later")
    assert other.take() is None
    node.finish(taken)
    found = other.must_take()
    assert found.id == "second"
    other.finish(found)
