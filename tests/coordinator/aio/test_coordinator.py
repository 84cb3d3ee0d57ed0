"""The calls of a coordinator, awaited: they mean, give and raise the same, and the loop goes on meanwhile."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from coordinator import (
    Coordinator,
    InvalidJob,
    JobFailed,
    SettingsError,
    ShuttingDown,
    StoreUnavailable,
    UnknownJob,
    WaitTimeout,
    aio,
)
from coordinator import coordinator as blocking
from coordinator.aio import declared as made
from coordinator.aio.bridge import run
from coordinator.aio.declared import PlannerCalls
from coordinator.aio.requests import MOST
from coordinator.aio.verbs import Awaiting
from coordinator.core.author import act_of
from coordinator.core.lanes.view import Lane
from coordinator.errors import CoordinatorError
from coordinator.ops.verbs.planner import Planner
from coordinator.scheduler.entry import Entry
from coordinator.scheduler.schedules import Every
from coordinator.scheduler.steering import Entries
from tests.coordinator.aio.awaiting import awaiting, until
from tests.harness.cluster import Cluster
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.sentinel import Sentinels

MANY = 1000
# Seconds of this thread's own processor time between two turns of the loop: a fifth of it on a processor of its own,
# and half of it where six test processes share two.
LATE = 0.1


@asynccontextmanager
async def turns() -> AsyncIterator[list[float]]:
    """How long the turns of the loop take, in seconds of processor time: other processes do not count."""
    took: list[float] = []

    async def look() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            took.append(time.thread_time() - before)

    gc.collect()
    gc.freeze()  # else the objects of a thousand test modules are looked through meanwhile
    looking = asyncio.create_task(look())
    try:
        yield took
    finally:
        looking.cancel()
        gc.unfreeze()


def channels(press: Any) -> set[bytes]:
    store = press.coordinator.store
    return set(store._client.execute_command("PUBSUB CHANNELS", store.key("done", "*")))


def connections(press: Any) -> tuple[int, int]:
    """How many there are, and how many of them bring notices."""
    clients = press.coordinator.store._client.client_list()
    return len(clients), sum(client["sub"] != "0" for client in clients)


def test_a_job_is_submitted_read_waited_for_and_gives_its_result(press: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        first = await jobs.submit("k", press.print.s(1))
        assert first.outcome == "started"
        second, third = await jobs.submit_many([("k", press.print.s(2)), ("j", press.print.s(3), {"priority": 1})])
        assert (second.position, (await jobs.job(third.id)).priority) == (1, 1)
        assert (await jobs.lane("k")).jobs == (first.id, second.id)
        assert [lane.key for lane in await jobs.lanes()] == ["j", "k"]
        assert [node.name for node in await jobs.nodes()] == ["one"]
        assert (await jobs.counts())["created"] == 3
        assert await jobs.why(second.id)
        waits = [asyncio.create_task(jobs.wait(one.id)) for one in (first, third)]
        await until(lambda: len(channels(press)) == 2)
        await asyncio.to_thread(press.finish_all)
        assert [(await one).state for one in waits] == ["succeeded"] * 2
        assert await jobs.get(second.id) == "detail"
        with pytest.raises(CoordinatorError, match=r"ask the coordinator .*in asyncio, await jobs\.get\('"):
            first.get()

    awaiting(press, body)


def test_what_is_wrong_is_told_as_by_the_other_coordinator(press: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        with pytest.raises(InvalidJob):
            await jobs.submit("", press.print.s(1))
        with pytest.raises(InvalidJob):
            await jobs.submit("k", press.print.s(1), priority=1000)
        with pytest.raises(UnknownJob):
            await jobs.wait("nobody")
        sent = await jobs.submit("k", press.print.s(1))
        with pytest.raises(WaitTimeout):
            await jobs.wait(sent.id, 0.05)
        assert await jobs.cancel(sent.id, why="no") == "cancelled"
        with pytest.raises(JobFailed):
            await jobs.get(sent.id)
        assert await jobs.retry(sent.id) == "ready"
        press.coordinator.stop_submitting()
        with pytest.raises(ShuttingDown):
            await jobs.submit("k", press.print.s(1))
        await jobs.cancel(sent.id)

    awaiting(press, body)
    with pytest.raises(SettingsError, match=r"takes a coordinator\.Coordinator, not Celery"):
        aio.Coordinator(press.app)
    with pytest.raises(SettingsError, match="either a coordinator or settings"):
        aio.Coordinator(press.coordinator, prefix="other")


def test_a_task_at_work_submits_also_where_its_process_ends(press: Any) -> None:
    async def submit() -> str:
        async with aio.Coordinator(press.coordinator) as jobs:
            return (await jobs.submit("k", press.print.s(1))).outcome

    def submitting() -> str:
        return asyncio.run(submit())

    task = press.app.task(submitting, name="press.submit", shared=False)
    press.coordinator.stop_submitting()
    assert task.apply().get() == "started"
    press.finish_all()


def test_code_that_asks_redis_past_the_loop_is_refused_inside_a_call(press: Any) -> None:
    """It would block the loop: a body of ours that keeps the store of the plain coordinator."""

    async def body(jobs: aio.Coordinator) -> None:
        for ask in (press.coordinator.nodes, press.coordinator.counts):
            with pytest.raises(CoordinatorError, match="would block the event loop"):
                await run(ask)

    awaiting(press, body)
    assert press.coordinator.nodes()


def test_a_thousand_waits_share_one_connection_and_the_loop_answers_throughout(press_alone: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        sent = await jobs.submit_many([(f"k/{n}", press_alone.print.s(n)) for n in range(MANY)])
        before, _ = await asyncio.to_thread(connections, press_alone)
        async with turns() as took:
            waits = [asyncio.create_task(jobs.wait(one.id, 60)) for one in sent]
            await until(lambda: len(channels(press_alone)) == MANY)
            total, listening = await asyncio.to_thread(connections, press_alone)
            assert (total <= before + MOST, listening) == (True, 1)
            ends = [(one.id, act_of("all at once", "me"), "") for one in sent]
            await asyncio.to_thread(press_alone.coordinator.store.step_many, "job_cancel", ends)
            found = [await one for one in waits]
        assert {job.state for job in found} == {"cancelled"}
        assert max(took) < LATE, sorted(took)[-5:]
        assert not await asyncio.to_thread(channels, press_alone)

    awaiting(press_alone, body)


def test_a_bulk_of_submits_lets_the_loop_answer_throughout(press: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        asked = [(f"k/{n % 10}", press.print.s(n)) for n in range(10 * MANY)]
        async with turns() as took:
            await asyncio.sleep(0)  # it begins to look
            await jobs.submit_many(asked)
        assert max(took) < LATE, sorted(took)[-5:]

    awaiting(press, body)


def test_a_cancelled_wait_leaves_no_subscription_and_disturbs_no_other(press: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        sent = [await jobs.submit(f"k/{n}", press.print.s(n)) for n in range(20)]
        waits = [asyncio.create_task(jobs.wait(one.id)) for one in sent for _ in range(2)]
        for pause in range(40):  # at each point of its way
            for _ in range(pause):
                await asyncio.sleep(0)
            if pause % 2:
                waits[pause].cancel()
        await until(lambda: len(channels(press)) == 20)
        for one in waits[:20:2]:
            one.cancel()
        await until(lambda: len(channels(press)) == 10)
        await asyncio.to_thread(press.finish_all)
        ends = await asyncio.gather(*waits, return_exceptions=True)
        assert [job.state for job in ends[20::2] if not isinstance(job, BaseException)] == ["succeeded"] * 10
        assert sum(isinstance(one, asyncio.CancelledError) for one in ends) == 30
        assert not await asyncio.to_thread(channels, press)

    awaiting(press, body)


def test_redis_away_is_told_and_its_return_is_used_at_once(own_redis: RedisServer) -> None:
    host = Coordinator(url=own_redis.url(0), prefix="away", timeout=2)

    async def body() -> None:
        async with aio.Coordinator(host) as jobs:
            assert await jobs.counts()
            sent = await jobs.submit("k", {"task": "t", "args": [], "options": {}}, if_unknown="wait")
            waiting = asyncio.create_task(jobs.wait(sent.id))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(own_redis.kill)
            with pytest.raises(StoreUnavailable):
                await jobs.submit("k", {"task": "t", "args": [], "options": {}}, if_unknown="wait")
            await asyncio.to_thread(own_redis.start)
            assert (await jobs.job(sent.id)).state == "ready"
            with pytest.raises(WaitTimeout):
                await jobs.wait(sent.id, 0.1)
            await jobs.cancel(sent.id)
            assert (await asyncio.wait_for(waiting, 60)).state == "cancelled", "it went on"

    asyncio.run(body())


@pytest.mark.parametrize(
    "made", [lambda folder: Sentinels(folder, secret=True), lambda folder: Cluster(folder, "p", "secret")]
)
def test_it_follows_the_master_of_sentinels_and_of_a_cluster(
    made: Callable[[Path], Sentinels | Cluster], tmp_path: Path
) -> None:
    with made(tmp_path) as servers:
        first = servers.servers[0]

        async def body() -> None:
            async with aio.Coordinator(url=servers.url(0), prefix="p", timeout=3) as jobs:
                task = {"task": "t", "args": [], "options": {}}
                sent = await jobs.submit("k", task, if_unknown="wait")
                waiting = asyncio.create_task(jobs.wait(sent.id))
                await asyncio.to_thread(servers.settle)
                with first.client() as client:
                    replicas = client.info("replication")["connected_slaves"]
                    assert client.wait(replicas, 10_000) == replicas  # they have the job
                await asyncio.to_thread(first.kill)
                async with asyncio.timeout(60):
                    while True:
                        with suppress(StoreUnavailable):
                            assert (await jobs.job(sent.id)).state == "ready"
                            break
                        await asyncio.sleep(0.1)
                assert await jobs.cancel(sent.id) == "cancelled"
                assert (await asyncio.wait_for(waiting, 60)).state == "cancelled", "it went on"

        asyncio.run(body())


def test_it_is_made_before_the_settings_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COORDINATOR_URL", raising=False)  # of a fleet that tests share
    app = Celery("early", set_as_current=False)
    jobs = aio.Coordinator(Coordinator(app))
    with pytest.raises(SettingsError, match="no Redis for the coordinator"):
        asyncio.run(jobs.counts())


def test_where_jobs_run_in_the_test_s_thread_they_do_so_here_too(
    press: Any, coordinator_jobs: Callable[[Coordinator], Any]
) -> None:
    inline = coordinator_jobs(press.coordinator)

    async def body(jobs: aio.Coordinator) -> None:
        sent = await jobs.submit("k", press.print.s(5))
        assert await jobs.get(sent.id) == 5
        async with jobs.lock("k"):
            pass

    awaiting(press, body)
    assert [job.key for job in inline.submitted] == ["k"]


def test_a_call_that_is_not_awaited_is_refused(press: Any) -> None:
    jobs = aio.Coordinator(press.coordinator)

    async def body() -> None:
        with pytest.raises(CoordinatorError, match="must be awaited"):
            jobs._sync_proxy.counts()

    asyncio.run(body())


WORK = {"task": "press.print", "args": [1], "options": {}}


async def locked(jobs: aio.Coordinator) -> None:
    async with jobs.lock("free"):
        pass


async def timed_out(what: Awaitable[object]) -> None:
    with suppress(WaitTimeout):
        await what


async def grabbed(jobs: aio.Coordinator) -> None:
    await jobs.grab("a key", "an instance", "me")


CALLS: dict[str, Callable[[aio.Coordinator], Awaitable[object]]] = {
    "submit": lambda jobs: jobs.submit("k", WORK),
    "submit_many": lambda jobs: jobs.submit_many([("k", WORK)]),
    "collect": lambda jobs: jobs.collect("calls", WORK, idle=60),
    "job": lambda jobs: jobs.job("ready"),
    "wait": lambda jobs: timed_out(jobs.wait("ready", 0.1)),
    "get": lambda jobs: timed_out(jobs.get("ready", 0.1)),
    "lock": locked,
    "grab": grabbed,
    "cancel": lambda jobs: jobs.cancel("waiting"),
    "retry": lambda jobs: jobs.retry("waiting"),
    "why": lambda jobs: jobs.why("ready"),
    "jobs": lambda jobs: jobs.jobs(),
    "why_summary": lambda jobs: jobs.why_summary(),
    "counts": lambda jobs: jobs.counts(),
    "rates": lambda jobs: jobs.rates(),
    "lane": lambda jobs: jobs.lane("k"),
    "lanes": lambda jobs: jobs.lanes(),
    "line": lambda jobs: jobs.line(Lane("k", ("ready",), 1, "ready")),
    "contended": lambda jobs: jobs.contended(),
    "locks": lambda jobs: jobs.locks(),
    "nodes": lambda jobs: jobs.nodes(),
    "lost_nodes": lambda jobs: jobs.lost_nodes(),
    "grabs": lambda jobs: jobs.grabs(),
    "sorters": lambda jobs: jobs.sorters(),
    "move": lambda jobs: jobs.move("waiting", to="front"),
    "quota": lambda jobs: jobs.quota("q", concurrency=2),
    "cool_down": lambda jobs: jobs.cool_down("q"),
    "weight": lambda jobs: jobs.weight("g", 1),
    "quotas": lambda jobs: jobs.quotas(),
    "quota_status": lambda jobs: jobs.quota_status("q"),
    "weights": lambda jobs: jobs.weights(),
    "plan quota": lambda jobs: jobs.plan.quota("q", concurrency=3),
    "plan cool_down": lambda jobs: jobs.plan.cool_down("q", 60),
    "plan drop_quota": lambda jobs: jobs.plan.drop_quota("q"),
    "drop_quota": lambda jobs: jobs.drop_quota("q"),
    "pause": lambda jobs: jobs.pause("k"),
    "resume": lambda jobs: jobs.resume("k"),
    "release": lambda jobs: jobs.release("k"),
    "drain": lambda jobs: jobs.drain("one"),
    "undrain": lambda jobs: jobs.undrain("one"),
    "retarget": lambda jobs: jobs.retarget("press.old", "press.print"),
    "release_grab": lambda jobs: jobs.release_grab("a key", "an instance"),
    "actions": lambda jobs: jobs.actions(),
    "act": lambda jobs: anext(jobs.act("cancel", key="nobody")),
    "acted": lambda jobs: jobs.acted("count", "shelf", "1", id="1"),
    "plan cancel": lambda jobs: jobs.plan.cancel("waiting"),
    "plan retry": lambda jobs: jobs.plan.retry("waiting"),
    "plan move": lambda jobs: jobs.plan.move("waiting"),
    "plan retarget": lambda jobs: jobs.plan.retarget("press.old", "press.print"),
    "plan release": lambda jobs: jobs.plan.release("k"),
    "plan pause": lambda jobs: jobs.plan.pause("k"),
    "plan resume": lambda jobs: jobs.plan.resume("k"),
    "plan act": lambda jobs: jobs.plan.act("cancel", key="nobody"),
    "sorter add": lambda jobs: jobs.sorter("s").add("1", "k", WORK),
    "sorter flush": lambda jobs: jobs.sorter("s").flush(),
    "sorter orders": lambda jobs: jobs.sorter("s").orders(),
    "entries put": lambda jobs: jobs.entries.put(Entry("e", Every(3600), "press.print")),
    "entries all": lambda jobs: jobs.entries.all(),
    "entries entry": lambda jobs: jobs.entries.entry("e"),
    "entries pause": lambda jobs: jobs.entries.pause("e"),
    "entries resume": lambda jobs: jobs.entries.resume("e"),
    "entries skip_next": lambda jobs: jobs.entries.skip_next("e"),
    "entries run_now": lambda jobs: jobs.entries.run_now("e"),
    "entries change": lambda jobs: jobs.entries.change("e", Every(60)),
    "entries restore": lambda jobs: jobs.entries.restore("e"),
    "entries plan_change": lambda jobs: jobs.entries.plan_change("e", "0 0 1 * * ?"),
    "entries plan_backfill": lambda jobs: jobs.entries.plan_backfill("e", "2026-03-01", "2026-03-02"),
    "entries backfill": lambda jobs: jobs.entries.backfill("e", "2026-03-01", "2026-03-02"),
    "entries stop_backfill": lambda jobs: jobs.entries.stop_backfill("e"),
    "entries history": lambda jobs: jobs.entries.history("e"),
    "entries remove": lambda jobs: jobs.entries.remove("e"),
}
ASK_NOTHING = {  # by themselves; a silence is a finding of doctor; a thread asks the broker
    "aclose", "entries", "event", "sorter", "doctor", "refused", "refused_counts", "requeue", "discard",
}  # fmt: skip
NOT_AWAITED = {  # no Redis is asked, or a session of a database is
    "close", "extend", "inbox", "outbox", "run_once", "schedule_source", "stop_submitting", "submit_on_commit",
    "node_plugin",
}  # fmt: skip


def calls_of(kind: type) -> set[str]:
    own = kind.__mro__[: kind.__mro__.index(Awaiting)] if Awaiting in kind.__mro__ else (kind,)
    return {name for part in own for name in vars(part) if not name.startswith("_")}


def test_every_verb_of_the_other_coordinator_is_there() -> None:
    public = {
        name
        for kind in Coordinator.__mro__
        for name, part in vars(kind).items()
        if callable(part) and not name.startswith("_")
    }
    assert public - calls_of(aio.Coordinator) <= NOT_AWAITED
    assert calls_of(Entries) == calls_of(aio.coordinator.Entries)


def test_no_verb_stops_the_loop_while_redis_is_silent(press: Any, proxy: Proxy) -> None:
    """Those that are written by hand, and others, each asked of a plain client, which learns of tasks from the nodes:
    Redis answers first, then it is silent.
    """
    verbs = calls_of(aio.Coordinator) - ASK_NOTHING - {"plan"}
    verbs |= {f"entries {name}" for name in calls_of(aio.coordinator.Entries)}
    verbs |= {f"plan {name}" for name in calls_of(PlannerCalls)}
    verbs |= {f"sorter {name}" for name in calls_of(aio.coordinator.Sorter)}
    declared = {name for name, _, _ in made.calls(blocking.Coordinator)} | {
        f"plan {name}" for name, _, _ in made.calls(Planner)
    }
    assert verbs - declared <= CALLS.keys() <= verbs, "those that are declared are all made alike"
    press.coordinator.submit_many([("k", WORK, {"job_id": one}) for one in ("ready", "waiting")])
    url, prefix = proxy.url(), press.coordinator.settings.prefix

    async def body() -> float:
        for call in CALLS.values():
            async with aio.Coordinator(url=url, prefix=prefix) as jobs:
                await call(jobs)
        assert press.coordinator.nodes()  # a plain one may block the loop of its thread, as in a notebook
        proxy.swallow()
        latest, calls = 0.0, [call(aio.Coordinator(url=url, prefix=prefix, timeout=6)) for call in CALLS.values()]
        asked = asyncio.gather(*calls, return_exceptions=True)
        while not asked.done():
            before = time.monotonic()
            await asyncio.sleep(0.01)
            latest = max(latest, time.monotonic() - before)
        ends = dict(zip(CALLS, await asked, strict=True))
        assert {type(end) for end in ends.values()} == {StoreUnavailable}, ends
        return latest

    assert asyncio.run(body()) < 5  # one that blocks stops it for the timeout of six seconds
