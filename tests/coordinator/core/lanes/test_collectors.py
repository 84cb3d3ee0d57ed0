"""Collectors: what the job gets of its calls, and when. The plain model proves the rest (tests/proof/test_model.py)."""

from datetime import datetime
from typing import Any

import pytest

from coordinator import Call, Coordinator, InvalidJob
from coordinator.core.jobs.record import Job
from coordinator.core.jobs.submission import Submission
from coordinator.core.runner.claim import claim_of
from tests.harness.hand_node import Puppet, Taken, sketch

IDLE = {"idle": 10, "max_wait": 60}


def call(node: Puppet, *args: object, key: str = "a", terms: dict[str, Any] | None = None, **more: Any) -> Submission:
    return node.submit(key, args=args, collect=IDLE if terms is None else terms, **more)


def due(node: Puppet, job_id: str) -> float:
    """ms from now until the job goes into line."""
    at = node.store._client.zscore(node.store.key("due"), job_id)
    assert at is not None
    return float(at) - node.store.now()


def let_go(node: Puppet, job_id: str) -> None:
    """Its time comes."""
    node.store._client.zadd(node.store.key("due"), {job_id: 1}, xx=True)
    node.sweep()


def body(node: Puppet, job_id: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    job: Job = node.lanes.job(job_id)
    return job.args, job.kwargs


def lists(node: Puppet) -> list[str]:
    return [name for name in node.names() if ":calls:" in name or ":equal:" in name]


def test_calls_become_one_job_with_the_newest_arguments_once_none_came_for_a_while(node: Puppet) -> None:
    first = call(node, 1)
    assert (first.outcome, first.position, node.lanes.job(first.id).state) == ("queued", -1, "collecting")
    assert 9000 < due(node, first.id) <= 10_000
    node.store._client.zincrby(node.store.key("due"), -5000, first.id)
    others = [call(node, number) for number in (2, 3)]
    assert {(one.outcome, one.of, one.position) for one in others} == {("coalesced", first.id, -1)}
    assert 9000 < due(node, first.id) <= 10_000
    assert not node.take_all()
    let_go(node, first.id)
    assert node.must_take().id == first.id
    assert body(node, first.id) == ((3,), {}) == body(node, others[0].id)
    assert not lists(node)


def test_a_job_goes_at_the_latest_max_wait_after_its_first_call(node: Puppet) -> None:
    first = call(node, 1)
    node.store._client.hincrby(node.store.key("job", first.id), "submitted", -55_000)
    call(node, 2)
    assert 4000 < due(node, first.id) <= 5000


def test_a_job_that_is_due_stays_due_even_if_calls_come_before_the_sweep(node: Puppet) -> None:
    first = call(node, 1)
    node.store._client.zadd(node.store.key("due"), {first.id: 1})
    assert call(node, 2).of == first.id
    assert due(node, first.id) < 0
    node.sweep()
    assert node.order() == [first.id]


def test_a_job_collects_until_it_is_claimed_and_the_next_call_begins_the_next(node: Puppet) -> None:
    running = node.submit("a")
    taken = node.must_take()
    first = call(node, 1)
    let_go(node, first.id)
    assert node.lanes.job(first.id).state == "waiting"
    assert call(node, 2).of == first.id
    node.finish(taken)
    assert node.lanes.job(first.id).state == "ready"
    assert call(node, 3).of == first.id
    claimed = node.must_take()
    later = call(node, 4)
    assert (later.outcome, later.of) == ("queued", "")
    assert body(node, first.id) == ((3,), {})
    node.finish(claimed)
    let_go(node, later.id)
    assert node.order() == [later.id]
    assert running.id != first.id


def test_without_idle_a_job_stands_in_line_at_once_and_collects_there(node: Puppet) -> None:
    node.submit("a")
    taken = node.must_take()
    first = call(node, 1, terms={"how": "list"})
    assert (first.outcome, first.position) == ("queued", 1)
    assert call(node, 2, terms={"how": "list"}).of == first.id
    node.finish(taken)
    assert node.order() == [first.id]
    assert body(node, first.id)[0] == ([Call([1], {}), Call([2], {})],)


def test_a_list_has_all_calls_in_their_order_also_for_the_claim_that_is_repeated(node: Puppet) -> None:
    terms = {"how": "list", **IDLE}
    first = node.submit("a", args=(0,), kwargs={"x": "ü"}, collect=terms)
    for number in range(1, 50):
        node.submit("a", args=(number,), kwargs={"x": "ü"}, collect=terms)
    let_go(node, first.id)
    node.store._client.zadd(node.store.key("rung", "one"), {"bell": 2**53})
    asked = ("one", "a", "runner", "bell", "token", 60000)
    replies = [node.store.step("runner_take", *asked) for _ in range(2)]
    claims = [claim_of(reply, "token") for reply in replies]
    assert [claim.args for claim in claims] == [([Call([number], {"x": "ü"}) for number in range(50)],)] * 2
    assert claims[0].kwargs == {}
    assert not lists(node)
    node.finish(Taken(first.id, "token", "runner", 1, 0, 0))


def test_lists_of_texts_unite_and_everything_wins(node: Puppet) -> None:
    def ask(*pids: str, **more: Any) -> Submission:
        kwargs = {"pids": list(pids) or None, "at": 5, **more}
        return node.submit("a", args=("m",), kwargs=kwargs, collect={"how": "merge"})

    node.submit("a")
    taken = node.must_take()
    odd = ["doi:10.5063/AA/x", 'quote"back\\slash', "Ümlaut ☃", "per%cent?#"]
    first = ask(*odd[:2])
    assert ask(*odd[2:], odd[0]).of == first.id
    assert body(node, first.id) == (("m",), {"pids": odd[:2], "at": 5})  # until the seal the record has the first call
    node.finish(taken)
    taken = node.must_take()
    assert body(node, first.id) == (("m",), {"pids": odd, "at": 5})
    second = ask("P1")
    ask()
    ask("P2")
    node.finish(taken)
    assert node.order() == [second.id]
    assert body(node, second.id) == (("m",), {"pids": None, "at": 5})


def test_a_merge_of_calls_that_differ_in_all_else_is_two_jobs_in_their_order(node: Puppet) -> None:
    def ask(pid: str, at: int) -> Submission:
        return node.submit("a", kwargs={"pids": [pid], "at": at}, collect={"how": "merge", "idle": 5})

    first, second, third = ask("P1", 1), ask("P2", 2), ask("P3", 2)
    assert (second.outcome, third.of) == ("queued", second.id)
    assert node.lanes.job(first.id).state == "ready"
    let_go(node, second.id)
    assert node.order() == [first.id, second.id]
    assert [body(node, one.id)[1]["pids"] for one in (first, second)] == [["P1"], ["P2", "P3"]]


@pytest.mark.parametrize("how", ["latest", "list", "merge"])
def test_a_full_job_goes_into_line_at_once_and_the_next_call_begins_the_next(node: Puppet, how: str) -> None:
    terms = {"how": how, "idle": 10, "most": 3}
    made = [call(node, "same", terms=terms) for _ in range(7)]
    assert [one.outcome for one in made] == ["queued", "coalesced", "coalesced"] * 2 + ["queued"]
    states = [node.lanes.job(one.id).state for one in made[::3]]
    assert states == ["ready", "waiting", "collecting"]
    let_go(node, made[-1].id)
    assert node.order() == [one.id for one in made[::3]]


def test_calls_of_one_are_jobs_of_their_own(node: Puppet) -> None:
    made = [call(node, number, terms={"most": 1, "idle": 10}) for number in range(2)]
    assert [one.outcome for one in made] == ["started", "queued"]
    assert not lists(node)
    assert node.order() == [one.id for one in made]


def test_a_job_takes_no_more_bytes_than_it_may(node: Puppet) -> None:
    terms = {"how": "list", "most_bytes": 100, "idle": 10}
    made = [call(node, "x" * 30, terms=terms) for _ in range(3)]  # of 44 bytes each
    assert [one.outcome for one in made] == ["queued", "coalesced", "queued"]
    with pytest.raises(InvalidJob, match=r"its arguments have 114 bytes; at most 100 \(collect: most_bytes"):
        call(node, "x" * 100, terms=terms)
    let_go(node, made[-1].id)
    assert node.order() == [made[0].id, made[2].id]
    assert [len(body(node, one.id)[0][0]) for one in (made[0], made[2])] == [2, 1]


def test_a_call_that_is_repeated_is_in_its_job_once_also_after_the_seal(node: Puppet) -> None:
    terms = {"how": "list", **IDLE}
    first = call(node, 1, terms=terms, job_id="first")
    assert call(node, 2, terms=terms, job_id="second").of == "first"
    for name in ("first", "second"):
        assert call(node, 9, terms=terms, job_id=name).outcome == "duplicate"
    let_go(node, first.id)
    taken = node.must_take()
    for name in ("first", "second"):
        assert call(node, 9, terms=terms, job_id=name).outcome == "duplicate"
    node.finish(taken)
    for name in ("first", "second"):
        assert call(node, 9, terms=terms, job_id=name).outcome == "duplicate"
    assert body(node, "second")[0] == ([Call([1], {}), Call([2], {})],)
    assert not lists(node)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"task": "shop.other"}, "collects calls of 'shop.work' with how='latest' in job one, and this is one of 'sh"),
        ({"collect": {"how": "list"}}, "this is one of 'shop.work' with how='list': give it another key, or flush"),
        ({"queue": "slow"}, "with how='latest' for app 'shop', queue 'celery' in job one"),
        ({"keys": ["a", "b"]}, r"in the lanes \['a'\] in job one"),
    ],
)  # fmt: skip
def test_calls_that_do_not_go_together_are_refused_by_name(node: Puppet, other: dict[str, Any], said: str) -> None:
    call(node, 1, job_id="one")
    options = {"collect": IDLE, "args": (1,), **other}
    keys = options.pop("keys", "a")
    with pytest.raises(InvalidJob, match=said):
        node.submit(keys, job_id="two", **options)
    assert not node.store.read("EXISTS", node.store.key("job", "two"))
    let_go(node, "one")
    taken = node.must_take()
    second = node.submit(keys, job_id="two", **options)
    node.finish(taken)
    node.lanes.cancel(second.id)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"collect": {"idle": 10, "max_wait": 5}}, "idle 10 is above max_wait 5"),
        ({"collect": {"idle": -1}}, "collect: idle is a number of seconds from 0"),
        ({"collect": {"most": 0}}, "collect: most is a whole number from 1, not 0"),
        ({"collect": {"most_bytes": 0}}, "collect: most_bytes is a whole number from 1, not 0"),
        ({"collect": {"most_bytes": 2**30}}, "collect: most_bytes is at most 1048576 .setting max_payload., not"),
        ({"collect": {"how": "first"}}, "collect: how 'first': one of latest, list, merge"),
        ({"collect": {"idel": 5}}, "collect has no 'idel' .did you mean 'idle'"),
        ({"collect": "latest"}, "collect is a mapping of how, idle"),
        ({"collect": {}, "when_busy": "defer"}, "collect takes no when_busy"),
        ({"collect": {}, "not_before": datetime(2030, 1, 1)}, "collect takes no not_before, eta or countdown"),
        ({"collect": {}, "options": {"countdown": 5}}, "collect takes no not_before, eta or countdown"),
        ({"collect": {}, "options": {"eta": "2030-01-01"}}, "collect takes no not_before, eta or countdown"),
        ({"collect": {}, "instance": "day"}, "it takes no when_busy, no max_waiting and no collect"),
        ({"collect": {}, "keys": [], "uses": "q"}, "collect gathers the calls of a lane: name a key"),
    ],
)
def test_what_makes_no_collector_is_refused_before_anything_is_written(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidJob, match=said):
        sketch(options.pop("keys", "a"), **options)


