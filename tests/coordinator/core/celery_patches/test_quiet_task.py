"""A user's signal handlers hear of the app's tasks, and not of the runner's."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, signals
from celery.app.trace import build_tracer, trace_task

from coordinator.core.celery_patches.quiet_task import QuietTask

SIGNALS = (signals.task_prerun, signals.task_postrun, signals.task_success)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    found: list[str] = []

    def hear(sender: Any, **_: Any) -> None:
        found.append(sender.name)

    for signal in SIGNALS:
        signal.connect(hear)
    yield found
    for signal in SIGNALS:
        signal.disconnect(hear)


def well() -> str:
    return "done"


def badly() -> None:
    raise LookupError("no")


@pytest.mark.parametrize("built", [True, False], ids=["by the worker", "at its first run"])
def test_handlers_are_not_called_for_a_quiet_task(heard: list[str], built: bool) -> None:
    app = Celery("quiet", set_as_current=False)
    quiet = app.task(well, name="quiet.one", base=QuietTask, shared=False)
    usual = app.task(well, name="quiet.two", shared=False)
    for task in (quiet, usual):
        if built:
            task.__trace__ = build_tracer(task.name, task, app=app)
        request = {"id": "an-id", "ignore_result": True, "delivery_info": {}}
        assert trace_task(task, "an-id", (), {}, request, app=app)[0] == "done"
    assert heard == ["quiet.two"] * 3


def test_a_quiet_task_that_fails_is_still_told_as_failed(heard: list[str]) -> None:
    app = Celery("quiet", set_as_current=False)
    quiet = app.task(badly, name="quiet.bad", base=QuietTask, shared=False)
    failed: list[str] = []

    def hear(sender: Any, **_: Any) -> None:
        failed.append(sender.name)

    signals.task_failure.connect(hear)
    trace_task(quiet, "an-id", (), {}, {"id": "an-id", "ignore_result": True, "delivery_info": {}}, app=app)
    signals.task_failure.disconnect(hear)
    assert (failed, heard) == (["quiet.bad"], [])
