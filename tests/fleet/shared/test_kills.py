"""Tasks that end in the worst ways, and processes killed at each point of an attempt: right state, count and order."""

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from coordinator import Coordinator, JobFailed, Submission
from coordinator.core.jobs.record import TERMINAL
from tests.fleet.mishaps import MODULE, cause, double_faults, gaps, marks, start, tasks_of
from tests.harness.fleet import Fleet, Worker
from tests.harness.long import long
from tests.harness.standing import Node
from tests.harness.waiting import looking, wait_until

QUICK: dict[str, Any] = {"sweep": 0.05, "retry_delay": 0.01, "node_ttl": 4, "heartbeat": 0.2}
NODE = Node("shop", 3, ("-I", MODULE), QUICK)
OTHER = "one@test"

LIVE = (
    "waiting", "scheduled", "collected", "collecting", "blocked", "ready", "running", "retrying", "parked", "held",
    "rolling_back",
)  # fmt: skip
LASTING = ("fence", "sequence", "bells", "classes", "fits:", "swept", "clock",
           "format", "alive", "room", "counts", "ended", "lane-runs", "samples", "tallies", "measures", "looked",
           "node:", "lost-nodes",
           "serves:", "tasks:", "times:", "work:", "rung:", "declared", "errands:", "waits",
           "shares", "usual", "began")  # fmt: skip
BODY = ["job begin", "job end"]


def on_its_own(fleet: Fleet) -> Worker:
    """A node beside the shared one, which takes nothing until it is undrained."""
    worker = start(fleet, "first", COORDINATOR_LOCK_TTL="2")
    fleet.coordinator.drain(OTHER, why="only the other one is to work")
    return worker


def test_whatever_a_task_does_to_its_process_it_ends_as_failed_and_the_lane_goes_on(fleet: Fleet) -> None:
    shop, tasks, submit = fleet.shop, tasks_of(fleet), fleet.coordinator.submit
    causes = {
        "memory": "MemoryError", "exit": "SystemExit", "interrupt": "KeyboardInterrupt", "unspeakable": "Unspeakable",
        "cancelled": "CancelledError", "generator": "GeneratorExit", "abort": "Abort", "kill": "Lost",
        "unkeepable": "NoRetry",
    }  # fmt: skip
    submissions: dict[str, Submission] = {}
    for how in causes:
        task = tasks.unkeepable.s(how) if how == "unkeepable" else tasks.ends_badly.s(how, how)
        signature = task.set(link_error=shop.note_error.s())
        submissions[how] = submit(how, signature, job_id=f"bad-{how}", max_losses=1)
        submit(how, shop.work.s(f"next-{how}"), job_id=f"next-{how}")
    for how, name in causes.items():
        assert fleet.coordinator.wait(f"next-{how}", 60).state == "succeeded"
        job = fleet.coordinator.job(f"bad-{how}")
        calls = 2 if name == "Lost" else 1
        assert (job.state, cause(job), job.attempt, job.losses) == ("failed", name, calls, 2 * (calls - 1)), how
        assert marks(fleet, how, f"next-{how}") == [f"{how} begin"] * calls + [f"next-{how} begin", f"next-{how} end"]
        wait_until(lambda how=how: shop.app.AsyncResult(f"bad-{how}").state == "FAILURE", what=fleet.logs)  # type: ignore[misc]
        wait_until(lambda how=how: fleet.stamps(f"bad-{how}", "error"), what=fleet.logs)  # type: ignore[misc]
    counts = fleet.coordinator.counts()
    assert (counts["failed"], counts["losses"], counts["succeeded"]) == (9, 2, 9)
    for how in ("exit", "interrupt", "generator"):  # none of them is raised where it would end the caller
        for get in (shop.app.AsyncResult(f"bad-{how}").get, submissions[how].get):
            with pytest.raises(JobFailed, match=f"bad-{how} is failed: {causes[how]}"):
                get(timeout=10)


