"""The fixture for users' suites: an operator's hand, causes and counters are in place what they are on a fleet."""

from collections.abc import Callable

import pytest
from celery import Celery

from coordinator import Coordinator, LeaseLost, Locked, Submission, current_job
from coordinator.in_place.in_place import InPlace
from coordinator.local.redis import free_port

app = Celery("cellar", broker=f"redis://127.0.0.1:{free_port()}/0", set_as_current=False)
coordinator = Coordinator(app)
diary: list[str] = []


@app.task(name="cellar.note", shared=False)
def note(word: str) -> str:
    diary.append(word)
    return word


@app.task(name="cellar.until", shared=False)
def until(good: int) -> None:
    job = current_job()
    assert job
    if job.attempt < good:
        raise ValueError("not yet")


@app.task(name="cellar.release_own_lane", shared=False)
def release_own_lane() -> None:
    """What its own operator does to it; then it writes."""
    job = current_job()
    assert job
    assert coordinator.release(job.key, why="stuck", by="anna") == job.id
    diary.append("went on")
    job.check()
    diary.append("wrote")


@app.task(name="cellar.look", shared=False)
def look() -> None:
    job = current_job()
    assert job
    diary.extend(coordinator.why(job.id))
    diary.append(f"{coordinator.counts()['running']} runs")


@pytest.fixture(autouse=True)
def jobs(coordinator_jobs: Callable[[Coordinator], InPlace]) -> InPlace:
    diary.clear()
    return coordinator_jobs(coordinator)


def test_nothing_starts_in_a_paused_lane_until_it_is_resumed() -> None:
    assert coordinator.pause("a", why="repair", by="anna")
    assert not coordinator.pause("a", why="repair", by="anna")
    made = [coordinator.submit("a", note.s(word)) for word in ("first", "second")]
    coordinator.submit("b", note.s("other"))
    both = coordinator.submit(["c", "a"], note.s("both"))
    assert coordinator.submit("a", note.s("skipped"), when_busy="skip").outcome == "skipped"
    assert ([one.outcome for one in made], diary) == (["queued", "queued"], ["other"])
    lane = coordinator.lane("a")
    assert (lane.paused, lane.length, [one.key for one in coordinator.lanes()]) == (True, 3, ["a", "c"])
    with pytest.raises(Locked), coordinator.lock("a"):
        pass
    assert coordinator.resume("a", why="repaired", by="anna")
    assert not coordinator.resume("a")
    assert diary == ["other", "first", "second", "both"]
    acts = coordinator.job(made[0].job_id).acts
    assert {name: act["why"] for name, act in acts.items()} == {"paused": "repair", "resumed": "repaired"}
    assert coordinator.job(both.job_id).state == "succeeded"
    assert not coordinator.lanes()


def test_a_job_whose_lane_is_released_is_fenced_off_and_the_next_goes_on_at_once() -> None:
    with coordinator.lock("a"):
        released = coordinator.submit("a", release_own_lane.s(), rollback=note.s("undone"))
        coordinator.submit("a", note.s("next"))
    assert diary == ["next", "went on"]
    job = coordinator.job(released.job_id)
    assert job.error
    assert (job.state, job.error["type"], job.error["by"]) == ("cancelled", "Released", "anna")


def test_a_held_job_and_a_lock_can_be_released_and_a_waiter_cannot() -> None:
    held = coordinator.submit("a", until.s(9), on_failure="hold").job_id
    coordinator.submit("a", note.s("next"))
    assert coordinator.release("a", why="give up", holder="another") is None
    assert coordinator.release("a", why="give up") == held
    assert coordinator.release("a", why="give up") is None
    assert diary == ["next"]
    with pytest.raises(LeaseLost), coordinator.lock("b"):
        assert coordinator.release("b", why="stuck") is not None
    with coordinator.lock("b"):
        pass


def test_what_ended_badly_is_retried_with_its_attempts_anew() -> None:
    failed = coordinator.submit("a", until.s(3), max_attempts=2).job_id
    assert coordinator.job(failed).state == "failed"
    assert coordinator.retry(failed, why="repaired", by="anna") == "succeeded"
    job = coordinator.job(failed)
    assert (job.attempt, job.acts["retried"]["by"]) == (3, "anna")
    assert coordinator.retry(failed, why="again") == "succeeded"
    assert coordinator.job(failed).attempt == 3


def test_why_leads_to_the_root_and_says_who_paused_what() -> None:
    with coordinator.lock("a"):
        waiting = coordinator.submit("a", look.s()).job_id
        said = coordinator.why(waiting)
    assert said[0].startswith(f"job {waiting} waits behind job lock-")
    assert "lock in plain code" in said[1]
    assert diary[0].startswith(f"job {waiting} runs on node in-place for 0 s, attempt 1")
    coordinator.pause("a", why="repair", by="anna")
    (paused,) = coordinator.why(coordinator.submit("a", note.s("paused")).job_id)
    assert paused.startswith("lane 'a' is paused by anna since")
    assert coordinator.why(waiting) == [f"job {waiting} is over, succeeded"]
    held = coordinator.submit("b", until.s(9), on_failure="hold").job_id
    assert "held for an operator" in coordinator.why(held)[0]


def test_counters_add_up() -> None:
    coordinator.submit("a", look.s())
    coordinator.submit("a", until.s(3), max_attempts=3)
    coordinator.submit("a", until.s(9), rollback=note.s("undone"))
    coordinator.submit("a", until.s(9), rollback=until.s(9))
    coordinator.submit("b", until.s(9), on_failure="hold")
    with coordinator.lock("a"):
        coordinator.submit("a", note.s("later"))
        coordinator.submit("a", note.s("later"), when_busy="defer")
        counts = coordinator.counts()
    assert diary[1] == "1 runs"
    live = {"waiting": 2, "held": 1, "succeeded": 2, "rolled_back": 1, "double_fault": 1, "created": 7}
    assert {name: number for name, number in counts.items() if number} == {**live, "retries": 2, "faults": 1}
    assert coordinator.counts()["succeeded"] == 4


@app.task(name="cellar.wait_for", shared=False)
def wait_for(key: str) -> Submission:
    """Its sub-job is in another lane."""
    return coordinator.submit(key, note.s("sub-job"))


def test_the_sub_jobs_of_a_parked_job_that_is_cancelled_end_with_it() -> None:
    with coordinator.lock("b"):
        parent = coordinator.submit("a", wait_for.s("b"))
        (sub_job,) = coordinator.lane("b").jobs[1:]
        assert coordinator.job(parent.job_id).state == "parked"
        coordinator.cancel(parent.job_id, why="enough")
        assert coordinator.job(sub_job).state == "cancelled"
    assert not diary