def test_the_job_expires_when_its_newest_call_would(node: Puppet) -> None:
    def ask(seconds: int | None) -> Submission:
        return call(node, 1, options={} if seconds is None else {"expires": seconds})

    first = ask(5)
    expiry = node.store.key("expiry")
    ask(500)
    assert node.store._client.zscore(expiry, first.id) > node.store.now() + 400_000
    ask(None)
    assert node.store._client.zscore(expiry, first.id) is None
    ask(50)
    node.store._client.zadd(expiry, {first.id: 1})
    node.sweep()
    assert node.lanes.job(first.id).state == "expired"
    second = call(node, 2)
    assert second.outcome == "queued"
    node.lanes.cancel(second.id)


def test_a_job_that_is_cancelled_drops_its_calls_and_the_next_call_begins_anew(node: Puppet) -> None:
    terms = {"how": "list", **IDLE}
    first = call(node, 1, terms=terms)
    second = call(node, 2, terms=terms)
    assert node.lanes.cancel(second.id) == "cancelled"
    assert not lists(node)
    third = call(node, 3, terms=terms)
    assert third.outcome == "queued"
    assert node.lanes.retry(first.id) == "ready"
    taken = node.must_take()
    assert (taken.id, body(node, first.id)[0]) == (first.id, ([Call([1], {}), Call([2], {})],))
    node.finish(taken)
    let_go(node, third.id)
    assert node.order() == [third.id]


