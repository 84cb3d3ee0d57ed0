"""A Celery app of the tests' Django project, on the shared Redis; and the project of docs/django.md."""

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from django import VERSION

from coordinator import Coordinator
from coordinator.testing.inline import InlineJobs
from tests.harness import djangos
from tests.harness.redis import RedisServer
from tests.harness.snippets import snippets
from tests.harness.warm import ROOT, python

PAGE = snippets(ROOT / "docs" / "django.md")
MANAGE = """
import os, sys
from django.core.management import execute_from_command_line
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
execute_from_command_line(sys.argv)
"""


@pytest.fixture
def app(redis_server: RedisServer, prefix: str) -> Iterator[Any]:
    at = {"url": redis_server.url(0), "prefix": prefix}
    with djangos.app_of_project(**at, timeout=10, quota_unknown="open") as app:
        yield app


@pytest.fixture
def tasks(app: Any) -> Iterator[Any]:
    """The module of the project's tasks."""
    from tests.harness.apps.project import tasks

    yield tasks
    tasks.ran.clear()


@pytest.fixture
def jobs(app: Any, coordinator_jobs: Callable[[Coordinator], InlineJobs]) -> InlineJobs:
    """What is enqueued runs at once, in this thread."""
    return coordinator_jobs(app.coordinator)


class Shop:
    """The project of docs/django.md in a folder of its own, as its reader writes it; the Redis is the tests'."""

    def __init__(self, folder: Path, port: int, prefix: str) -> None:
        self.folder = folder
        self.env = {"PYTHONPATH": str(ROOT), "COORDINATOR_PREFIX": prefix, "COLUMNS": "200"}
        for block in PAGE:
            if block.title:
                self.write(block.title, block.on(port).text)
        self.write("manage.py", MANAGE)
        if VERSION < (6, 0):
            self.write("shop/tasks.py", self.read("shop/tasks.py").replace("from django.tasks", "from django_tasks", 1))
            self.add("shop/settings.py", 'INSTALLED_APPS.append("django_tasks")')

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def add(self, name: str, text: str) -> None:
        self.write(name, f"{self.read(name)}\n{text}\n")

    def python(self, *argv: str, **env: str) -> CompletedProcess[str]:
        return python(argv, self.folder, self.env | env)

    def manage(self, *argv: str, **env: str) -> CompletedProcess[str]:
        done = self.python("manage.py", *argv, **env)
        assert "Traceback" not in done.stderr, done.stderr
        return done


@pytest.fixture
def shop(tmp_path: Path, redis_server: RedisServer, prefix: str) -> Shop:
    return Shop(tmp_path, redis_server.port, prefix)
