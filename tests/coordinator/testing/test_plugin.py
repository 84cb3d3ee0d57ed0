"""The fixture for users' suites, used as they use it."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Task

from coordinator import (
    Coordinator,
    Locked,
    SettingsError,
    StoreUnavailable,
    WaitTimeout,
    WouldDeadlock,
    current_job,
)
from coordinator.local.redis import free_port
from coordinator.testing.inline import InlineJobs
from tests.harness.redis import RedisServer

Begin = Callable[[Coordinator], InlineJobs]

app = Celery(
    "depot", broker=f"redis://127.0.0.1:{free_port()}/0", backend="redis://127.0.0.1:1/0", set_as_current=False
)
coordinator = Coordinator(app)


class Diary(list[str]):
    """What the tasks of a test did."""


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def jobs(coordinator_jobs: Begin) -> InlineJobs:
    return coordinator_jobs(coordinator)


@pytest.fixture
def note(diary: Diary) -> Task:
    def note(*words: str) -> None:
        diary.append(" ".join(words))

    return _task(note)


@pytest.fixture
def nest(diary: Diary) -> Task:
    """A job that submits others while it is at work."""

    def nest(key: str, when_busy: str, *signatures: dict[str, Any]) -> list[str]:
        found = [coordinator.submit(key, signature, when_busy=when_busy).outcome for signature in signatures]
        diary.append("nest")
        return found

    return _task(nest)


def _task(function: Callable[..., Any], **options: Any) -> Task:
    """Anew for each test."""
    app.tasks.pop(f"depot.{function.__name__}", None)
    task: Task = app.task(function, name=f"depot.{function.__name__}", shared=False, lazy=False, **options)
    return task


def test_a_job_runs_at_submit_and_is_remembered(jobs: InlineJobs, note: Task, diary: Diary) -> None:
    submission = coordinator.submit("order/1", note.s("shipped", "1"))
    assert (submission.outcome, diary) == ("started", ["shipped 1"])
    (job,) = jobs.submitted
    assert (job.id, job.key, job.task, job.args) == (submission.id, "order/1", "depot.note", ("shipped", "1"))
    assert coordinator.wait(job.id).state == "succeeded"
    assert coordinator.lanes() == []


def test_without_the_fixture_redis_is_asked(note: Task) -> None:
    with pytest.raises(StoreUnavailable):
        coordinator.submit("order/1", note.s("shipped"))


def test_inside_a_job_there_is_a_current_job_and_its_fence_grows(jobs: InlineJobs) -> None:
    def look() -> list[Any]:
        job = current_job()
        assert job
        job.check()
        job.progress(3, 3)
        with coordinator.lock(job.key) as lease:
            assert lease.fence == job.fence
        return [job.id, job.key, job.attempt, job.fence]

    task = _task(look)
    first, second = (coordinator.submit("order/1", task.s(), job_id=name) for name in ("a", "b"))
    results = [coordinator.job(submission.id).result for submission in (first, second)]
    assert [result[:3] for result in results] == [["a", "order/1", 1], ["b", "order/1", 1]]
    assert results[0][3] < results[1][3]
    assert coordinator.job("a").progress == (3, 3)
    assert current_job() is None


def test_a_job_for_a_key_at_work_runs_after_it_and_one_for_another_key_at_once(
    jobs: InlineJobs, note: Task, nest: Task, diary: Diary
) -> None:
    coordinator.submit("order/1", nest.s("order/1", "queue", note.s("same", "key"), note.s("again")))
    coordinator.submit("order/1", nest.s("stock/7", "queue", note.s("other", "key")))
    assert diary == ["nest", "same key", "again", "other key", "nest"]


def test_an_error_is_the_jobs_and_attempts_follow_each_other(jobs: InlineJobs) -> None:
    def fail(until: int) -> int:
        job = current_job()
        assert job
        if job.attempt < until:
            raise ValueError(f"not the {until}th")
        return job.attempt

    task = _task(fail)
    assert coordinator.job(coordinator.submit("a", task.s(3), max_attempts=3).id).result == 3
    failed = coordinator.job(coordinator.submit("a", task.s(3), max_attempts=2).id)
    assert (failed.state, failed.attempt) == ("failed", 2)
    assert failed.error
    assert failed.error["message"] == "not the 3th"


def test_time_passes_where_the_test_says_so(jobs: InlineJobs, note: Task, diary: Diary) -> None:
    def again(self: Task) -> int:
        if self.request.retries < 2:
            raise self.retry(countdown=60)
        return int(self.request.retries)

    task = _task(again, bind=True)
    job_id = coordinator.submit("a", task.s(), max_attempts=3).id
    coordinator.submit("b", note.s("late").set(countdown=90))
    with pytest.raises(WaitTimeout):
        coordinator.wait(job_id, 30)
    jobs.advance(58)
    assert (coordinator.job(job_id).state, coordinator.job(job_id).attempt) == ("retrying", 1)
    jobs.advance(2)
    assert (coordinator.job(job_id).attempt, diary) == (2, [])
    jobs.advance(61)
    assert (coordinator.job(job_id).result, diary) == (2, ["late"])
    assert coordinator.submit("a", task.s(), max_attempts=3).get() == 2, "a wait lets time pass"


def test_a_sorter_flushes_once_its_time_has_passed(jobs: InlineJobs, note: Task, diary: Diary) -> None:
    sorter = coordinator.sorter("files", idle_timeout=10)
    for name in ("b", "a"):
        sorter.add(name, "lane", note.s(name))
    assert diary == []
    jobs.advance(11)
    assert diary == ["a", "b"]


def test_links_are_called_in_place(jobs: InlineJobs, note: Task, diary: Diary) -> None:
    def double(number: int) -> str:
        return str(2 * number)

    def tell(uuid: str) -> None:
        diary.append(f"failed {uuid}")

    task, told = _task(double), _task(tell)
    coordinator.submit("a", task.s(21).set(link=note.s("linked")))
    coordinator.submit("a", task.s({}).set(link_error=told.s()), job_id="wrong")
    assert diary == ["42 linked", "failed wrong"]
    assert app.conf.task_always_eager is False


def test_a_lock_holds_up_jobs_of_its_key_and_nobody_gets_it_twice(jobs: InlineJobs, note: Task, diary: Diary) -> None:
    with coordinator.lock("ledger") as lease:
        lease.check()
        waiting = coordinator.submit("ledger", note.s("written"))
        assert (waiting.outcome, diary) == ("queued", [])
        with pytest.raises(WaitTimeout):
            coordinator.wait(waiting.id, 60)
        with pytest.raises(Locked), coordinator.lock("ledger"):
            pass
        with pytest.raises(WouldDeadlock, match="in lane 'ledger'"), coordinator.lock("ledger", blocking_timeout=60):
            pass
    assert diary == ["written"]
    with coordinator.lock("ledger") as later:
        assert later.fence > lease.fence


def test_a_waiting_job_can_be_cancelled(jobs: InlineJobs, note: Task, diary: Diary) -> None:
    with coordinator.lock("ledger"):
        job_id = coordinator.submit("ledger", note.s("never")).id
        assert coordinator.cancel(job_id, why="no need") == "cancelled"
    assert diary == []
    error = coordinator.job(job_id).error
    assert error
    assert (error["type"], error["message"]) == ("Cancelled", "no need")


def test_what_fails_a_test_inside_a_job_fails_the_test(jobs: InlineJobs) -> None:
    def strict() -> None:
        pytest.fail("seen")

    with pytest.raises(pytest.fail.Exception, match="seen"):
        coordinator.submit("a", _task(strict).s())
    assert coordinator.lane("a").length == 0


def test_an_interrupt_inside_a_job_ends_the_test_run(jobs: InlineJobs) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        app.coordinator.submit("a", app.task(stop, name="cellar.stop", shared=False).s())


def test_a_plain_client_has_no_tasks_to_run(coordinator_jobs: Begin) -> None:
    with pytest.raises(SettingsError):
        coordinator_jobs(Coordinator(url="redis://127.0.0.1:1/0"))


SUITE = """
from celery import Celery
from coordinator import Coordinator