def test_an_unspeakable_rollback_is_a_double_fault_and_its_runner_goes_on(fleet: Fleet) -> None:
    tasks, shop = tasks_of(fleet), fleet.shop
    pool = {child.pid for child in fleet.workers[0].children()}
    undo = tasks.ends_badly.s("undo", "unspeakable")
    job = fleet.coordinator.submit("k", tasks.ends_badly.s("job", "unspeakable"), rollback=undo)
    after = fleet.coordinator.submit("k", shop.work.s("after"))
    found = fleet.coordinator.wait(after.id, 60)
    assert (found.state, found.attempt, found.losses) == ("succeeded", 1, 0)
    assert fleet.coordinator.job(job.id).state == "double_fault"
    assert {child.pid for child in fleet.workers[0].children()} == pool


@pytest.mark.parametrize(
    ("point", "calls", "losses"),
    [("prerun", BODY, 1), ("postrun", BODY * 2, 1), ("told", BODY, 0)],
    ids=["before-start", "after-the-body-before-the-outcome", "after-the-outcome-before-the-notices"],
)
def test_a_process_killed_at_any_point_costs_at_most_one_more_run(
    fleet: Fleet, point: str, calls: list[str], losses: int
) -> None:
    with fleet.server.client(3) as record:
        record.set(f"{fleet.prefix}.kill", point)
    shop, store = fleet.shop, fleet.coordinator.store
    job = fleet.coordinator.submit("k", shop.work.s("job").set(link=shop.note.s()))
    behind = [fleet.coordinator.submit("k", shop.work.s(f"behind{i}")).id for i in range(2)]
    assert fleet.coordinator.wait(behind[-1], 60).state == "succeeded"
    found = fleet.coordinator.job(job.id)
    assert (found.state, found.attempt, found.losses) == ("succeeded", losses + 1, losses)
    after = [f"behind{i} {what}" for i in range(2) for what in ("begin", "end")]
    done = [mark for mark in marks(fleet) if mark != "job noted"]
    if point == "told":  # a thread sends the notices, and the process may have begun the next job meanwhile
        done = list(dict.fromkeys(done))
    assert done == calls + after
    owed: Any = store.key("unsent", "shop")
    with suppress(AssertionError):  # by the process that ran the job, if it lives: it sends within milliseconds
        wait_until(lambda: not store._client.exists(owed), 1)
    store._client.zadd(owed, {job.id: 1}, xx=True)
    wait_until(lambda: fleet.stamps("job", "noted"), what=fleet.logs)
    wait_until(lambda: not store._client.exists(owed))
    assert shop.app.AsyncResult(job.id).get(timeout=60) == "job"
    assert len(fleet.stamps("job", "noted")) == 1
    counts = fleet.coordinator.counts()
    assert (counts["created"], counts["succeeded"]) == (3, 3)
    assert counts["losses"] in ((0, 1) if point == "told" else (losses,))


def test_a_node_killed_while_a_job_waits_for_its_retry_costs_no_attempt_and_no_place(fleet: Fleet) -> None:
    first = on_its_own(fleet)
    shop, tasks = fleet.shop, tasks_of(fleet)
    job = fleet.coordinator.submit("k", tasks.until.s("job", 2), max_attempts=2, retry_delay=6)
    behind = fleet.coordinator.submit("k", shop.work.s("behind"))
    wait_until(lambda: fleet.coordinator.job(job.id).state == "retrying", what=fleet.logs)
    first.end()
    fleet.coordinator.undrain(OTHER)
    assert fleet.coordinator.wait(behind.id, 60).state == "succeeded"
    found = fleet.coordinator.job(job.id)
    assert (found.state, found.attempt, found.losses, found.node) == ("succeeded", 2, 0, OTHER)
    assert marks(fleet) == ["job begin", *BODY, "behind begin", "behind end"]
    begins = fleet.stamps("job", "begin")
    assert begins[1].at - begins[0].at > 5.9e6


def test_a_node_killed_in_a_rollback_makes_it_a_double_fault_said_once(fleet: Fleet) -> None:
    first = on_its_own(fleet)
    shop, tasks = fleet.shop, tasks_of(fleet)
    job = fleet.coordinator.submit("k", shop.fail.s("job"), rollback=tasks.undo_badly.s("job", "hang"))
    behind = fleet.coordinator.submit("k", shop.work.s("behind"))
    wait_until(lambda: fleet.stamps("job", "undone"), what=fleet.logs)
    fleet.coordinator.undrain(OTHER)
    first.end()
    assert fleet.coordinator.wait(behind.id, 60).state == "succeeded"
    found = fleet.coordinator.job(job.id)
    assert (found.state, found.rollback, found.attempt) == ("double_fault", "failed", 2)
    assert marks(fleet) == ["job begin", "job undone", "behind begin", "behind end"]
    wait_until(lambda: "double fault" in fleet.logs())
    assert fleet.logs().count("double fault") == 1