def test_a_job_that_is_flushed_goes_into_line_once_and_still_collects(node: Puppet) -> None:
    node.submit("a")
    taken = node.must_take()
    first = call(node, 1)
    assert node.lanes.flush(first.id, why="now", by="ann") == "waiting"
    assert node.lanes.flush(first.id, why="now", by="ann") == "waiting"
    assert call(node, 2).of == first.id
    node.finish(taken)
    node.sweep()
    assert node.order() == [first.id]
    assert body(node, first.id) == ((2,), {})


def test_an_attempt_that_is_lost_and_one_that_raises_get_the_same_calls_again(node: Puppet) -> None:
    terms = {"how": "list"}
    first = call(node, 1, terms=terms, max_attempts=3)
    call(node, 2, terms=terms)
    node.lose(node.must_take())
    second = node.must_take()
    later = call(node, 3, terms=terms)
    node.finish(second, "raised")
    third = node.must_take()
    assert (third.id, body(node, first.id)[0]) == (first.id, ([Call([1], {}), Call([2], {})],))
    node.finish(third)
    assert node.order() == [later.id]


def test_a_job_of_several_lanes_collects_by_its_first(node: Puppet) -> None:
    first = node.submit(["a", "b"], collect=IDLE)
    assert node.submit(["a", "b"], collect=IDLE).of == first.id
    assert node.submit(["b", "a"], collect=IDLE).outcome == "queued"
    for raw in node.store._client.zrange(node.store.key("due"), 0, -1):
        node.lanes.cancel(raw.decode())


