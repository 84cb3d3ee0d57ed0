"""How a job leaves its lanes, and how others hear of it."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator import Coordinator, JobFailed, Locked, StoreUnavailable, UnknownJob, WaitTimeout, aio
from coordinator.core.jobs.record import TERMINAL, Job
from coordinator.ops.search.lanes import lanes
from tests.coordinator.conftest import ClientAt
from tests.harness.hand_node import Puppet
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


def test_a_running_job_that_is_cancelled_ends_as_cancelled_whatever_its_process_says(node: Puppet) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    assert node.lanes.cancel("j", why="too long", by="me") == "running"
    assert node.lanes.cancel("j", why="me too", by="you") == "running", "asked again: who was first is kept"
    assert node.work()[taken.runner.encode()].split()[1] == b"1"
    assert node.finish(taken) == ("accepted", "cancelled", None)
    job = node.lanes.job("j")
    assert (job.result, job.error) == (None, {"type": "Cancelled", "message": "too long", "by": "me"})


def test_an_id_that_was_never_given_is_unknown(node: Puppet) -> None:
    for ask in (node.lanes.job, node.lanes.cancel, node.lanes.wait):
        with pytest.raises(UnknownJob, match="nothing"):
            ask("nothing")


def test_waiting_ends_with_the_job_and_not_before(node: Puppet) -> None:
    node.submit("a", job_id="j")
    with pytest.raises(WaitTimeout) as still:
        node.lanes.wait("j", 0.1)
    assert (still.value.job_id, still.value.state) == ("j", "ready")
    found: list[str] = []
    waiter = threading.Thread(target=lambda: found.append(node.lanes.wait("j", 60).state))
    waiter.start()
    channel = node.store.key("done", "j")
    wait_until(lambda: node.store._client.pubsub_numsub(channel)[0][1] == 1)
    node.order()
    waiter.join(60)
    assert found == ["succeeded"]


def by_success(node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.finish(node.must_take())


def by_failure(node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.finish(node.must_take(), "failed")


def by_a_hold(node: Puppet) -> None:
    node.submit("a", job_id="j", on_failure="hold")
    node.finish(node.must_take(), "failed")


def by_a_cancel(node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.lanes.cancel("j")


def by_its_time(node: Puppet) -> None:
    node.submit("a", job_id="j", options={"expires": 100})
    node.store._client.zadd(node.store.key("expiry"), {"j": 1})
    node.sweep()


def by_a_rollback(node: Puppet) -> None:
    node.submit("a", job_id="j", rollback={"task": "shop.other"})
    node.finish(node.must_take(), "failed")
    node.finish(node.must_take())


def by_half_a_rollback(node: Puppet) -> None:
    node.submit("a", job_id="j", rollback={"task": "shop.other"})
    for _ in range(2):
        node.finish(node.must_take(), "failed")


def by_a_release(node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.must_take()
    node.lanes.release("a")


ENDS: dict[Callable[[Puppet], None], str] = {
    by_success: "succeeded", by_failure: "failed", by_a_hold: "held", by_a_cancel: "cancelled", by_its_time: "expired",
    by_a_rollback: "rolled_back", by_half_a_rollback: "double_fault", by_a_release: "cancelled",
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_each_end_is_told_to_those_who_listen(node: Puppet, end: Callable[[Puppet], None]) -> None:
    with node.store._client.pubsub() as messages:
        messages.subscribe(node.store.key("done", "j"))
        assert messages.get_message(timeout=20), "it is subscribed"
        end(node)
        notice = messages.get_message(timeout=20)
    assert notice
    assert notice["data"].decode() == node.lanes.job("j").state == ENDS[end]
    assert set(ENDS.values()) == {*TERMINAL, "held"}


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled"])
def test_a_wait_leaves_time_for_the_result_to_reach_the_backend(
    node: Puppet, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.submit("a", job_id="j", tell=True)
    if outcome == "cancelled":  # it never had a node
        node.lanes.cancel("j")
    else:
        node.finish(node.must_take(), outcome)
    monkeypatch.setattr(node.store, "pause", lambda _: node.store.step("notices_sent", "shop", "j"))
    assert node.lanes.wait("j", 60).state == outcome
    assert not node.store._client.exists(node.store.key("unsent", "shop")), "it paused until the result was sent"


def test_a_waiter_whose_notice_was_lost_looks_for_itself(node: Puppet) -> None:
    node.submit("a", job_id="j")
    found: list[str] = []
    waiter = threading.Thread(target=lambda: found.append(node.lanes.wait("j", 60).state))
    waiter.start()
    wait_until(lambda: node.store._client.pubsub_numsub(node.store.key("done", "j"))[0][1] == 1)
    node.store._client.hset(node.store.key("job", "j"), "state", "failed")
    waiter.join(60)
    assert found == ["failed"]
    node.store._client.hset(node.store.key("job", "j"), "state", "ready")
    node.order()


def test_a_wait_outlives_an_outage_also_on_asyncio(
    node: Puppet, proxy: Proxy, client_at: ClientAt, caplog: pytest.LogCaptureFixture
) -> None:
    sent = node.submit("a", job_id="j")
    there = client_at(proxy.url(0), timeout=0.5)

    async def on_a_loop() -> Job:
        async with aio.Coordinator(url=proxy.url(0), prefix=there.settings.prefix, timeout=0.5) as jobs:
            return await jobs.wait(sent, 60)

    def all_listen() -> bool:
        return bool(node.store._client.pubsub_numsub(node.store.key("done", "j"))[0][1] == 3)

    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(there.wait, "j", 40), pool.submit(there.wait, "j")]
        waits.append(pool.submit(asyncio.run, on_a_loop()))
        wait_until(all_listen)
        proxy.cut()
        wait_until(lambda: caplog.text.count("the wait for job j goes on") == 3)
        node.order()
        proxy.heal()
        assert [wait.result(60).state for wait in waits] == ["succeeded"] * 3
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        there.wait("j", 0.3)


def test_a_wait_at_a_redis_that_wants_another_password_ends_at_once(
    redis_server: RedisServer, client_at: ClientAt
) -> None:
    with pytest.raises(StoreUnavailable, match="refuses this user or password"):
        client_at(f"redis://nobody:wrong@127.0.0.1:{redis_server.port}/0").wait("j")


def test_a_finished_job_is_kept_for_its_time_and_leaves_no_other_key(node: Puppet) -> None:
    node.up()
    node.submit("warm-up")
    node.order()
    before = node.names()
    node.submit(["a", "b"], job_id="won", when_busy="defer", options={"expires": 100}, tell=False)
    node.submit("a", job_id="lost", not_before=datetime.now(UTC) + timedelta(hours=1), settings={"keep_failure": 7.0})
    node.order()
    node.lanes.cancel("lost")
    others = (("actions",), ("ended", "cancelled"))
    assert node.names() - before == {node.store.key(*one) for one in (("job", "won"), ("job", "lost"), *others)}
    assert 3_590_000 < node.store._client.pttl(node.store.key("job", "won")) <= 3_600_000
    assert 6_000 < node.store._client.pttl(node.store.key("job", "lost")) <= 7_000


def test_a_lane_shows_its_line_and_its_holder(node: Puppet) -> None:
    assert (node.lanes.lane("a").state, node.lanes.lane("a").length) == ("empty", 0)
    ids = [node.submit("a").id for _ in range(5)]
    taken = node.must_take()
    lane = node.lanes.lane("a", 2)
    assert (lane.jobs, lane.length, lane.state, lane.holder) == (tuple(ids[:2]), 5, "running", ids[0])
    assert [(one.job_id, one.node) for one in lane.holders] == [(ids[0], "one")]
    node.finish(taken)
    node.order()


@pytest.mark.parametrize("state", ["retrying", "held"])
def test_a_lane_shows_its_holder_while_that_does_not_run(node: Puppet, state: str) -> None:
    job_id = node.submit("a", max_attempts=2 if state == "retrying" else 1, retry_delay=60, on_failure="hold").id
    behind = node.submit("a").id
    taken = node.must_take()
    assert node.finish(taken, "raised", delay=60).state == state
    for lane in (node.lanes.lane("a"), *lanes(node.store, "a")):
        assert ([one.job_id for one in lane.holders], lane.state) == ([job_id], state)
        assert lane.holders[0].node is None
    for one in (job_id, behind):
        node.lanes.cancel(one)


def test_lanes_are_found_by_prefix_and_state_whatever_their_names_hold(node: Puppet) -> None:
    keys = ["sync/*x", "sync/[a]", "sync/\\", "sync/ü?", "sync:{x}:y", "other"]
    node.submit("sync/*x")
    taken = node.must_take()
    for key in keys:
        node.submit(key)
    assert [lane.key for lane in lanes(node.store, "sync/")] == sorted(keys[:4])
    assert [(lane.key, lane.length) for lane in lanes(node.store, "sync/*x")] == [("sync/*x", 2)]
    assert [lane.key for lane in lanes(node.store, "sync/[")] == ["sync/[a]"]
    assert [lane.key for lane in lanes(node.store, state="running")] == ["sync/*x"]
    assert len(lanes(node.store, most=3)) == 3
    assert len(lanes(node.store)) == 6
    node.finish(taken)
    node.order()


def test_a_revoke_ends_what_has_not_begun_or_waits_for_its_retry_and_nothing_else(node: Puppet) -> None:
    revoke = node.lanes.revoke
    node.submit("a", job_id="ran", max_attempts=2)
    node.submit("a", job_id="behind")
    taken = node.must_take()
    assert [revoke(one) for one in ("ran", "behind")] == ["running", "cancelled"]
    assert node.finish(taken, "raised", delay=60_000).state == "retrying"
    assert revoke("ran", why="enough") == revoke("ran") == "cancelled"
    error = node.lanes.job("ran").error
    assert error
    assert error["message"] == "enough"
    node.submit("a", job_id="lost")
    node.lose(node.must_take())
    assert revoke("lost") == "ready", "it had begun"
    with pytest.raises(UnknownJob):
        revoke("nobody")
    assert node.order() == ["lost"]


def test_a_skipped_submission_gives_the_end_of_the_job_that_it_was_skipped_for(coordinator: Coordinator) -> None:
    task: Any = {"task": "t"}
    with coordinator.lock("a"):
        behind_a_lock = coordinator.submit("a", task, when_busy="skip", if_unknown="wait")
    assert behind_a_lock.get(5) is None
    first = coordinator.submit("a", task, if_unknown="wait")
    skipped = coordinator.submit("a", task, when_busy="skip", if_unknown="wait")
    assert not skipped.ready()
    coordinator.cancel(first.id)
    with pytest.raises(JobFailed, match=first.id):
        skipped.get(5)
    coordinator.pause("a")
    with pytest.raises(Locked, match="'a' is closed: its lane is paused"):
        coordinator.submit("a", task, when_busy="skip", if_unknown="wait").get(5)