def test_while_a_job_waits_for_its_retry_its_lane_stands_still_and_no_worker_is_held(fleet: Fleet) -> None:
    submit, work = fleet.coordinator.submit, fleet.shop.work
    for name in ("busy", "busy too"):  # so one slot is left
        submit(name, fleet.shop.held.s(name))
    fleet.begun("busy", "busy too")
    first = submit("k", tasks_of(fleet).until.s("first", 2), max_attempts=2, retry_delay=6)
    behind = submit("k", work.s("behind"))
    wait_until(lambda: fleet.coordinator.job(first.id).state == "retrying", what=fleet.logs)
    others = [submit("other", work.s("other")) for _ in range(3)]
    for one in others:
        assert fleet.coordinator.wait(one.id, 60).state == "succeeded"
    assert fleet.coordinator.job(first.id).state == "retrying"
    assert fleet.coordinator.lane("k").jobs == (first.id, behind.id)
    assert fleet.coordinator.wait(behind.id, 60).state == "succeeded"
    assert marks(fleet, "first", "behind", "other") == [
        "first begin", *["other begin", "other end"] * 3, "first begin", "first end", "behind begin", "behind end",
    ]  # fmt: skip
    begins = fleet.stamps("first", "begin")
    assert 6 <= gaps(begins)[0] < 30
    for name in ("busy", "busy too"):
        fleet.go(name)


def test_a_rollback_that_fails_is_a_double_fault_said_once_and_the_next_job_runs_at_once(fleet: Fleet) -> None:
    shop, tasks, submit = fleet.shop, tasks_of(fleet), fleet.coordinator.submit
    causes = {"raise": "LookupError: nothing to undo", "hang": "TimedOut", "kill": "is gone"}
    for how in causes:
        undo = tasks.undo_badly.s(how, how).set(time_limit=2)
        submit(f"key/{how}", shop.fail.s(how), job_id=f"bad-{how}", rollback=undo)
        submit(f"key/{how}", shop.work.s(f"next-{how}"), job_id=f"next-{how}")
    for how, fault in causes.items():
        assert fleet.coordinator.wait(f"next-{how}", 60).state == "succeeded"
        job = fleet.coordinator.job(f"bad-{how}")
        assert (job.state, job.rollback, cause(job), job.attempt) == ("double_fault", "failed", "ValueError", 2)
        wait_until(lambda how=how: double_faults(fleet, f"bad-{how}"), what=fleet.logs)  # type: ignore[misc]
        assert len(lines := double_faults(fleet, f"bad-{how}")) == 1
        assert all(part in lines[0] for part in ("ERROR", f"key/{how}", f"ValueError: {how}", fault)), lines
        assert [stamp.what for stamp in fleet.stamps(how)] == ["begin", "undone"]
        (undone,), (begun,) = fleet.stamps(how, "undone"), fleet.stamps(f"next-{how}", "begin")
        assert (begun.at - undone.at) / 1e6 < 20
    counts = fleet.coordinator.counts()
    assert (counts["double_fault"], counts["faults"], counts["created"]) == (3, 3, 6)


def test_many_double_faults_and_then_a_good_job(fleet: Fleet) -> None:
    many = long(200, 1000)
    shop, tasks = fleet.shop, tasks_of(fleet)
    bad = ("k", shop.fail.s("bad"), {"rollback": tasks.undo_badly.s("bad", "raise")})
    fleet.coordinator.submit_many([bad] * many)
    good = fleet.coordinator.submit("k", shop.work.s("good"))
    assert fleet.coordinator.wait(good.id, 100).state == "succeeded"
    assert marks(fleet) == ["bad begin", "bad undone"] * many + ["good begin", "good end"]
    counts = fleet.coordinator.counts()
    assert (counts["double_fault"], counts["faults"], counts["succeeded"], counts["waiting"]) == (many, many, 1, 0)


