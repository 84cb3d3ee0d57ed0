"""Quotas: who gets units, when they come back, and who waits, step by step."""

import time
from collections.abc import Callable

import pytest

from coordinator import Coordinator, InvalidJob, LaneFull, Locked, UnknownQuota, WouldDeadlock
from coordinator.core.jobs.options import Use
from tests.coordinator.core.quotas.units import used
from tests.harness.hand_node import Puppet, Taken
from tests.harness.waiting import wait_until


def test_as_many_run_at_once_as_the_quota_has_units_and_the_next_starts_when_one_ends(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("api/acme", concurrency=2)
    for name in "abcd":
        node.submit(name, job_id=name, uses="api/acme")
    first = node.take_all()
    assert [taken.id for taken in first] == ["a", "b"]
    assert used(coordinator, "api/acme") == (2, 2, 2)
    node.finish(first[0])
    assert [taken.id for taken in node.take_all()] == ["c"]
    assert used(coordinator, "api/acme") == (2, 2, 1)


def test_a_job_that_lacks_a_quota_stands_in_front_of_nothing_but_its_own_lane(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("a", job_id="a", uses="q")
    node.submit("b", job_id="b", uses="q")
    node.submit("b", job_id="behind")
    node.submit("c", job_id="free")
    assert [taken.id for taken in node.take_all()] == ["a", "free"]
    assert [node.lanes.job(one).state for one in ("b", "behind")] == ["waiting", "waiting"]
    assert node.lanes.job("b").lacks == "q"


def test_the_head_of_a_queue_is_never_passed_so_that_one_with_many_units_is_not_starved(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=3)
    running = [node.submit(f"small/{n}", job_id=f"s{n}", uses="q") and node.must_take() for n in range(3)]
    node.submit("big", job_id="big", uses={"q": 3})
    node.submit("late", job_id="late", uses="q")
    for taken in running[:2]:
        node.finish(taken)
        assert node.take_all() == []
    node.finish(running[2])
    (big,) = node.take_all()
    assert big.id == "big"
    node.finish(big)
    assert node.order() == ["late"]


def test_the_queue_goes_by_priority_then_by_sequence_and_started_jobs_come_first(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("z", job_id="z", uses="q", max_attempts=2)
    first = node.must_take()
    for name, priority in (("a", 0), ("b", 5), ("c", 0)):
        node.submit(name, job_id=name, priority=priority, uses="q")
    node.finish(first, "raised")
    assert node.order() == ["z", "b", "a", "c"]


def test_units_of_several_quotas_are_taken_all_at_once_or_not_at_all(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("a", concurrency=1)
    coordinator.quota("b", concurrency=1)
    node.submit("one", job_id="one", uses="b")
    one = node.must_take()
    node.submit("both", job_id="both", uses=["a", "b"])
    node.submit("other", job_id="other", uses="a")
    (other,) = node.take_all()
    assert other.id == "other", "a job keeps units of no quota while it lacks another"
    assert used(coordinator, "a") == (1, 1, 0)
    node.finish(one)
    assert node.take_all() == []
    node.finish(other)
    assert node.order() == ["both"]


def test_after_a_minute_one_of_several_quotas_has_units_set_apart(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("a", concurrency=1)
    coordinator.quota("b", concurrency=1)
    node.submit("x", job_id="x", uses="b")
    x = node.must_take()
    node.submit("both", job_id="both", uses=["a", "b"])
    node.pass_a_minute("both")
    coordinator.quota("b", concurrency=1, why="again")
    coordinator.cool_down("b", 0.001)  # its queue is looked at
    wait_until(lambda: node.sweep() is not None and used(coordinator, "a") == (1, 1, 0))
    node.submit("other", job_id="other", uses="a")
    assert node.take_all() == []
    node.finish(x)
    assert node.order() == ["both", "other"]
    assert used(coordinator, "a") == (0, 0, 0)


@pytest.mark.parametrize(
    "end",
    [
        lambda node, taken: node.finish(taken),
        lambda node, taken: node.finish(taken, "failed"),
        lambda node, taken: node.finish(taken, "raised", delay=60_000),
        lambda node, taken: node.finish(taken, "conflict", delay=60_000),
        lambda node, taken: node.finish(taken, "parked", detail='{"ids": ["sub"], "one": false}'),
        lambda node, taken: node.lose(taken, "timed_out"),
        lambda node, taken: node.lanes.release("k"),
        lambda node, taken: (node.lanes.cancel("j"), node.lose(taken)),
    ],
    ids=["succeeded", "failed", "retrying", "conflict", "parked", "timed out", "released", "cancelled"],
)
def test_units_come_back_however_the_attempt_ends(
    node: Puppet, coordinator: Coordinator, end: Callable[[Puppet, Taken], object]
) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("k", job_id="j", uses="q", max_attempts=3)
    taken = node.must_take()
    assert used(coordinator, "q") == (1, 1, 0)
    for _ in range(2):  # a repeated request gives nothing back twice
        end(node, taken)
        assert used(coordinator, "q") == (0, 0, 0)


def test_a_held_job_has_given_its_units_back_and_until_end_keeps_them(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=2)
    for name, until in (("a", "attempt"), ("b", "end")):
        node.submit(name, job_id=name, uses={"q": Use(until=until)}, on_failure="hold")
        node.finish(node.must_take(), "failed")
    assert (node.lanes.job("a").state, node.lanes.job("b").state) == ("held", "held")
    assert used(coordinator, "q") == (1, 1, 0)
    node.lanes.retry("b")
    node.finish(node.must_take())
    assert used(coordinator, "q") == (0, 0, 0)


def test_a_lost_job_is_first_for_its_units_and_one_that_was_only_slow_may_exceed_the_limit(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("slow", job_id="slow", uses="q")
    slow = node.must_take()
    node.submit("next", job_id="next", uses="q")
    node.lapse("slow")
    node.sweep()
    assert (node.lanes.job("slow").state, used(coordinator, "q")) == ("ready", (0, 0, 1))
    coordinator.cancel("next")
    node.submit("third", job_id="third", uses={"q": 1})
    again = node.must_take()
    assert again.id == "slow"
    node.lapse("slow")
    node.sweep()
    coordinator.quota("q", concurrency=2)
    third = node.must_take()
    other = node.must_take()
    assert {third.id, other.id} == {"slow", "third"}
    coordinator.quota("q", concurrency=1)
    assert node.renew(slow) == [False]
    for taken in (third, other):
        node.finish(taken)
    assert used(coordinator, "q") == (0, 0, 0)


def test_a_holder_that_was_taken_for_lost_takes_its_units_again(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("slow", job_id="slow", uses="q")
    slow = node.must_take()
    node.lapse("slow")
    node.sweep()
    coordinator.quota("q", concurrency=2)
    node.submit("b", job_id="b", uses={"q": 2})
    coordinator.cool_down("q", 60)
    assert node.take() is None
    assert node.renew(slow) == [True]
    assert used(coordinator, "q") == (1, 1, 1)
    assert node.finish(slow).verdict == "accepted"
    coordinator.cool_down("q")
    assert node.order() == ["b"]


def test_exclusive_uses_all_units_of_a_quota(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=3)
    node.submit("a", job_id="a", uses="q")
    a = node.must_take()
    node.submit("alone", job_id="alone", uses="q", exclusive=True)
    node.submit("b", job_id="b", uses="q")
    assert node.take_all() == []
    node.finish(a)
    (alone,) = node.take_all()
    assert (alone.id, used(coordinator, "q")) == ("alone", (3, 1, 1))
    node.finish(alone)
    assert node.order() == ["b"]


def test_a_quota_without_units_starts_no_job_that_uses_all_of_it(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=0)
    node.submit("a", job_id="a", uses="q", exclusive=True)
    assert node.take_all() == []
    coordinator.quota("q", concurrency=1)
    assert node.order() == ["a"]


def test_a_job_without_a_key_stands_in_no_line(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=2)
    for name in "abc":
        submission = node.submit([], job_id=name, uses="q")
    assert (submission.outcome, submission.position) == ("queued", 0)
    assert [taken.id for taken in node.take_all()] == ["a", "b"]
    assert coordinator.lanes() == []
    assert (node.lanes.job("a").keys, node.lanes.job("a").damaged) == ((), ())
    node.lanes.cancel("c")
    assert used(coordinator, "q") == (2, 2, 0)


def test_what_many_submit_at_once_leaves_other_work_free(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit([], job_id="first", uses="q")
    node.must_take()
    for n in range(50):
        node.submit([], job_id=f"flood/{n:02}", uses="q")
    node.submit("free", job_id="free")
    assert node.must_take().id == "free"


@pytest.mark.parametrize(
    ("uses", "error", "says"),
    [
        ("q/acm", UnknownQuota, "did you mean 'q/acme'"),
        ({"q/acme": 3}, InvalidJob, "uses more units of quota 'q/acme' than there are: it has 2"),
        ({"q/acme": 0}, InvalidJob, "from 1, not 0"),
        ("q/*", InvalidJob, "names all that begin so"),
        ({"q": {"units": 1, "till": "end"}}, InvalidJob, "has units and until, and no till"),
        ({"q": {"units": 1, "until": "noon"}}, InvalidJob, "until of quota 'q'"),
        ([f"q{n}" for n in range(17)], InvalidJob, "at most 16 quotas, not 17"),
        (7, InvalidJob, "uses names a quota"),
        ("", InvalidJob, "not empty"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name_and_nothing_is_written(
    node: Puppet, coordinator: Coordinator, uses: object, error: type[Exception], says: str
) -> None:
    coordinator.quota("q/acme", concurrency=2)
    with pytest.raises(error, match=None) as refused:
        node.submit("k", job_id="j", uses=uses)
    assert says in str(refused.value)
    assert coordinator.counts().get("created") == 0
    assert coordinator.lanes() == []


@pytest.mark.parametrize(
    ("rate", "shown"),
    [
        ("100/m", "100/m"), ("5/10s", "5/10s"), ("0.5/m", "1/2m"), (" 60000/60000ms ", "60000/m"),
        ("100", "100/s"), (100, "100/s"), (0.5, "1/2s"),  # a number alone, as Celery's rate_limit: in a second
    ],
)  # fmt: skip
def test_a_rate_is_a_number_of_starts_in_a_time_and_a_number_alone_in_a_second(
    coordinator: Coordinator, rate: str | float, shown: str
) -> None:
    assert coordinator.quota("q", rate=rate)
    assert coordinator._quotas.read("q").rate == shown


@pytest.mark.parametrize(
    "rate", ["", "x/m", "0/m", "0", "5/w", "1/", "-1/s", -1, 0, True, float("nan"), float("inf"), "1/0s", "1/367d"]
)
def test_a_rate_that_cannot_be_read_is_refused(coordinator: Coordinator, rate: object) -> None:
    with pytest.raises(InvalidJob, match="rate"):
        coordinator.quota("q", rate=rate)  # type: ignore[arg-type]
    assert coordinator._quotas.page("", 10, "")[0] == []


def test_a_default_holds_for_all_names_that_begin_so_and_the_longest_counts(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("*", concurrency=5)
    coordinator.quota("tenant/*", concurrency=1)
    coordinator.quota("tenant/big", concurrency=3)
    bounds = {}
    for name in ("tenant/small", "tenant/big", "other"):
        for n in range(6):
            node.submit([], job_id=f"{name}/{n}", uses=name)
        bounds[name] = len(node.take_all())
    assert bounds == {"tenant/small": 1, "tenant/big": 3, "other": 5}
    assert coordinator._quotas.read("tenant/small").default == "tenant/*"


def test_a_raised_quota_wakes_at_once_and_a_lowered_or_dropped_one_stops_nobody(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    for n in range(5):
        node.submit([], job_id=str(n), uses="q")
    running = node.take_all()
    coordinator.quota("q", concurrency=3)
    running += node.take_all()
    assert len(running) == 3
    coordinator.quota("q", concurrency=1)
    node.finish(running.pop())
    assert node.take_all() == []
    assert used(coordinator, "q") == (2, 2, 2)
    coordinator.drop_quota("q")
    assert len(node.take_all()) == 2


@pytest.mark.parametrize("name", ["tenant/a", "tenant/*"])
def test_a_raised_rate_wakes_at_once_whatever_its_bucket_lacked_before(
    node: Puppet, coordinator: Coordinator, name: str
) -> None:
    taken: list[Taken] = []

    def are_taken(number: int) -> bool:
        node.sweep()
        taken.extend(node.take_all())
        return len(taken) == number

    coordinator.quota(name, rate="100/s")
    node.submit([], job_id="first", uses="tenant/a")
    wait_until(lambda: are_taken(1))
    coordinator.quota(name, rate="1/h", why="a slip")
    node.submit([], job_id="second", uses="tenant/a")
    node.submit([], job_id="third", uses="tenant/a")
    wait_until(lambda: are_taken(2))
    assert coordinator._quotas.read("tenant/a").next_start > 3000
    coordinator.quota(name, rate="100/s")
    wait_until(lambda: are_taken(3))


def test_a_rate_lets_a_burst_start_and_then_one_after_the_other(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", rate="10/s", burst=3)
    begun = time.monotonic()
    for n in range(6):
        node.submit([], job_id=str(n), uses="q")
    taken = node.take_all()
    wait_until(lambda: node.sweep() is not None and (taken.extend(node.take_all()) or len(taken) == 6))
    assert [one.id for one in taken] == list("012345")
    assert time.monotonic() - begun > 0.25


def test_a_cool_down_closes_a_quota_until_it_is_over(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=3)
    assert coordinator.cool_down("q", 3600, why="429")
    node.submit([], job_id="j", uses="q")
    assert node.take_all() == []
    assert coordinator._quotas.read("q").cools_for > 3000
    assert coordinator.cool_down("q")
    assert node.order() == ["j"]


def test_a_job_that_cools_its_quota_down_goes_back_to_its_place_and_counts_no_attempt(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("k", job_id="j", uses="q", max_attempts=1)
    for _ in range(30):
        node.finish(node.must_take(), "cooled_down", delay=60_000)
        assert node.take_all() == []
        coordinator.cool_down("q")
    assert node.order() == ["j"]
    assert node.lanes.job("j").state == "succeeded"


def test_a_cool_down_names_who_closed_the_quota_last(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    coordinator.cool_down("q", 0.001, by="ann", why="429")
    node.submit("k", job_id="j", uses="q")
    wait_until(lambda: coordinator._quotas.read("q").cools_for == 0)
    node.finish(node.must_take(), "cooled_down", delay=60_000)
    quota = coordinator._quotas.read("q")
    assert quota.cooled is not None
    assert (quota.cooled["by"], quota.cooled["why"]) == ("job j", "")
    coordinator.cool_down("q", 1, by="bob")
    assert coordinator._quotas.read("q").cooled == quota.cooled, "it is closed for longer already"
    coordinator.cool_down("q")
    assert node.order() == ["j"]


def test_max_waiting_counts_the_queue_of_a_quota(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    for n in range(3):
        node.submit([], job_id=str(n), uses="q")
        node.take_all()
    with pytest.raises(LaneFull, match="2 jobs wait for 'q'"):
        node.submit([], uses="q", max_waiting=2)


def test_a_waiting_job_is_moved_cancelled_and_retargeted_like_any_other(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("x", job_id="x", uses="q")
    x = node.must_take()
    for name in "abc":
        node.submit(name, job_id=name, uses="q")
    assert node.lanes.move("c", to="front") == "waiting"
    node.lanes.cancel("a")
    node.finish(x)
    assert node.order() == ["c", "b"]


def test_a_paused_lane_keeps_its_job_out_of_the_quotas_way(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("x", job_id="x", uses="q")
    x = node.must_take()
    node.submit("a", job_id="a", uses="q")
    node.submit("b", job_id="b", uses="q")
    coordinator.pause("a")
    node.finish(x)
    assert node.order() == ["b"]
    coordinator.resume("a")
    assert node.order() == ["a"]


def test_a_lock_in_plain_code_is_a_semaphore(node: Puppet, coordinator: Coordinator, other: Coordinator) -> None:
    coordinator.quota("licence", concurrency=2)
    with coordinator.lock(uses="licence"), other.lock("k", uses="licence"):
        assert used(coordinator, "licence") == (2, 2, 0)
        with pytest.raises(WouldDeadlock, match="waits for units of quota 'licence'"):  # which this thread has itself
            other.lock(uses="licence").__enter__()
        node.submit([], job_id="j", uses="licence")
        assert node.take_all() == []
    assert node.order() == ["j"]
    assert used(coordinator, "licence") == (0, 0, 0)


@pytest.mark.parametrize("named", [(), ("free",)])
def test_a_lock_that_lacks_a_quota_says_so(node: Puppet, coordinator: Coordinator, named: tuple[str, ...]) -> None:
    coordinator.quota("licence", concurrency=1)
    node.submit([], job_id="j", uses="licence")
    taken = node.must_take()
    with pytest.raises(Locked, match="too few units of licence are free"):
        coordinator.lock(*named, uses="licence").__enter__()
    node.finish(taken)


def test_a_pause_ends_by_itself(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.pause("k", until=0.05, why="backup")
    node.submit("k", job_id="j")
    assert node.take_all() == []
    assert coordinator.lane("k").until
    wait_until(lambda: bool(node.sweep()) and not coordinator.lane("k").paused)
    assert node.order() == ["j"]


def test_the_sweep_finds_units_that_nobody_has_a_right_to(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    client, key = node.store._client, node.store.key
    client.hset(key("quota-users", "q"), "ghost", 1)
    client.hset(key("quota", "q"), "used", 1)
    node.submit([], job_id="j", uses="q")
    assert node.take_all() == []
    wait_until(lambda: bool(node.sweep()) and used(coordinator, "q") == (0, 0, 0))
    assert node.order() == ["j"]
