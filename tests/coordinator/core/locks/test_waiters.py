"""A waiter for a lock in plain code is woken by the step that brings its turn, and shows that it lives."""

import asyncio
import re
import threading
from collections.abc import Callable

import pytest

from coordinator import Coordinator, aio
from coordinator.core.quotas.client import QuotaClient
from coordinator.core.store.library import text_of
from tests.harness.functions import ALL
from tests.harness.hand_node import Puppet
from tests.harness.waiting import wait_until

Act = Callable[[], object]
WAITER, HOLDER = "lock-waiter", "lock-holder"


def take(node: Puppet, name: str, uses: str = "") -> bytes:
    """Take the lock `k`, or stand in line for it, under the token `<name>-token`. Returns the outcome."""
    outcome: bytes = node.store.step("lock_take", name, "k", "queue", f"{name}-token", 60_000, 10**9, uses)[0]
    return outcome


def held(node: Puppet) -> None:
    assert take(node, HOLDER) == b"started"


def lapse(node: Puppet) -> None:
    """The lease of the lock's holder ends as if its ttl had passed."""
    node.store._client.zadd(node.store.key("locks"), {HOLDER: 1}, xx=True)
    node.store._client.delete(node.store.key("lock", "k"))


def blocked(node: Puppet, **options: object) -> None:
    """The job `j` is the first in the lane `k`, and waits for the lane `x`."""
    node.submit("x")
    node.submit(["x", "k"], job_id="j", **options)


def used_up(node: Puppet) -> QuotaClient:
    """The one unit of the quota `q` is in use."""
    quotas = QuotaClient(node.store)
    quotas.declare("q", 1, None, 1)
    node.submit([], uses="q")
    node.must_take()
    return quotas


# What stands before the waiter, and the act that ends that. By the steps of a quota, it waits for that.


def by_job_submit(node: Puppet) -> Act:
    node.submit("k")
    return lambda: node.submit("k", when_busy="replace")


def by_job_cancel(node: Puppet) -> Act:
    node.submit("k", job_id="j")
    return lambda: node.lanes.cancel("j")


def by_job_move(node: Puppet) -> Act:
    blocked(node)
    return lambda: node.lanes.move("j", priority=-1)


def by_job_move_of_the_waiter(node: Puppet) -> Act:
    blocked(node)
    return lambda: node.lanes.move(WAITER, to="front")


def by_runner_take(node: Puppet) -> Act:
    node.submit("k", job_id="j", options={"expires": 100})
    node.store._client.hset(node.store.key("job", "j"), "expires", "+1")
    return node.take


def by_job_finish(node: Puppet) -> Act:
    node.submit("k")
    taken = node.must_take()
    return lambda: node.finish(taken)


def by_job_lose(node: Puppet) -> Act:
    node.submit("k", max_losses=0)
    taken = node.must_take()
    return lambda: node.lose(taken)


def by_lease_renew(node: Puppet) -> Act:
    held(node)
    node.store._client.hset(node.store.key("job", HOLDER), "taken", 1)  # it is past its lifetime
    return lambda: node.store.step("lease_renew", 60_000, HOLDER, f"{HOLDER}-token")


def by_job_unpark(node: Puppet) -> Act:
    node.submit("k", job_id="j")
    taken = node.must_take()
    node.park(taken, "child")
    return lambda: node.store.step("job_unpark", "j", taken.token, "succeeded", "1", 0, "", "", "", "")


def by_lock_release(node: Puppet) -> Act:
    held(node)
    return lambda: node.store.step("lock_release", HOLDER, f"{HOLDER}-token")


def by_lock_take(node: Puppet) -> Act:
    held(node)

    def act() -> None:
        lapse(node)
        take(node, "lock-other")

    return act


def by_lock_wait(node: Puppet) -> Act:
    held(node)

    def act() -> None:
        take(node, "lock-other")
        lapse(node)
        node.store.step("lock_wait", "lock-other")

    return act


def by_lane_pause(node: Puppet) -> Act:
    node.submit(["x", "k"], priority=-1)  # which a pause of `x` puts back to its place
    return lambda: node.lanes.pause("x")


def by_lane_resume(node: Puppet) -> Act:
    node.lanes.pause("k")
    return lambda: node.lanes.resume("k")


def by_lane_release(node: Puppet) -> Act:
    node.submit("k")
    node.must_take()
    return lambda: node.lanes.release("k")


