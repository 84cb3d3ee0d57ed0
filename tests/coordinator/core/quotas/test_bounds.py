"""What a quota's bounds mean beside lanes: none at once, skips, full queues, many that wait, two that hold and wait."""

import threading
from typing import Any

import pytest

from coordinator import Coordinator, InvalidJob, LaneFull, Locked, UnknownQuota, WouldDeadlock
from coordinator.core.jobs.options import Use
from coordinator.ops.diagnosis.doctor import examine
from coordinator.ops.metrics import registry_of
from tests.coordinator.conftest import ClientAt
from tests.coordinator.core.quotas.units import used
from tests.harness.hand_node import Puppet
from tests.harness.waiting import wait_until


def test_an_argument_with_a_typo_is_named_with_the_near_one(coordinator: Coordinator) -> None:
    with pytest.raises(InvalidJob, match=r"^concurency: no argument of this act.*did you mean 'concurrency'"):
        coordinator.quota("q", concurency=1)  # type: ignore[call-arg]
    assert coordinator._quotas.page("", 10, "")[0] == []


@pytest.mark.parametrize("concurrency", [-1, True, "2", 1.5, 10**9 + 1])
def test_a_concurrency_that_makes_no_sense_is_refused(coordinator: Coordinator, concurrency: Any) -> None:
    with pytest.raises(InvalidJob, match="concurrency is"):
        coordinator.quota("q", concurrency=concurrency)
    assert coordinator._quotas.page("", 10, "")[0] == []


def test_of_no_units_nothing_starts_and_no_lock_is_given(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=0, why="maintenance", by="ann")
    assert node.submit("a", job_id="j", uses="q").outcome == "queued"
    assert node.take() is None
    assert (coordinator._quotas.read("q").declared or {})["by"] == "ann"
    with pytest.raises(Locked, match="too few units"):
        coordinator.lock(uses="q").__enter__()
    coordinator.quota("q", concurrency=1)
    assert node.order() == ["j"]


