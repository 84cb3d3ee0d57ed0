"""What Django's own suite expects of every backend of its tasks (its tests/tasks/test_tasks.py), of ours.

Left out, since they are about the backends that Django brings along: what is in `results` of the dummy backend and its
`clear` (test_dummy_backend.py), that the immediate backend runs at once (test_immediate_backend.py), and what a backend
of one's own may lack (test_custom_backend.py: async tasks, priorities, `enqueue`). What those say of a task's outcome,
test_outcomes.py asks of ours.
"""

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import _state
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.utils import timezone
from django.utils.module_loading import import_string

from coordinator import InvalidJob
from coordinator.django import coordinate
from tests.harness import djangos
from tests.harness.apps.project import settings as project

djangos.set_up()

from coordinator.django.backend import TaskBackend  # noqa: E402  # Django wants its settings before
from coordinator.django.declared import DeclaredTask  # noqa: E402
from coordinator.django.framework import InvalidTask, TaskResultDoesNotExist, TaskResultStatus  # noqa: E402

FRAMEWORK = import_string(f"{InvalidTask.__module__.rpartition('.')[0]}.task_backends")
NAMES = import_string(f"{InvalidTask.__module__.rpartition('.')[0]}.exceptions")


def exception(name: str) -> Any:
    """Of Django's; the backport ends their names otherwise."""
    return getattr(NAMES, name, None) or getattr(NAMES, f"{name}Error")


def test_the_backend_of_the_settings_is_ours(tasks: Any) -> None:
    assert isinstance(FRAMEWORK["default"], TaskBackend)
    assert isinstance(tasks.noop.get_backend(), TaskBackend)
    assert FRAMEWORK["default"].alias == "default"
    assert tasks.noop.using(backend="any").get_backend() is FRAMEWORK["any"]


def test_a_declared_task_is_one_with_and_without_brackets_and_when_it_is_async(tasks: Any) -> None:
    assert all(isinstance(task, DeclaredTask) for task in (tasks.noop, tasks.bare, tasks.noop_async))
    assert (tasks.noop.name, tasks.noop_async.name) == ("noop", "noop_async")
    assert tasks.noop.module_path == "tests.harness.apps.project.tasks.noop"
    assert import_string(tasks.noop_async.module_path) is tasks.noop_async


@pytest.mark.parametrize("enqueue", ["enqueue", "aenqueue"])
def test_an_enqueued_task_is_ready_and_has_its_arguments_as_json(tasks: Any, enqueue: str) -> None:
    if enqueue == "enqueue":
        result = tasks.noop.enqueue(1, (2, 3), word="so")
    else:
        result = asyncio.run(tasks.noop.aenqueue(1, (2, 3), word="so"))
    assert (result.status, result.task) == (TaskResultStatus.READY, tasks.noop)
    assert (result.args, result.kwargs) == ([1, [2, 3]], {"word": "so"})
    assert not result.is_finished
    assert (result.attempts, result.errors, result.backend) == (0, [], "default")
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value


def test_arguments_that_are_not_json_are_refused_and_nothing_is_submitted(tasks: Any, app: Any) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.noop.enqueue(datetime.now())
    with pytest.raises(TypeError, match="Unsupported type"):
        asyncio.run(tasks.noop.aenqueue(datetime.now()))
    assert app.coordinator.counts()["created"] == 0


def test_using_makes_another_task_and_leaves_the_first(tasks: Any) -> None:
    now = timezone.now()
    assert tasks.noop.using(priority=1).priority == 1
    assert tasks.noop.using(queue_name="mail").queue_name == "mail"
    later = tasks.noop.using(run_after=now)
    assert (later.using(priority=10).run_after, later.using(priority=10).priority, later.priority) == (now, 10, 0)
    assert (tasks.noop.priority, tasks.noop.queue_name, tasks.noop.run_after) == (0, "default", None)
    assert tasks.noop.using() == tasks.noop
    assert tasks.noop.using() is not tasks.noop


def test_an_unknown_backend_is_named(tasks: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="'unknown' doesn't exist"):
        tasks.noop.using(backend="unknown")
    missing = {"default": project.TASKS["default"], "missing": {"BACKEND": "does.not.exist"}}
    with (
        override_settings(TASKS=missing),
        pytest.raises(ImproperlyConfigured, match=r"backend 'does\.not\.exist': No module named 'does'"),
    ):
        tasks.noop.using(backend="missing")
    with override_settings(TASKS={}), pytest.raises(ImproperlyConfigured):
        tasks.noop.enqueue()


