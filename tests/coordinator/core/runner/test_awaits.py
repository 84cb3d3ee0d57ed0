"""A task returns `wait_for`: its job goes on when the event is set, or when the time is over."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, chain, group
from celery.app.task import Task

from coordinator import Coordinator, EventTimeout, InvalidJob, NoRetry, current_job, wait_for
from coordinator.local.redis import free_port
from coordinator.testing.inline import InlineJobs

Begin = Callable[[Coordinator], InlineJobs]

app = Celery("desk", broker=f"redis://127.0.0.1:{free_port()}/0", backend="redis://127.0.0.1:1/0", set_as_current=False)
coordinator = Coordinator(app)
diary: list[str] = []


@app.task(name="desk.ask", shared=False)
def ask(then: Any, otherwise: Any = None, name: str = "approved/42", timeout: Any = 3600) -> object:
    diary.append("ask")
    return wait_for(name, timeout=timeout, then=then, otherwise=otherwise)


@app.task(name="desk.note", shared=False)
def note(*words: object) -> str:
    diary.append(" ".join(map(str, words)))
    return f"noted {words[0]}" if words else "noted"


@app.task(name="desk.once", shared=False)
def once(value: object) -> str:
    diary.append(f"once {value}")
    if diary.count(f"once {value}") == 1:
        raise ValueError("the first time")
    return "twice"


@app.task(name="desk.again", shared=False, bind=True)
def again(self: Task, value: object, other: str) -> object:
    return self.replace(chain(note.s(value, other), note.s("behind")))


@app.task(name="desk.keyed", shared=False, coordinate={"key": "order/{number}"})
def keyed(value: object, number: int) -> str:
    return f"{value} {number}"


@app.task(name="desk.valued", shared=False, coordinate={"key": "order/{value}"})
def valued(value: object) -> str:
    return f"{value}"


@app.task(name="desk.long", shared=False)
def long() -> object:
    return wait_for("approved/42", timeout=1, then=note.s("x" * 2**20))


@app.task(name="desk.undo", shared=False)
def undo() -> object:
    job = current_job()
    assert job
    assert job.undoing
    diary.append(f"undo {job.undoing.error and job.undoing.error['type']}")
    return wait_for("never", timeout=1, then=note.s())


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    diary.clear()
    yield
    app.conf.task_always_eager = False


@pytest.fixture(params=["inline", "eager"])
def eager(request: pytest.FixtureRequest, coordinator_jobs: Begin) -> bool:
    if request.param == "inline":
        coordinator_jobs(coordinator)
    else:
        vars(coordinator).pop("_eager", None)
        app.conf.task_always_eager = True
    return bool(request.param == "eager")


@pytest.fixture
def jobs(coordinator_jobs: Begin) -> InlineJobs:
    return coordinator_jobs(coordinator)


@pytest.mark.usefixtures("eager")
def test_the_step_that_goes_on_gets_the_value_in_front_of_its_arguments() -> None:
    coordinator.event("approved/42").set({"by": "me"})
    assert coordinator.submit("order/42", ask.s(note.s("b", "c"))).get() == "noted {'by': 'me'}"
    assert diary == ["ask", "{'by': 'me'} b c"]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("then", "written"),
    [
        (note.si("own"), ["own", "noted own rest"]),
        (chain(note.s("first"), note.s("second")), ["7 first", "noted 7 second", "noted noted 7 rest"]),
        (chain(note.si("first"), note.s("second")), ["first", "noted first second", "noted noted first rest"]),
    ],
)
def test_what_goes_on_is_a_call_or_a_chain_and_the_rest_of_the_chain_follows(then: Any, written: list[str]) -> None:
    coordinator.event("approved/42").set(7)
    coordinator.submit("order/42", chain(note.s("before"), ask.si(then), note.s("rest"))).get()
    assert diary == ["before", "ask", *written]


def test_a_job_that_waits_keeps_its_lane_and_no_worker(jobs: InlineJobs) -> None:
    waiting = coordinator.submit("order/42", ask.s(note.s()))
    behind = coordinator.submit("order/42", note.s("behind"))
    job = coordinator.job(waiting.id)
    assert (job.state, coordinator.job(behind.id).state, coordinator.event("approved/42").waiting) == (
        "parked",
        "waiting",
        1,
    )
    assert coordinator.event("approved/42").set(1, by="ann", why="seen")
    assert (waiting.get(), behind.get()) == ("noted 1", "noted behind")
    assert coordinator.job(waiting.id).attempt == 1
    event = coordinator.event("approved/42")
    assert (event.is_set, event.value, event.by, event.why, event.waiting) == (True, 1, "ann", "seen", 0)


def test_without_the_event_the_job_fails_at_the_end_of_the_time_and_is_not_tried_again(jobs: InlineJobs) -> None:
    submission = coordinator.submit("order/42", ask.s(note.s()), max_attempts=3, rollback=undo.s())
    jobs.advance(3601)
    assert coordinator.job(submission.id).state == "double_fault"
    with pytest.raises(EventTimeout, match="event approved/42 was not set in time"):
        submission.get()
    assert diary == ["ask", "undo EventTimeout"], "a rollback waits for no event"
    assert "a rollback waits for no event" in str(coordinator.job(submission.id).fault)


def test_a_retry_after_the_end_of_the_time_runs_the_body_again(jobs: InlineJobs) -> None:
    submission = coordinator.submit("order/42", chain(note.s("before"), ask.si(note.s("then"))))
    jobs.advance(3601)
    assert coordinator.job(submission.id).state == "failed"
    coordinator.retry(submission.id)
    assert coordinator.job(submission.id).state == "parked"
    coordinator.event("approved/42").set(1)
    assert coordinator.job(submission.id).state == "succeeded"
    assert diary == ["before", "ask", "ask", "1 then"]


def test_something_else_goes_on_at_the_end_of_the_time(jobs: InlineJobs) -> None:
    calls = ask.s(note.s("then"), chain(note.s("late"), note.s("later")))
    submission = coordinator.submit("order/42", chain(calls, note.s("rest")))
    jobs.advance(3601)
    coordinator.event("approved/42").set(1)
    assert submission.get() == "noted noted noted late"
    assert diary == ["ask", "late", "noted late later", "noted noted late rest"]


def test_the_step_behind_a_wait_gets_the_value_again_when_it_is_tried_again(jobs: InlineJobs) -> None:
    submission = coordinator.submit("order/42", ask.s(once.s()), max_attempts=2)
    coordinator.event("approved/42").set("yes")
    assert submission.get() == "twice"
    assert diary == ["ask", "once yes", "once yes"]
    assert coordinator.job(submission.id).attempt == 2


def test_a_job_waits_for_one_event_after_another_and_may_be_replaced_behind_them(jobs: InlineJobs) -> None:
    two = ask.si(again.s("x"), None, "second")
    submission = coordinator.submit("order/42", chain(ask.s(two), note.s("rest")))
    coordinator.event("approved/42").set(1)
    assert coordinator.job(submission.id).state == "parked"
    coordinator.event("second").set(2)
    assert coordinator.job(submission.id).state == "succeeded"
    assert diary == ["ask", "ask", "2 x", "noted 2 behind", "noted noted 2 rest"]


def test_a_step_that_waits_again_keeps_the_steps_that_follow_it(jobs: InlineJobs) -> None:
    inner = chain(ask.si(note.s("inner"), note.s("late"), "second"), note.s("outer"))
    for number in range(2):
        first = coordinator.submit(f"order/{number}", ask.s(inner, None, f"first/{number}"))
        coordinator.event(f"first/{number}").set(1)
        assert coordinator.job(first.id).state == "parked"
        if number == 0:
            jobs.advance(3601)
            assert diary[-1] == "noted late outer"
        else:
            coordinator.event("second").set(2)
            assert diary[-1] == "noted 2 outer"
        assert coordinator.job(first.id).state == "succeeded"


def test_a_group_may_go_on_with_the_value(jobs: InlineJobs) -> None:
    submission = coordinator.submit("order/42", ask.s(group(note.s("left"), note.s("right"))))
    coordinator.event("approved/42").set(5)
    assert submission.get() == ["noted 5", "noted 5"]
    assert sorted(diary[1:]) == ["5 left", "5 right"]


def test_a_job_that_waits_can_be_cancelled(jobs: InlineJobs) -> None:
    submission = coordinator.submit("order/42", ask.s(note.s()))
    coordinator.cancel(submission.id)
    assert coordinator.event("approved/42").set(1)
    assert (coordinator.job(submission.id).state, diary) == ("cancelled", ["ask"])


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"timeout": 0}, "timeout is seconds above 0"),
        ({"timeout": None}, "timeout is seconds above 0"),
        ({"timeout": 90_000}, r"timeout, 90000 s, is above the max_lifetime of the job, 86400 s"),
        ({"then": 5}, r"then is a signature, such as finish.s\(42\), not 5"),
        ({"otherwise": "no"}, "otherwise is a signature"),
        ({"name": ""}, "an event's name is text"),
        ({"name": "x" * 513}, "an event's name is text"),
        ({"then": note.s().set(eta="2030-01-01")}, "then: .*cannot honour eta"),
        ({"then": keyed.s(7)}, "then: desk.keyed is for 'order/7', and the job holds 'order/42'"),
        ({"then": valued.s()}, "then: desk.valued is for a lane that depends on a result"),
        ({"then": group(keyed.s(42))}, "desk.keyed would wait for the job in its own lane 'order/42'"),
    ],
)
def test_a_wait_that_cannot_be_is_refused_by_name(given: dict[str, Any], text: str) -> None:
    coordinator.event("approved/42").set(1)
    with pytest.raises((InvalidJob, NoRetry), match=text):
        coordinator.submit("order/42", ask.s(**{"then": note.s(), **given})).get()
    with pytest.raises(NoRetry, match=r"its next steps have \d+ bytes; at most 1048576"):
        coordinator.submit("order/42", long.s()).get()


def test_a_step_for_the_jobs_own_lane_may_go_on(jobs: InlineJobs) -> None:
    submission = coordinator.submit("order/42", ask.s(keyed.s(42)))
    coordinator.event("approved/42").set("yes")
    assert submission.get() == "yes 42"


def test_a_wait_outside_a_job_is_refused() -> None:
    with pytest.raises(InvalidJob, match="wait_for is for the body of a job"):
        ask(note.s())
    with pytest.raises(InvalidJob, match="wait_for is for the body of a job"):
        ask.apply((note.s(),), throw=True)


def test_an_eager_job_goes_on_as_at_the_end_of_the_time_where_the_event_is_not_set() -> None:
    vars(coordinator).pop("_eager", None)
    app.conf.task_always_eager = True
    with pytest.raises(EventTimeout, match="set the event before the submit"):
        coordinator.submit("order/42", ask.s(note.s())).get()
    assert coordinator.submit("order/42", ask.s(note.s(), note.s("late"))).get() == "noted late"
    assert coordinator.event("approved/42").set([1])
    assert not coordinator.event("approved/42").set([1])
    assert coordinator.event("approved/42").value == [1]
