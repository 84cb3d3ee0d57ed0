"""What becomes of enqueued tasks: return values, errors, attempts, context, signals. Jobs run in the test's thread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from billiard.common import _should_have_exited
from django.db import connection
from django.utils import timezone

from coordinator import InvalidJob, JobFailed
from coordinator.testing.inline import InlineJobs
from tests.harness import djangos

djangos.set_up()

from coordinator.django import framework  # noqa: E402  # Django wants its settings before
from coordinator.django.framework import TaskResultStatus  # noqa: E402


@contextmanager
def heard() -> Iterator[list[tuple[str, str, list[str]]]]:
    """What the signals of Django's tasks tell: signal, status, errors."""
    told: list[tuple[str, str, list[str]]] = []

    def hear(name: str) -> Callable[..., None]:
        def note(sender: type, task_result: Any, **_: object) -> None:
            assert sender.__name__ == "TaskBackend"
            told.append((name, str(task_result.status), [error.exception_class_path for error in task_result.errors]))

        return note

    signals = {name: getattr(framework, f"task_{name}") for name in ("enqueued", "started", "finished")}
    ears = {name: hear(name) for name in signals}
    for name, signal in signals.items():
        signal.connect(ears[name])
    yield told
    for name, signal in signals.items():
        signal.disconnect(ears[name])


def refreshed(result: Any) -> Any:
    result.refresh()
    return result


def test_a_task_that_succeeded_has_value_times_and_worker(tasks: Any, jobs: InlineJobs) -> None:
    result = refreshed(tasks.meaning.enqueue())
    assert (result.status, result.return_value, result.is_finished) == (TaskResultStatus.SUCCESSFUL, 42, True)
    assert (result.errors, result.worker_ids, result.attempts) == ([], ["inline"], 1)
    assert result.started_at <= result.last_attempted_at <= result.finished_at
    assert abs(result.enqueued_at - result.started_at) < timedelta(minutes=1)


def test_an_async_task_runs_and_receivers_of_its_signals_may_ask_the_database(tasks: Any, jobs: InlineJobs) -> None:
    def ask(**_: object) -> None:
        with connection.cursor() as cursor:  # Django refuses that where a loop runs
            cursor.execute("SELECT 1")

    framework.task_started.connect(ask)
    framework.task_finished.connect(ask)
    with heard() as told:
        assert refreshed(tasks.noop_async.enqueue()).return_value == "async"
        failed = refreshed(tasks.fails_async.enqueue())
    framework.task_started.disconnect(ask)
    framework.task_finished.disconnect(ask)
    assert [one.exception_class_path for one in failed.errors] == ["tests.harness.apps.project.tasks.Odd"]
    ends = [(name, status) for name, status, _ in told if name == "finished"]
    assert ends == [("finished", "SUCCESSFUL"), ("finished", "FAILED")]


def test_async_tasks_run_in_a_loop_that_stays(tasks: Any, jobs: InlineJobs) -> None:
    for _ in range(2):
        tasks.fails_async.enqueue()
    assert tasks.ran[0] is tasks.ran[1]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fails", "tests.harness.apps.project.tasks.Odd"),
        ("fails_oddly", "builtins.ValueError"),
        ("leaves", "builtins.SystemExit"),
        ("odd_value", "builtins.TypeError"),
    ],
)
def test_a_task_that_failed_has_the_class_of_its_error_and_the_traceback(
    tasks: Any, jobs: InlineJobs, name: str, kind: str
) -> None:
    result = refreshed(getattr(tasks, name).enqueue())
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.FAILED, True, 1)
    [error] = result.errors
    assert error.exception_class_path == kind
    assert issubclass(error.exception_class, BaseException)
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert (name in error.traceback, kind.rpartition(".")[2] in error.traceback) == (name != "odd_value", True)
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_an_end_without_an_exception_has_a_class_too(tasks: Any, jobs: InlineJobs, app: Any) -> None:
    result = tasks.noop.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()
    app.coordinator.cancel(result.id, why="by a test")
    [error] = refreshed(result).errors
    assert (result.status, error.exception_class) == (TaskResultStatus.FAILED, JobFailed)
    assert "by a test" in error.traceback


def test_each_attempt_counts_and_the_context_tells_which_one_runs(tasks: Any, jobs: InlineJobs) -> None:
    result = refreshed(tasks.again.enqueue(7))
    assert (result.return_value, result.attempts, result.errors) == (2, 2, [])


def test_the_context_has_the_result_of_the_running_task(tasks: Any, jobs: InlineJobs) -> None:
    result = refreshed(tasks.told.using(queue_name="mail").enqueue(7))
    assert result.return_value == [result.id, 1, "RUNNING", ["inline"], "mail", 7]


def test_the_signals_of_django_tell_of_each_attempt(tasks: Any, jobs: InlineJobs) -> None:
    with heard() as told:
        tasks.again.enqueue(7)
    odd = ["tests.harness.apps.project.tasks.Odd"]
    assert told == [
        ("started", "RUNNING", []), ("finished", "FAILED", odd),
        ("started", "RUNNING", []), ("finished", "SUCCESSFUL", []), ("enqueued", "READY", []),
    ]  # fmt: skip