def test_a_skip_looks_at_lanes_and_a_job_that_lacks_a_quota_waits(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    assert node.submit("a", when_busy="skip", uses="q").outcome == "started"
    assert node.submit("b", when_busy="skip", uses="q", job_id="b").outcome == "queued"
    assert node.submit("b", when_busy="skip", uses="q").outcome == "skipped"
    with pytest.raises(InvalidJob, match="when_busy='skip' is about lanes: name a key"):
        node.submit([], when_busy="skip", uses="q")
    assert len(node.order()) == 2


def test_a_submit_is_refused_when_too_many_wait_in_a_lane_and_nothing_is_written(node: Puppet) -> None:
    node.submit("a", job_id="j0")
    node.must_take()
    for i in range(2):
        assert node.submit("a", max_waiting=2, job_id=f"w{i}").outcome == "queued"
    before = sorted(node.names())
    with pytest.raises(LaneFull, match="2 jobs wait for 'a' already") as refused:
        node.submit(["b", "a"], max_waiting=2, job_id="late")
    assert (refused.value.key, refused.value.waiting, refused.value.job_id) == ("a", 2, "late")
    assert sorted(node.names()) == before
    assert node.submit("a", max_waiting=2, job_id="w0").outcome == "duplicate"
    assert node.submit("a", max_waiting=3).outcome == "queued"


def told_of_excess(coordinator: Coordinator) -> tuple[float | None, list[str]]:
    """The counter of units beyond a quota, and which quotas doctor finds so."""
    number = registry_of(coordinator).get_sample_value("coordinator_quotas_exceeded_total")
    return number, [found.thing for found in examine(coordinator.store) if found.code == "quota.over"]


def test_a_holder_that_was_taken_for_lost_and_lives_exceeds_the_limit_which_is_counted_and_found(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("slow", job_id="slow", uses="q")
    slow = node.must_take()
    node.lapse("slow")
    node.sweep()
    node.up(tasks=("shop.other",))  # nobody can take the lost one
    node.submit("other", job_id="other", uses="q", task="shop.other")
    other = node.must_take()
    assert (other.id, used(coordinator, "q")) == ("other", (1, 1, 0))
    assert told_of_excess(coordinator) == (0, [])
    for _ in range(2):
        assert node.renew(slow, other) == [True, True]
        assert used(coordinator, "q") == (2, 2, 0)
        assert told_of_excess(coordinator) == (1, ["quota q"])
    node.submit("next", job_id="next", uses="q", task="shop.other")
    node.finish(slow)
    assert node.take() is None
    node.finish(other)
    assert node.order() == ["next"]
    assert (used(coordinator, "q"), told_of_excess(coordinator)) == ((0, 0, 0), (1, []))


def test_a_holder_that_kept_its_units_until_its_end_does_not_take_them_twice_when_it_is_found(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("k", job_id="j", uses={"q": Use(until="end")})
    taken = node.must_take()
    node.lapse("j")
    node.sweep()
    assert (node.lanes.job("j").state, used(coordinator, "q")) == ("ready", (1, 1, 0))
    assert node.renew(taken) == [True]
    assert (used(coordinator, "q"), told_of_excess(coordinator)) == ((1, 1, 0), (0, []))
    node.finish(taken)
    assert used(coordinator, "q") == (0, 0, 0)


def test_a_quota_that_nobody_declared_has_no_bounds_where_the_settings_say_so(
    node: Puppet, coordinator: Coordinator, client_at: ClientAt
) -> None:
    url, signature = coordinator.store.settings.url, {"task": "shop.work"}
    with pytest.raises(UnknownQuota):
        client_at(url, quota_unknown="refuse").submit([], signature, uses="q")
    unbound = client_at(url, quota_unknown="open")
    for _ in range(3):
        unbound.submit([], signature, uses={"q": 5})
    taken = node.take_all()
    assert used(coordinator, "q") == (15, 3, 0)
    with pytest.raises(UnknownQuota), client_at(url, quota_unknown="refuse").lock(uses="p"):
        pass
    with unbound.lock(uses="p"):
        assert used(coordinator, "p").units == 1
    coordinator.quota("q", concurrency=5)
    with pytest.raises(InvalidJob, match="it has 5"):
        unbound.submit([], signature, uses={"q": 6})
    for one in taken:
        node.finish(one)


def commands(node: Puppet) -> int:
    """How many commands the server has done, those within functions too."""
    stats: Any = node.store._client.info("commandstats")
    return sum(stats[name]["calls"] for name in stats)


def test_a_unit_that_comes_back_asks_one_of_all_that_wait_for_it(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    for i in range(250):
        node.submit(f"k/{i}", job_id=f"j{i:03}", uses="q")
    first = node.must_take()
    before = commands(node)
    node.finish(first)
    second = node.must_take()
    assert commands(node) - before < 250
    assert second.id == "j001"


def test_items_count_until_their_end_while_their_jobs_are_parked(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("items", concurrency=2)
    for name in "abc":
        node.submit(name, job_id=name, uses={"items": Use(until="end")})
    for _ in range(2):
        node.park(node.must_take(), "child")
    assert node.take() is None
    assert [node.lanes.job(name).state for name in "abc"] == ["parked", "parked", "waiting"]
    node.lanes.cancel("a")
    assert node.must_take().id == "c"


def test_crossed_semaphores_are_refused_where_the_ring_closes(coordinator: Coordinator) -> None:
    for name in "ab":
        coordinator.quota(name, concurrency=1)
    outcomes: list[str] = []

    def cross() -> None:
        with coordinator.lock(uses="b"):
            crossed.set()
            wait_until(lambda: coordinator._quotas.read("b").waiting == 1)
            with pytest.raises(WouldDeadlock) as refused, coordinator.lock(uses="a", blocking_timeout=60):
                pytest.fail("two hold it")
            outcomes.append(str(refused.value))

    crossed = threading.Event()
    thread = threading.Thread(target=cross)
    with coordinator.lock(uses="a"):
        thread.start()
        assert crossed.wait(60)
        with coordinator.lock(uses="b", blocking_timeout=60):
            pass
        thread.join()
    assert [coordinator._quotas.read(name).used for name in "ab"] == [0, 0]
    assert "quota 'a'" in outcomes[0]
    assert "quota 'b'" in outcomes[0]


def test_a_semaphore_that_is_half_free_is_not_taken_for_a_ring(coordinator: Coordinator) -> None:
    coordinator.quota("a", concurrency=2)
    with coordinator.lock(uses="a"), coordinator.lock(uses="a", blocking_timeout=60):
        assert coordinator._quotas.read("a").free == 0
        with pytest.raises(WouldDeadlock), coordinator.lock(uses="a", blocking_timeout=60):
            pytest.fail("three hold it")


def test_a_quota_can_be_read_when_nothing_has_happened_for_a_while(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", rate="1/m")
    client, clock = node.store._client, node.store.key("clock")
    last, *rest = client.get(clock).split()  # type: ignore[union-attr]
    client.set(clock, b" ".join([b"%d" % (int(last) - 10_000), *rest]))
    assert 0 <= coordinator._quotas.read("q").next_start <= 60


@pytest.mark.parametrize("field", ["used", "tat", "begun", "until", "alone"])
def test_a_damaged_quota_stops_no_job_and_the_sweep_counts_its_units(
    node: Puppet, coordinator: Coordinator, field: str
) -> None:
    coordinator.quota("q", concurrency=2, rate="1000/s", burst=100)
    for name in ("a", "b"):
        node.submit([], job_id=name, uses="q")
    first = []
    wait_until(lambda: node.sweep() is not None and (first.extend(filter(None, [node.take()])) or len(first) == 2))
    node.store._client.hset(node.store.key("quota", "q"), field, b"\xff{")
    assert node.finish(first[0]).state == "succeeded"
    node.submit([], job_id="c", uses="q")
    wait_until(lambda: node.sweep() is not None and coordinator._quotas.read("q").used == 1)
    wait_until(lambda: node.sweep() is not None and node.order() == ["c"])
    node.finish(first[1])
    assert coordinator._quotas.read("q").used == 0


def test_a_sweep_looks_at_a_part_of_the_users_of_a_quota_that_has_very_many(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=2_000)
    client, key = node.store._client, node.store.key
    client.hset(key("quota-users", "q"), mapping={f"ghost/{number}": 1 for number in range(1_000)})
    client.hset(key("quota", "q"), "used", 1_000)
    node.sweep()
    assert coordinator._quotas.read("q").used == 900
    wait_until(lambda: bool(node.sweep()) and coordinator._quotas.read("q").used == 0)