app = Celery("mine")
coordinator = Coordinator(app)
seen = []


@app.task
def ship(number):
    seen.append(number)


def test_mine(coordinator_jobs):
    jobs = coordinator_jobs(coordinator)
    coordinator.submit("order/42", ship.s(42))
    assert [job.key for job in jobs.submitted] == ["order/42"]
    assert seen == [42]
"""


def test_a_users_suite_finds_the_fixture_without_naming_it(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(SUITE)
    argv = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


CAREFUL = """
import os

import pytest
from celery import Celery

from coordinator import Coordinator

app = Celery("mine", broker="memory://")
coordinator = Coordinator(app, url=os.environ["REAL"], prefix=os.environ["PREFIX"])

@app.task(coordinate={"key": "{number}"})
def double(number):
    return 2 * number

def order(number):
    try:
        return coordinator.submit(None, double.si(number))
    except Exception:
        return None

@pytest.mark.parametrize("call", [order, double.delay, lambda _: coordinator.counts()])
def test_forgotten(call):
    call(21)

def test_in_a_loop():
    import asyncio
    from coordinator import aio
    asyncio.run(aio.Coordinator(coordinator).submit("k", double.si(21)))

def test_with_the_fixture(coordinator_jobs):
    jobs = coordinator_jobs(coordinator)
    assert order(21).get() == 42
    double.delay(21)
    assert [job.state for job in jobs.submitted] == 2 * ["succeeded"]