@pytest.mark.parametrize("read", ["get_result", "aget_result"])
def test_what_is_read_of_an_enqueued_task_is_what_enqueue_gave(tasks: Any, read: str) -> None:
    after = timezone.now() + timedelta(days=1)
    task = tasks.noop.using(priority=-7, queue_name="mail", run_after=after)
    result = task.enqueue(1, word="so")
    found = getattr(task, read)(result.id)
    found = asyncio.run(found) if read == "aget_result" else found
    assert found == result
    assert found.task == task
    before = dataclasses.asdict(result)
    result.refresh()
    assert dataclasses.asdict(result) == before
    asyncio.run(result.arefresh())
    assert dataclasses.asdict(result) == before


def test_a_result_that_is_missing_or_of_another_task_is_told(tasks: Any, app: Any) -> None:
    plain = [app.coordinator.submit("key", {"task": name}).id for name in ("plain", "json.dumps")]
    other = tasks.noop_async.enqueue()
    for task_id in ("123", *plain, "no\nid"):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.noop.get_result(task_id)
        with pytest.raises(TaskResultDoesNotExist):
            asyncio.run(tasks.noop.aget_result(task_id))
    with pytest.raises(exception("TaskResultMismatch"), match="Task does not match"):
        tasks.noop.get_result(other.id)
    with pytest.raises(exception("TaskResultMismatch"), match="Task does not match"):
        asyncio.run(tasks.noop.aget_result(other.id))


def test_a_time_without_a_zone_is_refused_where_the_site_has_zones(tasks: Any) -> None:
    with pytest.raises(InvalidTask, match="run_after must be an aware datetime"):
        tasks.noop.using(run_after=datetime.now())


@pytest.mark.parametrize("priority", [-101, 101, 3.1])
def test_a_priority_is_a_whole_number_between_the_bounds(tasks: Any, priority: float) -> None:
    with pytest.raises(InvalidTask, match="priority must be a whole number between -100 and 100"):
        tasks.noop.using(priority=priority)
    for right in (-100, 0, 100):
        assert tasks.noop.using(priority=right).enqueue().task.priority == right


def test_a_queue_must_be_in_the_settings_unless_they_name_none(tasks: Any) -> None:
    with pytest.raises(InvalidTask, match="Queue 'odd' is not valid for backend"):
        tasks.noop.using(queue_name="odd")
    assert tasks.noop.using(queue_name="odd", backend="any").queue_name == "odd"


def test_a_task_may_be_enqueued_to_another_backend_and_one_of_another_backend_not_to_ours(tasks: Any) -> None:
    assert tasks.meaning.using(backend="immediate").enqueue().return_value == 42
    assert tasks.elsewhere.enqueue().return_value == 7
    with pytest.raises(InvalidTask, match=r"workers do not know .*elsewhere, which was declared for another backend"):
        tasks.elsewhere.using(backend="default")


def test_using_registers_no_second_task_with_celery(tasks: Any) -> None:
    before = len(_state._on_app_finalizers)
    for priority in range(3):
        tasks.noop.using(priority=priority)
    assert len(_state._on_app_finalizers) == before


def test_the_decorator_refuses_a_priority_and_a_place_above_task(tasks: Any) -> None:
    with pytest.raises(InvalidJob, match=r"write @task\(priority=…\)"):
        coordinate(key="a", priority=3)
    with pytest.raises(InvalidJob, match="below @task"):
        coordinate(key="a")(tasks.noop)


def test_a_call_without_enqueue_runs_in_the_caller(tasks: Any) -> None:
    assert tasks.meaning.call() == 42
    assert asyncio.run(tasks.meaning.acall()) == 42
    assert asyncio.run(tasks.noop_async.acall()) == "async"
    assert tasks.noop_async.call() == "async"


def test_only_functions_of_a_module_are_tasks_and_context_comes_first(tasks: Any) -> None:
    declare = import_string(f"{FRAMEWORK.__class__.__module__}.task")
    for wrong in (any, lambda: None):
        with pytest.raises(InvalidTask, match="must be defined at a module level"):
            declare()(wrong)
    with pytest.raises(InvalidTask, match="does not have a first argument of 'context'"):
        declare(takes_context=True)(tasks.meaning.func)


def test_where_the_site_has_no_zones_times_have_none(tasks: Any, app: Any) -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo"):
        result = tasks.noop.using(run_after=datetime(2100, 1, 1, 9)).enqueue()
        assert result.enqueued_at.tzinfo is None
        assert abs(result.enqueued_at - timezone.now()) < timedelta(minutes=1)
        assert tasks.noop.get_result(result.id) == result
    store = app.coordinator.store
    [(_, at)] = store.read("ZRANGE", store.key("starts"), 0, -1, "WITHSCORES")
    assert datetime.fromtimestamp(float(at) / 1000, UTC) == datetime(2100, 1, 1, tzinfo=UTC)
