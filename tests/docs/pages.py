"""The pages whose blocks run, and the names that a page takes for granted."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy
from celery import Celery, _state, shared_task
from celery.contrib.django.task import DjangoTask
from django.conf import settings as django_settings
from django.db import connection, transaction
from kombu import pools
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from coordinator import Coordinator
from coordinator.testing.inline import InlineJobs
from generate.repository_pages import BESIDE
from tests.harness import djangos
from tests.harness.redis import RedisServer
from tests.harness.snippets import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))
REST = [ROOT / name for name in BESIDE if name.endswith(".md")]
# These pages have tests of their own.
ELSEWHERE = {
    "docs/django.md": "tests/coordinator/django/test_page.py",
    "docs/moving.md": "tests/test_moving_page.py",
    "docs/tutorial.md": "tests/fleet/test_tutorial.py",
}
LANGUAGES = {"python", "console", "toml", "sh"}
# A block for another program, and the test that gives it to that.
OTHERS = {"acl": "tests/fleet/test_users.py"}
# The blocks of these run in a process of the service, after this.
OF_SERVICE = {"docs/batches.md", "docs/howto/object-events.md", "docs/operations.md"}
SERVICE = """
from celery import Celery
app = Celery("shop", set_as_current=False)
def wrong_files(directory): return []
"""

TASKS = ("ship", "sync", "count", "debit", "credit", "undo", "reserve", "report", "bill")
Names = dict[str, Any]


def nothing(*_: object, **__: object) -> None: ...


@contextmanager
def names_of(page: str, server: RedisServer) -> Iterator[Names]:
    """Those with which the page begins: an app whose jobs run in this thread, and tasks that do nothing."""
    module = ModuleType("shop")
    before, _state._on_app_finalizers = _state._on_app_finalizers, set(_state._on_app_finalizers)
    current, earlier = _state._tls.current_app, {id(one) for one in _state._get_active_apps()}
    app = Celery("shop", broker=server.url(1), task_cls=DjangoTask)
    found = vars(module)
    defined = (ROOT / page).read_text()
    shared = [name for name in TASKS if f"def {name}(" not in defined]
    found |= {name: shared_task(name=f"shop.{name}")(nothing) for name in shared}
    coordinator, monkeypatch = Coordinator(app), pytest.MonkeyPatch()
    InlineJobs(coordinator, server.url(0)).install(monkeypatch)
    found |= {"app": app, "coordinator": coordinator, "shop": module, "write": nothing, "write_report": nothing}
    found |= EXTRA.get(page, dict)()
    try:
        yield found
    finally:
        monkeypatch.undo()
        for each in [one for one in _state._get_active_apps() if id(one) not in earlier]:
            if "store" in vars(getattr(each, "coordinator", each)):
                each.coordinator.store.close()
            each.close()
        if django_settings.configured:
            connection.close()
        pools.reset()
        _state._on_app_finalizers, _state._tls.current_app = before, current
        for name in ("shop", "press"):
            sys.modules.pop(name, None)


def _transactions() -> Names:
    """A database of Django and one of SQLAlchemy, and an order that both can save."""
    djangos.set_up()

    class Base(DeclarativeBase): ...

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)

        def save(self) -> None: ...

    engine = sqlalchemy.create_engine("sqlite://")
    Base.metadata.create_all(engine)
    return {"transaction": transaction, "Session": Session, "engine": engine, "order": Order(id=42)}


EXTRA: dict[str, Callable[[], Names]] = {
    "docs/keyed-tasks.md": _transactions,
    "docs/howto/after-commit.md": lambda: djangos.set_up() or {},
}