def test_collecting_jobs_are_counted(node: Puppet) -> None:
    first = call(node, 1)
    call(node, 2)
    assert node.lanes.counts()["collecting"] == 1
    assert node.lanes.counts()["created"] == 1
    node.lanes.cancel(first.id)
    assert node.lanes.counts()["collecting"] == 0


def test_collect_is_a_submit_with_the_option(coordinator: Coordinator, node: Puppet) -> None:
    node.up(tasks=("t",))
    signature = {"task": "t", "args": (), "kwargs": {}, "options": {}}
    made = [coordinator.collect("k", signature, how="list", idle=5, max_wait=9, priority=3) for _ in range(2)]
    assert [one.outcome for one in made] == ["queued", "coalesced"]
    assert coordinator.job(made[1].id).priority == 3
    coordinator.cancel(made[0].id)


def test_a_collector_whose_record_is_gone_gives_way_to_the_next(node: Puppet) -> None:
    first = call(node, 1)
    node.store._client.delete(node.store.key("job", first.id))
    second = call(node, 2)
    assert second.outcome == "queued"
    node.sweep()
    let_go(node, second.id)
    assert node.order() == [second.id]
    node.store._client.srem(node.store.key("state", "collecting"), first.id)
    node.store._client.zrem(node.store.key("due"), first.id)