def test_the_counters_include_a_job_when_waiting_for_it_ends_and_add_up_at_any_moment(fleet: Fleet) -> None:
    shop, tasks, coordinator = fleet.shop, tasks_of(fleet), fleet.coordinator
    kinds: list[tuple[str, Any, dict[str, Any]]] = [
        ("succeeded", shop.add.s(1, 2), {}),
        ("failed", shop.fail.s(), {}),
        ("rolled_back", shop.fail.s(), {"rollback": shop.add.s(1, 2)}),
        ("double_fault", shop.fail.s(), {"rollback": shop.fail.s(), "max_attempts": 2, "retry_delay": 0.01}),
        ("held", shop.fail.s(), {"on_failure": "hold"}),
        ("succeeded", tasks.spawns.s(), {}),
    ]
    counted: Counter[str] = Counter()
    with looking(coordinator.counts) as seen:
        for i in range(60):
            state, signature, options = kinds[i % 6]
            job = coordinator.submit(f"key/{i}", signature, **options)
            assert coordinator.wait(job.id, 60).state == state
            counted[state] += 1
            assert coordinator.counts()[state] == counted[state]
    for counts in seen:
        assert all(number >= 0 for number in counts.values()), counts
        assert counts["created"] == sum(counts[name] for name in (*LIVE, *TERMINAL))
    assert len(seen) > 20
    assert [one["created"] for one in seen] == sorted(one["created"] for one in seen)
    last = coordinator.counts()
    assert (last["created"], last["retries"], last["faults"], last["waiting"]) == (60, 10, 10, 0)
    held: Any = coordinator.store._client.smembers(coordinator.store.key("state", "held"))
    for job_id in held:
        assert coordinator.cancel(job_id.decode()) == "cancelled"


def test_the_counters_add_up_while_many_lanes_are_at_work(fleet: Fleet) -> None:
    shop, tasks, coordinator = fleet.shop, tasks_of(fleet), fleet.coordinator
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (shop.add.s(1, 2), {}),
        (tasks.until.s("x", 2), {"max_attempts": 2, "retry_delay": 0.05}),
        (shop.fail.s(), {"rollback": shop.add.s(1, 2)}),
        (tasks.ends_badly.s("x", "exit"), {"rollback": shop.fail.s()}),
        (tasks.spawns.s(), {}),
    ]
    with looking(coordinator.counts) as seen:
        jobs = coordinator.submit_many([(f"key/{i % 20}", *kinds[i % 7 % 5]) for i in range(280)])
        for job in jobs:
            coordinator.wait(job.id, 60)
    for counts in seen:
        assert all(number >= 0 for number in counts.values()), counts
        assert counts["created"] == sum(counts[name] for name in (*LIVE, *TERMINAL))
        assert counts["running"] + counts["rolling_back"] <= 20
    last = coordinator.counts()
    assert (last["created"], last["succeeded"], last["rolled_back"], last["double_fault"]) == (280, 200, 40, 40)
    assert not any(last[name] for name in LIVE)


def test_a_finished_job_vanishes_with_every_key_of_its_own(fleet: Fleet) -> None:
    shop, tasks, coordinator = fleet.shop, tasks_of(fleet), fleet.coordinator
    url, names = fleet.environ["COORDINATOR_URL"], lambda: mine(coordinator)
    client = Coordinator(url=url, prefix=fleet.prefix, keep_success=0.3, keep_failure=0.6)
    submit = client.submit
    submit(["a", "b"], shop.held.s("long"), job_id="long")
    submit("a", shop.work.s("more"), when_busy="defer", job_id="more")
    submit("a", shop.work.s("more"), when_busy="defer", job_id="alias")
    fleet.go("long")
    submit("c", shop.fail.s(), rollback=shop.fail.s(), max_attempts=2, retry_delay=0, job_id="fault")
    submit("d", tasks.spawns.s(), job_id="spawns")
    wait_until(lambda: coordinator.counts()["succeeded"] == 3 and coordinator.counts()["double_fault"], what=fleet.logs)
    wait_until(lambda: not names(), what=lambda: f"left: {names()}")
    client.store.close()


def mine(client: Coordinator) -> list[str]:
    """Keys of jobs and lanes, whatever they are."""
    names = [name.decode()[len(client.store.prefix) :] for name in client.store._client.scan_iter(count=1000)
             if name.decode().startswith(client.store.prefix)]  # fmt: skip
    return sorted(name for name in names if not name.startswith(LASTING))