def test_an_attempt_that_goes_back_to_its_place_tells_no_end(tasks: Any, jobs: InlineJobs) -> None:
    with heard() as told:
        result = refreshed(tasks.conflicts.enqueue())
    assert [name for name, *_ in told] == ["started", "started", "finished", "enqueued"]
    assert (result.return_value, result.attempts) == (2, 2)


def test_a_held_task_has_failed_until_an_operator_retries_it(tasks: Any, jobs: InlineJobs, app: Any) -> None:
    result = refreshed(tasks.is_held.enqueue())
    assert (result.status, result.errors[0].exception_class) == (TaskResultStatus.FAILED, tasks.Odd)
    assert app.coordinator.job(result.id).state == "held"


def test_a_process_that_is_ended_tells_no_end_of_the_task(tasks: Any, jobs: InlineJobs) -> None:
    """Another process runs it again."""
    with heard() as told:
        try:
            with pytest.raises(SystemExit):
                tasks.is_ended.enqueue()
        finally:
            _should_have_exited[0] = False
    assert told == [("started", "RUNNING", [])]


def test_run_after_holds_a_task_back(tasks: Any, jobs: InlineJobs) -> None:
    result = tasks.meaning.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()
    jobs.advance(3500)
    assert refreshed(result).status == TaskResultStatus.READY
    jobs.advance(200)
    assert refreshed(result).status == TaskResultStatus.SUCCESSFUL


def test_a_greater_priority_goes_first(tasks: Any, jobs: InlineJobs, app: Any) -> None:
    with app.coordinator.lock("order/1"):
        for priority, tenant in ((0, "a"), (100, "b"), (-100, "c")):
            tasks.ship.using(priority=priority).enqueue(1, tenant=tenant)
    began = {job.kwargs["tenant"]: int(job.fence or 0) for job in jobs.submitted}
    assert sorted(began, key=lambda tenant: began[tenant]) == ["b", "a", "c"]


def test_key_and_quotas_come_from_the_arguments(tasks: Any, jobs: InlineJobs, app: Any) -> None:
    result = refreshed(tasks.ship.enqueue(7, tenant="globex"))
    assert result.return_value == ["order/7", 1]
    result = tasks.ship.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(8, tenant="globex")
    job = app.coordinator.job(result.id)
    assert (job.keys, {name: use.units for name, use in job.uses.items()}) == (("order/8",), {"api/globex": 2})
    assert job.task == "tests.harness.apps.project.tasks.ship"


def test_a_keyed_task_fails_for_good_after_its_attempts(tasks: Any, jobs: InlineJobs) -> None:
    assert refreshed(tasks.ship.enqueue(-7)).return_value == ["order/-7", 2]


def test_a_task_without_a_key_waits_for_nobody(tasks: Any, jobs: InlineJobs, app: Any) -> None:
    result = tasks.meaning.enqueue()
    assert app.coordinator.job(result.id).keys == (f"tests.harness.apps.project.tasks.meaning/{result.id}",)


def test_a_skipped_enqueue_gives_the_task_for_which_it_was_skipped(tasks: Any, app: Any) -> None:
    first = tasks.single.enqueue()
    assert tasks.single.enqueue().id == first.id
    with pytest.raises(Exception, match="single") as raised:
        tasks.strict.enqueue()
    assert type(raised.value).__name__ == "Locked"


def test_equal_tasks_that_wait_become_one_and_each_id_tells_of_it(tasks: Any, app: Any) -> None:
    with app.coordinator.lock("quiet/1"):
        first, second = tasks.quiet.enqueue(1), tasks.quiet.enqueue(1)
        assert app.coordinator.lane("quiet/1").waiting == 1
    assert second.id != first.id
    assert refreshed(second).status == TaskResultStatus.READY
    assert tasks.quiet.get_result(second.id).id == second.id


def test_a_queue_name_is_celerys_queue_and_default_is_its_usual_one(tasks: Any, app: Any) -> None:
    def queue(result: Any) -> str:
        store = app.coordinator.store
        return str(store.read("HGET", store.key("job", result.id), "class").decode().split("\n")[1])

    assert queue(tasks.noop.enqueue()) == "celery"
    assert queue(tasks.noop.using(queue_name="mail").enqueue()) == "mail"
    app.conf.task_routes = {tasks.noop.module_path: {"queue": "slow"}}
    with Coordinator_anew(app):
        assert queue(tasks.noop.enqueue()) == "slow"


@contextmanager
def Coordinator_anew(app: Any) -> Iterator[None]:
    """The coordinator reads a task's queue once."""
    vars(app.coordinator).pop("_requests", None)
    vars(app.amqp).pop("router", None)
    app.amqp._rtable = None
    yield


def test_an_eager_app_runs_the_task_in_the_caller(tasks: Any, app: Any) -> None:
    app.conf.task_always_eager = True
    with heard() as told:
        tasks.noop.enqueue(1)
        tasks.told.enqueue(7)
    assert tasks.ran == [((1,), {})]
    assert [name for name, *_ in told] == ["started", "finished", "enqueued"] * 2


def test_arguments_that_the_function_does_not_take_are_refused_at_the_enqueue(tasks: Any, app: Any) -> None:
    with pytest.raises(InvalidJob, match=r"meaning\(\) takes 0 positional arguments"):
        tasks.meaning.enqueue(1)
