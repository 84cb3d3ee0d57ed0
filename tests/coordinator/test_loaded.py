"""A process loads no more than it uses, and the front door hands on its names one by one."""

import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import coordinator
from coordinator import Coordinator

ROOT = Path(__file__).parents[2]

# redis-py loads its `asyncio` by itself; pydantic reads the settings.
NOT_OF_A_NAME = ("celery", "kombu", "redis", "pydantic", "click", "psutil", "asyncio", "multiprocessing")
NOT_OF_A_PLAIN_CLIENT = (
    "celery", "kombu.connection", "kombu.entity", "kombu.pools", "click", "coordinator.ops.diagnosis",
    "coordinator.scheduler", "coordinator.core.keyed_task", "coordinator.core.runner", "coordinator.core.threads",
    "coordinator.core.supervisor", "coordinator.core.maintenance", "coordinator.core.worker",
)  # fmt: skip
NOT_OF_AN_APP = (
    "celery.worker", "celery.apps", "celery.beat", "celery.bin", "coordinator.ops.diagnosis", "coordinator.scheduler",
    "coordinator.core.runner", "coordinator.core.supervisor", "coordinator.core.maintenance",
    "coordinator.core.worker.bootstep",
)  # fmt: skip

APP = """
from celery import Celery
app = Celery("shop", broker="redis://127.0.0.1:1")
from coordinator import Coordinator
coordinator = Coordinator(app, url={url!r}, prefix={prefix!r})
@app.task
def work(): ...
@app.task(coordinate={{"key": "k"}})
def keyed(): ...
"""
CLIENT = "from coordinator import Coordinator; coordinator = Coordinator(url={url!r}, prefix={prefix!r}, timeout=10)"
SUBMIT = """
from coordinator import WaitTimeout
made = coordinator.submit("k", {signature}, if_unknown="wait", job_id="j")
try:
    coordinator.wait("j", 0)
except WaitTimeout:
    coordinator.cancel("j")
"""


def loaded(code: str) -> set[str]:
    """The modules of a new process that has run this."""
    code = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return set(done.stdout.split())


def among(modules: set[str], names: tuple[str, ...]) -> set[str]:
    """The modules that are one of these, or below one."""
    return {module for module in modules if any(f"{module}.".startswith(f"{name}.") for name in names)}


@pytest.mark.parametrize("name", ["Coordinator", "current_job", "NoRetry", "SubmitOptions", "Backoff"])
def test_a_name_that_apps_import_loads_none_of_the_libraries(name: str) -> None:
    assert not among(loaded(f"from coordinator import {name}"), NOT_OF_A_NAME)


def test_a_plain_client_loads_no_celery_and_redis_at_its_first_call(coordinator: Coordinator) -> None:
    settings = coordinator.settings
    begin = CLIENT.format(url=settings.url, prefix=settings.prefix)
    assert not among(loaded(begin), ("redis", "celery", "kombu"))
    found = loaded(begin + SUBMIT.format(signature={"task": "shop.work"}))
    assert "redis" in found
    assert not among(found, NOT_OF_A_PLAIN_CLIENT)


def test_a_client_with_an_app_loads_no_worker_and_no_beat(coordinator: Coordinator) -> None:
    settings = coordinator.settings
    begin = APP.format(url=settings.url, prefix=settings.prefix)
    found = loaded(begin + SUBMIT.format(signature="work.s()") + "coordinator.cancel(keyed.delay().id)")
    assert not among(found - loaded("import celery; celery.Celery()"), NOT_OF_AN_APP)


def test_the_supervisor_loads_no_celery_and_no_pydantic() -> None:
    assert not among(loaded("import coordinator.core.supervisor.__main__"), ("celery", "pydantic"))


def test_the_front_door_hands_on_each_public_name_and_no_other() -> None:
    assert "Coordinator" in coordinator._HOME_OF
    assert [name for name in coordinator._HOME_OF if name not in dir(coordinator)] == []
    assert [name for name in coordinator._HOME_OF if not hasattr(coordinator, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'Coordinater'"):
        _ = coordinator.Coordinater  # type: ignore[attr-defined]


def test_its_help_is_a_page_that_names_them_all() -> None:
    page = pydoc.plain(pydoc.render_doc(coordinator))
    assert page.count("\n") < 110
    assert [name for name in coordinator._HOME_OF if name not in page] == []