def by_quota_declare(node: Puppet) -> Act:
    quotas = used_up(node)
    return lambda: quotas.declare("q", 2, None, 1)


def by_quota_drop(node: Puppet) -> Act:
    quotas = used_up(node)
    return lambda: quotas.drop("q")


def by_quota_cool(node: Puppet) -> Act:
    quotas = QuotaClient(node.store)
    quotas.declare("q", 1, None, 1)
    quotas.cool_down("q", 3600)
    return lambda: quotas.cool_down("q", None)


def by_sweep_of_a_lock(node: Puppet) -> Act:
    held(node)

    def act() -> None:
        lapse(node)
        node.sweep()

    return act


def by_sweep_of_a_lease(node: Puppet) -> Act:
    node.submit("k", job_id="j", max_losses=0)
    node.must_take()

    def act() -> None:
        node.lapse("j")
        node.sweep()

    return act


def by_sweep_of_what_expired(node: Puppet) -> Act:
    blocked(node, options={"expires": 100})
    node.store._client.zadd(node.store.key("expiry"), {"j": 1}, xx=True)
    return node.sweep


BY = {name.removeprefix("by_"): make for name, make in list(globals().items()) if name.startswith("by_")}
FILES = {"job", "runner", "parked", "lock", "grab", "lane", "quota", "sweep", "sorter", "retarget"}
LETS_NOBODY_GO_ON = {
    "jobs_named", "job_flush", "job_retry", "job_await", "notices_take", "notices_sent", "job_progress",
    "runner_condemn",
    "work_drop", "child_began", "children_over", "child_ended", "children_lost", "parked_take", "sorter_add",
    "sorter_hasten", "sorter_flush", "sorter_forget", "job_retarget", "quotas_read", "quota_queue", "quota_place",
    "weight_set",
    "grab_take", "grab_end", "grab_release", "grab_look",  # nobody waits in the lane of an instance
}  # fmt: skip


@pytest.mark.parametrize("step", BY)
def test_the_step_by_which_its_turn_comes_grants_the_lock_and_wakes_the_waiter(node: Puppet, step: str) -> None:
    act, client, turn = BY[step](node), node.store._client, node.store.key("turn", WAITER)
    assert take(node, WAITER, "1 - q" if step.startswith("quota") else "") == b"queued"
    assert not client.exists(turn)
    act()
    assert node.lanes.job(WAITER).state == "running"
    assert client.lrange(turn, 0, -1) == [client.hget(node.store.key("job", WAITER), "fence")]
    assert 0 < client.pttl(turn) <= 60_000


def test_each_step_is_tried_or_lets_nobody_go_on() -> None:
    steps = {step.name for step in ALL if step.file in FILES and "no-writes" not in step.flags}
    tried = {next(step for step in steps if name.startswith(step)) for name in BY}
    assert tried | LETS_NOBODY_GO_ON == steps
    assert not tried & LETS_NOBODY_GO_ON


def wait_in_a_thread(coordinator: Coordinator) -> None:
    with coordinator.lock("k", blocking_timeout=60):
        pass


def wait_in_a_task(coordinator: Coordinator) -> None:
    async def wait() -> None:
        async with aio.Coordinator(coordinator) as jobs, jobs.lock("k", blocking_timeout=60):
            pass

    asyncio.run(wait())


@pytest.mark.parametrize("wait", [wait_in_a_thread, wait_in_a_task])
def test_a_waiter_listens_for_its_turn_and_asks_thrice_before_it_counts_as_dead(
    coordinator: Coordinator, wait: Callable[[Coordinator], None]
) -> None:
    store, silent = coordinator.store, re.search(r"locks\.SILENT = (\d+)", text_of("locks"))
    assert silent
    waiter = threading.Thread(target=wait, args=(coordinator,))
    with store.connect(10).monitor() as monitor:
        try:
            with coordinator.lock("k"):
                waiter.start()
                commands = (one["command"].split() for one in iter(monitor.next_command, None))
                ours = (words for words in commands if "".join(words[1:2]).startswith((store.prefix, "lock_wait")))
                first = next(words for words in ours if words[0] in ("BLPOP", "FCALL"))
                assert first[0] == "BLPOP", "it asks before its turn has come"
                wait_until(lambda: coordinator.lane("k").length == 2)
                assert first[1] == store.key("turn", coordinator.lane("k").jobs[1])
                assert float(first[2]) * 3 <= int(silent[1]) / 1000
        finally:
            waiter.join(60)
    assert coordinator.lane("k").length == 0
