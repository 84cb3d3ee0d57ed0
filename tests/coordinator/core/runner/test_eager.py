"""An app that calls its tasks eagerly has its jobs run at submit, without Redis."""

import sys
from collections.abc import Callable

import pytest
from celery import Celery, chain
from celery.app.task import Task

from coordinator import (
    CauseFailed,
    Conflict,
    Coordinator,
    InvalidJob,
    JobFailed,
    SettingsError,
    StoreUnavailable,
    UnknownJob,
    current_job,
)
from coordinator.local.redis import free_port

app = Celery("yard", broker=f"redis://127.0.0.1:{free_port()}/0", set_as_current=False)
app.conf.task_always_eager = True
coordinator = Coordinator(app)
diary: list[str] = []


@app.task(name="yard.add", shared=False)
def add(x: int, y: int) -> int:
    job = current_job()
    assert job
    assert job.key == "k"
    job.check()
    return x + y


@app.task(name="yard.fail", shared=False, bind=True)
def fail(self: Task, until: int = 99) -> int:
    assert self.request.is_eager
    job = current_job()
    assert job
    diary.append(f"attempt {job.attempt}")
    if job.attempt < until:
        raise ValueError("no")
    return job.attempt


@app.task(name="yard.clash", shared=False)
def clash() -> str:
    diary.append("clash")
    if len(diary) < 3:
        raise Conflict("somebody was first")
    return "written"


@app.task(name="yard.undo", shared=False)
def undo() -> None:
    job = current_job()
    assert job
    assert job.undoing
    assert job.undoing.error
    diary.append(f"undo {job.undoing.results} {job.undoing.error['type']}")


@app.task(name="yard.note", shared=False)
def note(*words: object) -> None:
    diary.append(" ".join(map(str, words)))


@app.task(name="yard.double", shared=False)
def double(number: int) -> int:
    return 2 * number


@app.task(name="yard.parts", shared=False)
def parts() -> object:
    return [double.delay(number) for number in (1, 2)]


@app.task(name="yard.again", shared=False, bind=True)
def again(self: Task, pair: list[int], **more: object) -> str:
    if not self.request.retries:
        self.retry(args=((1, 2),), kwargs={"size": {"b": 2, "a": 1.0}}, countdown=0)
    return f"{pair} {more}"


@app.task(name="yard.leave", shared=False)
def leave() -> None:
    sys.exit(3)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    diary.clear()
    for name in ("task_always_eager", "task_eager_propagates"):
        monkeypatch.setitem(app.conf.changes, name, name == "task_always_eager")


def test_a_job_runs_at_submit_and_needs_no_redis() -> None:
    made = coordinator.submit("k", add.s(1, 2))
    assert (made.outcome, made.get()) == ("started", 3)
    assert [one.get() for one in coordinator.submit_many([("k", add.s(1, 2)), ("k", add.s(3, 4))])] == [3, 7]
    with coordinator.lock("k") as lease:
        lease.check()


def test_a_chain_runs_whole_with_its_links() -> None:
    assert coordinator.submit("k", chain(add.s(1, 2), add.s(3)).set(link=note.s("sum"))).get() == 6
    assert diary == ["6 sum"]


def test_attempts_follow_each_other_and_conflicts_do_not_count() -> None:
    assert coordinator.submit("k", fail.s(3), max_attempts=3).get() == 3
    assert diary == ["attempt 1", "attempt 2", "attempt 3"]
    diary.clear()
    assert coordinator.submit("k", clash.s()).get() == "written"


def test_a_chain_that_fails_is_rolled_back() -> None:
    made = coordinator.submit("k", chain(add.s(1, 2), fail.si()), rollback=undo.s())
    with pytest.raises(ValueError, match="no"):
        made.get()
    assert diary == ["attempt 1", "undo (3,) ValueError"]


def test_a_job_has_the_results_of_the_tasks_whose_handles_it_returns() -> None:
    assert coordinator.submit("k", parts.s()).get() == [2, 4]


def test_the_error_of_a_job_is_raised_at_submit_where_eager_errors_propagate() -> None:
    with pytest.raises(ValueError, match="no"):
        coordinator.submit("k", fail.s()).get()
    app.conf.task_eager_propagates = True
    with pytest.raises(ValueError, match="no"):
        coordinator.submit("k", fail.s())


def test_a_task_that_ends_its_process_does_not_end_its_callers() -> None:
    made = coordinator.submit("k", leave.s())
    with pytest.raises(JobFailed, match="SystemExit: 3"):
        made.get()
    app.conf.task_eager_propagates = True
    with pytest.raises(JobFailed, match="SystemExit: 3"):
        coordinator.submit("k", leave.s())


@pytest.mark.parametrize(
    "ask",
    [
        lambda jobs: jobs.job("x"),
        lambda jobs: jobs.wait("x"),
        lambda jobs: jobs.why("x"),
        lambda jobs: jobs.lane("k"),
        lambda jobs: jobs.nodes(),
        lambda jobs: jobs.cancel("x"),
        lambda jobs: jobs.pause("k", why="w"),
        lambda jobs: jobs.grab("k", "1", "me"),
        lambda jobs: jobs.sorters(),
        lambda jobs: jobs.entries.all(),
    ],
)
def test_a_look_or_an_act_names_the_fixture(ask: Callable[[Coordinator], object]) -> None:
    with pytest.raises(SettingsError, match="coordinator_jobs"):
        ask(coordinator)


def test_what_is_no_longer_eager_goes_to_redis() -> None:
    app.conf.task_always_eager = False
    with pytest.raises(StoreUnavailable):
        coordinator.submit("k", add.s(1, 2))


def test_a_retry_with_the_same_arguments_is_one_whatever_python_holds_them_in() -> None:
    made = coordinator.submit("k", again.s((1, 2), size={"a": 1, "b": 2}))
    assert made.get() == "[1, 2] {'size': {'a': 1, 'b': 2}}"


def test_a_job_runs_after_others_which_have_ended_and_gets_their_results() -> None:
    first = coordinator.submit("k", add.s(1, 2))
    assert coordinator.submit("k", add.s(y=4), after={"x": first}).get() == 7
    jobs = [
        ("k", add.s(y=1), {"job_id": "third", "after": {"x": "second"}}),
        ("k", add.s(y=1), {"job_id": "second", "after": {"x": first}}),
    ]
    assert [one.get() for one in coordinator.submit_many(jobs)] == [5, 4]
    chained = chain(add.s(y=1), add.s(10))
    assert coordinator.submit("k", chained, after={"x": first}).get() == 14
    with pytest.raises(UnknownJob, match="never"):
        coordinator.submit("k", add.s(1, 2), after="never")
    with pytest.raises(InvalidJob, match=r"event e is not set: .*set the event before the submit"):
        coordinator.submit("k", add.s(1, 2), after=coordinator.event("e"))
    coordinator.event("e").set(5)
    assert coordinator.submit("k", add.s(y=2), after={"x": coordinator.event("e")}).get() == 7


def test_a_job_whose_cause_failed_fails_is_held_or_runs() -> None:
    bad = coordinator.submit("k", fail.s())
    fails = coordinator.submit("k", note.s("fails"), after=bad)
    held = coordinator.submit("k", note.s("held"), after=bad, on_failure_of="hold")
    runs = coordinator.submit("k", note.s("runs", "x"), after=bad, on_failure_of="run")
    assert (fails.state, held.state, runs.state) == ("failed", "held", "succeeded")
    assert diary == ["attempt 1", "runs x"]
    with pytest.raises(CauseFailed, match=f"it was to run after job {bad.id}, which did not succeed"):
        fails.get()