class TestReal:
    @pytest.fixture
    def coordinator_no_redis(self):
        pass

    def test_it(self):
        assert coordinator.counts()["created"] == 0
"""


def test_a_suite_has_each_test_fail_that_forgets_the_fixture(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    (tmp_path / "test_mine.py").write_text(CAREFUL)
    recipe = '[tool.pytest.ini_options]\nusefixtures = ["coordinator_no_redis"]\n'
    (tmp_path / "pyproject.toml").write_text(recipe)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    env = {**os.environ, "REAL": redis_server.url(0), "PREFIX": prefix}
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, env=env)
    assert "4 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    failure = rf"\nE +Failed: the test calls the coordinator's Redis at {redis_server.url(0)}: use the fixture coordin"
    assert len(re.findall(failure, done.stdout)) == 4


UNRELATED = """
import sys

def test_mine():
    ours = {name for name in sys.modules if name.startswith("coordinator")}
    assert ours <= {"coordinator", "coordinator.later", "coordinator.testing", "coordinator.testing.plugin"}
    assert not {"celery", "kombu", "redis", "pydantic"} & sys.modules.keys()
"""


def test_a_suite_that_does_not_use_the_fixture_loads_nothing_else_of_ours(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(UNRELATED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "."]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout


def test_jobs_run_after_others_and_events_let_all_go_on_within_the_call(jobs: InlineJobs, diary: Diary) -> None:
    def pair(left: int, right: int) -> list[int]:
        return [left, right]

    task = _task(pair)
    first = coordinator.submit("a", task.s(1, 2), job_id="first")
    assert coordinator.submit("b", task.s(3), after={"right": first}).get() == [3, [1, 2]]
    event = coordinator.event("approved")
    waiting = coordinator.submit_many(
        (f"c/{number}", task.s(left=number), {"after": {"right": event}}) for number in range(250)
    )
    assert {one.state for one in waiting} == {"blocked"}
    with pytest.raises(WaitTimeout):
        waiting[0].get(timeout=5)
    event.set("yes")
    assert [one.get() for one in waiting] == [[number, "yes"] for number in range(250)]


def test_a_graph_in_any_order_and_failures_behind_a_failed_job_end_within_the_call(jobs: InlineJobs) -> None:
    def fail() -> None:
        raise ValueError("no")

    def go() -> None: ...

    bad, good = _task(fail), _task(go)
    chain = [
        (f"k/{number % 7}", good.s(), {"job_id": f"{number}", "after": [f"{number + 1}"]}) for number in range(300)
    ]
    found = coordinator.submit_many([*chain, ("k", bad.s(), {"job_id": "300"})])
    assert {one.state for one in found} == {"failed"}
    assert "job 1, which failed" in (coordinator.job("0").error or {})["message"]
