"""The fixture for users' suites: grabs by jobs and by plain code, with no Redis anywhere."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from coordinator import Coordinator, InvalidJob, WaitTimeout
from coordinator.in_place import InPlace
from coordinator.local.redis import free_port

app = Celery("press", broker=f"redis://127.0.0.1:{free_port()}/0", set_as_current=False)
coordinator = Coordinator(app)
diary: list[str] = []
# In a process that has submitted nothing yet.
FIRST_GRAB = """
from celery import Celery
from coordinator import Coordinator

app = Celery("eager", broker="redis://127.0.0.1:{port}/0")
app.conf.task_always_eager = True
host = Coordinator(app)
print(*[host.grab("report", 1, name).won for name in ("first", "second")])
"""


@app.task(name="press.report", shared=False)
def report(day: str) -> str:
    diary.append(day)
    if day == "friday":
        raise ValueError("unlucky")
    return f"of {day}"


@app.task(name="press.nightly", shared=False)
@coordinator.grabbed(key="nightly", instance=str)
def nightly(day: str) -> str:
    diary.append(day)
    return f"of {day}"


@pytest.fixture
def jobs(coordinator_jobs: Callable[[Coordinator], InPlace]) -> InPlace:
    diary.clear()
    return coordinator_jobs(coordinator)


def test_a_submit_with_an_instance_is_done_once_and_the_next_learns_who_did_it(jobs: InPlace) -> None:
    first = coordinator.submit("report", report.s("monday"), instance="monday")
    again = coordinator.submit("report", report.s("monday"), instance="monday")
    assert (first.won, again.won, again.outcome, again.job_id) == (True, False, "lost", first.job_id)
    assert (again.state, again.result) == ("complete", "of monday")
    assert (diary, len(jobs.submitted)) == (["monday"], 1)
    failed = coordinator.submit("report", report.s("friday"), instance="friday")
    assert coordinator.job(failed.job_id).state == "failed"
    assert coordinator.submit("report", report.s("friday"), instance="friday").won
    assert {one.instance: (one.state, one.attempt) for one in coordinator.grabs("report")} == {
        "monday": ("complete", 1), "friday": ("failed", 2),
    }  # fmt: skip


def test_plain_code_grabs_without_redis_and_a_wait_says_at_once_that_nobody_could_end_it(jobs: InPlace) -> None:
    with coordinator.grab("report", 1, "one") as grab:
        lost = coordinator.grab("report", 1, "two", on_losing="wait")
        assert (grab.won, lost.won, lost.state, lost.winner) == (True, False, "waiting", grab.winner)
        with pytest.raises(WaitTimeout):
            lost.wait()
        assert coordinator.submit("report", report.s("x"), instance=1).outcome == "lost"
        grab.check()
        grab.complete("done")
    assert (lost.wait(), lost.result) == ("complete", "done")
    assert coordinator.lanes() == []
    with pytest.raises(InvalidJob):
        coordinator.grab("", 1, "one")


def test_a_job_whose_task_grabs_gives_json_and_a_second_one_does_no_work(jobs: InPlace) -> None:
    told: list[Any] = [coordinator.job(coordinator.submit("n", nightly.s("monday")).job_id).result for _ in range(2)]
    assert [(one["won"], one["result"]) for one in told] == [(True, "of monday"), (False, "of monday")]
    assert diary == ["monday"]


def test_each_test_begins_with_nothing_grabbed(jobs: InPlace) -> None:
    assert coordinator.grabs() == []


def test_the_first_grab_of_an_eager_app_asks_no_redis() -> None:
    code = FIRST_GRAB.format(port=free_port())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True False\n", done.stderr
