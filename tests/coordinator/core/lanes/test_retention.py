"""What is kept of a job that is over: enough to answer for it, for its time, and no more successes than are wanted."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from coordinator import UnknownJob
from coordinator.core.jobs.current import CurrentJob, working
from coordinator.core.jobs.record import keep_on
from tests.harness.hand_node import Puppet, Taken, sketch
from tests.harness.waiting import wait_until

FEW = {"keep_most": 3}


def run(node: Puppet, key: str, **options: Any) -> Taken:
    node.submit(key, **options)
    taken = node.must_take()
    node.finish(taken)
    return taken


def tell(node: Puppet, *ids: str) -> None:
    node.store.step("notices_sent", "shop", *ids)


def kept(node: Puppet, ids: list[str]) -> list[str]:
    return [one for one in ids if node.store._client.exists(node.store.key("job", one))]


@pytest.mark.parametrize("owed", [False, True], ids=["nothing owed", "a result was owed"])
def test_a_success_keeps_300_bytes(node: Puppet, owed: bool) -> None:
    job_id = str(uuid.uuid4())
    node.submit("order/42", args=(42,), tell=owed, job_id=job_id)
    taken = node.must_take(token=uuid.uuid4().hex, runner=f"12345.1234567890.{uuid.uuid4().hex[:12]}")
    before = node.store._client.memory_usage(node.store.key("job", job_id)) or 0
    node.finish(taken)
    after = node.store._client.memory_usage(node.store.key("job", job_id)) or 0
    assert after <= 300 < 400 < before
    if owed:
        tell(node, job_id)


@pytest.mark.parametrize("options", [{}, {"hold": "hold"}, {"priority": 7}], ids=str)
def test_what_is_dropped_of_a_success_is_not_seen(node: Puppet, options: dict[str, Any]) -> None:
    given = {"on_failure" if name == "hold" else name: value for name, value in options.items()}
    node.submit("a", args=(1,), kwargs={"b": 2}, tell=True, job_id="j", **given)
    taken = node.must_take()
    node.lose(taken)
    taken = node.must_take()
    node.lanes.progress("j", taken.token, 3, 4)
    before = node.lanes.job("j")
    assert (before.losses, before.attempt, before.fence, before.progress) == (1, 2, taken.fence, (3, 4))
    node.finish(taken)
    after = node.lanes.job("j")
    assert (after.state, after.result) == ("succeeded", "detail")
    over = replace(before, state=after.state, result=after.result, ended=after.ended, course=after.course)
    assert after == replace(over, by=None)  # for which a million kept jobs would cost 20 MB
    tell(node, "j")
    assert node.lanes.job("j") == after


def test_no_more_successes_are_kept_than_are_wanted(node: Puppet) -> None:
    ids = [run(node, f"k{i}", settings=FEW).id for i in range(6)]
    assert kept(node, ids) == ids[3:]
    assert node.lanes.counts()["succeeded"] == 6
    with pytest.raises(UnknownJob):
        node.lanes.job(ids[0])


def test_a_lower_bound_is_reached_little_by_little(node: Puppet) -> None:
    ids = [run(node, f"k{i}", settings={"keep_most": 100}).id for i in range(20)]
    ids += [run(node, f"k{i}", settings=FEW).id for i in range(6)]
    assert kept(node, ids) == ids[-3:]


def test_a_record_is_kept_until_its_result_is_sent(node: Puppet) -> None:
    """Else a backend that is away for `keep_success` would never get it."""
    run(node, "a", job_id="j", tell=True, settings={"keep_success": 2.0})
    client, record, owed = node.store._client, node.store.key("job", "j"), node.store.key("unsent", "shop")

    def minutes() -> int:
        return round(client.pttl(record) / 60_000)

    assert minutes() == 1, "a node tries before"
    for pause in (0.5, 1, 2, 4, 8, 10, 10):
        client.zadd(owed, {"j": 0})
        client.pexpire(record, 1000)
        assert node.store.step("notices_take", "shop", 1)
        assert minutes() == round(60 + pause), "to the next try, and an hour"
    tell(node, "j")


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
@pytest.mark.parametrize("offered", [False, True], ids=["in time", "late"])
def test_once_its_result_is_sent_a_record_goes_at_its_own_time(node: Puppet, outcome: str, offered: bool) -> None:
    brief = {"keep_success": 2.0, "keep_failure": 2.0}
    for name in ("a", "longer"):
        node.submit(name, job_id=name, tell=True, settings=brief)
        node.finish(node.must_take(), outcome)
    client, owed = node.store._client, node.store.key("unsent", "shop")
    if offered:
        client.zadd(owed, {"a": 0})
        assert node.store.step("notices_take", "shop", 1)
    else:
        keep_on(node.store, ["longer"], 600.0)
    tell(node, "a", "longer")
    assert 0 < client.pttl(node.store.key("job", "a")) <= 2000
    assert offered or client.pttl(node.store.key("job", "longer")) > 500_000, "it is kept for another reason"


def test_failures_and_what_is_owed_are_never_dropped(node: Puppet) -> None:
    node.submit("bad", job_id="bad", settings=FEW)
    node.finish(node.must_take(), "failed")
    run(node, "owed", job_id="owed", tell=True, settings=FEW)
    for i in range(6):
        run(node, f"k{i}", settings=FEW)
    assert kept(node, ["bad", "owed"]) == ["bad", "owed"]
    tell(node, "owed")
    for i in range(6):
        run(node, f"k{i}", settings=FEW)
    assert kept(node, ["bad", "owed"]) == ["bad"], "once it is told, it may go"
    tell(node, "bad")


@pytest.fixture
def parent(node: Puppet) -> Iterator[Taken]:
    """A job at work; what is submitted meanwhile is its child."""
    node.submit("parent", job_id="parent")
    taken = node.must_take()
    mark = working.set(CurrentJob("parent", ("parent",), taken.token, taken.fence, 1, None))
    yield taken
    working.reset(mark)
    node.finish(taken)


@pytest.mark.parametrize("owed", [False, True], ids=["nothing owed", "a result was owed"])
def test_what_a_parent_or_a_listener_waits_for_is_never_dropped(node: Puppet, parent: Taken, owed: bool) -> None:
    run(node, "child", job_id="child", tell=owed, settings=FEW)
    mark = working.set(None)
    with node.store._client.pubsub() as notices:
        notices.subscribe(node.store.key("done", "heard"))
        wait_until(lambda: node.store._client.pubsub_numsub(node.store.key("done", "heard"))[0][1] == 1)
        run(node, "heard", job_id="heard", tell=owed, settings=FEW)
    if owed:
        tell(node, "child", "heard")
    for i in range(6):
        run(node, f"k{i}", settings=FEW)
    working.reset(mark)
    assert kept(node, ["child", "heard"]) == ["child", "heard"]


def test_an_id_that_is_used_again_is_not_dropped_for_the_job_that_had_it(node: Puppet) -> None:
    run(node, "a", job_id="j", settings=FEW)
    node.store._client.delete(node.store.key("job", "j"))  # its time is over
    node.submit("a", job_id="j")
    taken = node.must_take()
    for i in range(6):
        run(node, f"k{i}", settings=FEW)
    assert node.lanes.job("j").state == "running"
    node.finish(taken)


def coalesced(node: Puppet, number: int) -> list[str]:
    node.submit("a")
    first = node.must_take()
    node.submit("a", when_busy="defer", job_id="last")
    ids = [f"m{i}" for i in range(number)]
    node.lanes.submit_many(sketch("a", when_busy="defer", job_id=one) for one in ids)
    node.finish(first)
    return ids


def test_the_ids_that_coalesced_into_a_job_are_forgotten_after_it_a_thousand_at_a_look(node: Puppet) -> None:
    ids = coalesced(node, 1500)
    node.finish(node.must_take())
    node.sweep()
    assert node.lanes.job("m7").id == "last"
    client, mark = node.store._client, node.store.key("coalesced")
    assert client.zscore(mark, "last")
    client.delete(node.store.key("job", "last"))
    client.zadd(mark, {"last": 1})
    left = []
    for _ in range(3):
        node.sweep()
        left.append(len(kept(node, ids)))
    assert left == [500, 0, 0]
    assert not client.exists(mark, node.store.key("aliases", "last"))


def test_the_ids_that_coalesced_into_a_job_are_known_as_long_as_its_record_is_there(node: Puppet) -> None:
    ids = coalesced(node, 3)
    node.finish(node.must_take(), "failed")
    node.store._client.zadd(node.store.key("coalesced"), {"last": 1})  # the sweep's clock is before that of the ttl
    node.sweep()
    assert kept(node, ids) == ids
    node.lanes.retry("m1")
    assert not node.store._client.exists(node.store.key("coalesced"))
    node.finish(node.must_take())
