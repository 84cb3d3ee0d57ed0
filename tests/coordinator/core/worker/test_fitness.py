"""A worker that can run no jobs says so in one line, and does not start where it must run jobs."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from celery import Celery

from coordinator.core.worker.fitness import locate
from tests.harness.command import environment
from tests.harness.waiting import wait_until
from tests.harness.warm import Started
from tests.harness.warm import start as start_warm

ALONE = ("--without-mingle", "--without-gossip", "--without-heartbeat")
NO_REDIS = """
from celery import Celery
from coordinator import Coordinator

app = Celery("shop", broker="memory://")
Coordinator(app)
"""
NO_ATTRIBUTE = """
from celery import Celery
from coordinator import Coordinator

shops = [Celery("shop", broker="memory://")]
Coordinator(shops[0])


def __getattr__(name):
    if name == "celery":
        return shops[0]
    raise AttributeError(name)
"""
LONG_QUEUE = (
    NO_REDIS
    + """
app.conf.task_default_queue = "q" * 256
"""
)
LONG_TASK = (
    NO_REDIS
    + """
@app.task(name="t" * 256)
def long(): ...


app.finalize()
"""
)
NO_MEMORY = (
    """
import resource

resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
"""
    + NO_REDIS
)
Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Started] = []

    def begin(code: str, **environ: str) -> Started:
        (tmp_path / "shop.py").write_text(code)
        argv = ["-m", "celery", "-A", "shop", "worker", "-P", "solo", "-l", "INFO", *ALONE]
        with (tmp_path / "log").open("w") as log:
            started.append(start_warm(argv, tmp_path, environment(**environ), stdout=log, stderr=log))
        return started[-1]

    yield begin
    for one in started:
        one.kill()
        one.wait()


@pytest.mark.parametrize(
    ("code", "why", "environ"),
    [
        (NO_REDIS, "no Redis for the coordinator", {}),
        (
            NO_ATTRIBUTE,
            "the Celery app 'shop' is no attribute of any module",
            {"COORDINATOR_URL": "redis://localhost:1"},
        ),
        (LONG_QUEUE, "queue 'qqqq", {"COORDINATOR_URL": "redis://localhost:1"}),
        (LONG_TASK, "task 'tttt", {"COORDINATOR_URL": "redis://localhost:1"}),
        (
            NO_MEMORY,
            "this worker cannot create its runner status file: ",
            {"COORDINATOR_URL": "redis://localhost:1"},
        ),
    ],
    ids=["no Redis", "no attribute", "long queue", "long task", "no memory"],
)
def test_a_worker_that_can_run_no_jobs_says_so_once(
    start: Start, tmp_path: Path, code: str, why: str, environ: dict[str, str]
) -> None:
    worker = start(code, **environ)
    wait_until(lambda: " ready." in (tmp_path / "log").read_text())
    told = (tmp_path / "log").read_text()
    assert told.count(f"this worker runs no jobs: {why}") == 1
    assert "Traceback" not in told
    assert worker.poll() is None
    worker.kill()
    worker.wait()
    assert start(code, **environ, COORDINATOR_MUST_COORDINATE="true").wait(40) == 1
    assert f"this worker cannot run jobs: {why}" in (tmp_path / "log").read_text()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_worker_with_wrong_settings_does_not_start(start: Start, tmp_path: Path) -> None:
    assert start(NO_REDIS, COORDINATOR_URL="localhost:6379").wait(40) == 1
    told = (tmp_path / "log").read_text()
    assert "this worker cannot run jobs: setting url (environment): the URL must begin with redis://" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("option", [["-A", "shop_of_two.settings"], ["--app=shop_of_two.settings:app"]])
def test_maintenance_imports_the_app_from_the_module_that_the_worker_was_started_with(
    option: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Celery("shop_of_two", set_as_current=False)
    for name in ("shop_of_two.made", "shop_of_two.settings"):  # the second one configures what the first one makes
        module = ModuleType(name)
        vars(module)["app"] = app
        monkeypatch.setitem(sys.modules, name, module)
    assert locate(app) == "shop_of_two.made:app"
    monkeypatch.setattr(sys, "argv", ["celery", *option, "worker"])
    assert locate(app) == "shop_of_two.settings:app"
