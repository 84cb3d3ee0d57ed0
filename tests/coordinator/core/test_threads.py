"""Code of others leaves no connection to a database open in a thread of ours: the server may close it until the next
round, and nobody would find out. And a thread that sends, with a process that is forked beside it.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from starlette.requests import Request

from coordinator import Coordinator, Extension
from coordinator.core.author import Author
from coordinator.core.maintenance.duties import Duty
from coordinator.core.threads import SendingThread
from coordinator.core.verbs import NOTHING, reading, readings_in, verb, verbs_in
from coordinator.inbox.inbox import Inbox
from coordinator.ops.dashboard import Pages, Query, dashboard
from coordinator.ops.dashboard.acts import acts_of
from coordinator.ops.dashboard.running import RunningActs
from coordinator.scheduler.sources import SourceState
from tests.coordinator.inbox.senders import QUEUE, plain
from tests.coordinator.ops.dashboard.stage import TestClient
from tests.harness import djangos
from tests.harness.installation import Installation
from tests.harness.waiting import wait_until
from tests.harness.warm import ROOT, python


class Foreign:
    """Asks a database of Django's, and leaves its connection open, as such code does."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self.used: Any = None

    def __call__(self, *_: object) -> Any:
        with connections[self._alias].cursor() as cursor:
            cursor.execute("SELECT 1")
        self.used = connections[self._alias]
        assert self.used.connection is not None
        return 1

    def is_over(self) -> None:
        """Wait until its connection is closed."""
        wait_until(lambda: self.used is not None and self.used.connection is None)
        self.used = None


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Foreign]:
    djangos.set_up()
    alias = tmp_path.name
    # In a file, since Django never closes one in memory; meant to be kept, since that must not count.
    connections.settings[alias] = connections.settings["default"] | {"NAME": tmp_path / "db", "CONN_MAX_AGE": None}
    yield Foreign(alias)
    connections[alias].close()
    del connections[alias], connections.settings[alias]


def test_a_result_backend_s_after_each_burst_of_results(foreign: Foreign) -> None:
    class Sender(SendingThread[int]):
        send = foreign.__call__

    sender = Sender("sender", 0.0, 10)
    for number in range(2):
        sender.put(number)
        foreign.is_over()


def test_a_handler_s_and_a_backend_s_after_each_look_of_maintenance(foreign: Foreign) -> None:
    duty = Duty("duty", lambda heartbeat: foreign() and None, pause=60.0)
    duty.start()
    for _ in range(2):
        duty.wake()
        foreign.is_over()
    duty.stop()


def test_that_of_a_handler_of_requests_after_each_of_them(foreign: Foreign, apps: Installation) -> None:
    def store() -> Any:
        return apps.coordinator.store

    inbox: Inbox[Any] = Inbox(apps.shop.app, QUEUE, apps.shop.Request, foreign, "one", store)
    plain(apps, {"name": "a"})
    inbox.step()
    foreign.is_over()
    inbox._requests.close()


def test_a_schedule_source_s_after_each_reading(foreign: Foreign) -> None:
    def entries() -> Iterator[Any]:
        foreign()
        yield from ()

    SourceState("source", lambda: ("1", entries())).again()
    foreign.is_over()


def test_those_of_pages_logins_and_acts(foreign: Foreign, coordinator: Coordinator) -> None:
    login = Foreign(foreign._alias)

    async def auth(_: Request) -> Author:
        await sync_to_async(login)()
        return Author("ulla")

    @reading(host=None)
    def till() -> int:
        return int(str(foreign()))

    @verb(NOTHING, tell=lambda _, given, answer: ({}, f"{answer} is there"), host=None)
    def count(**acting: str) -> object:
        return foreign()

    coordinator.extend(Extension("till", pages=lambda: Pages(readings=readings_in(till).values())))
    assert TestClient(dashboard(coordinator, auth=auth)).get("/api/till").json() == 1
    foreign.is_over()
    login.is_over()
    query = Query(coordinator, {"why": "a test"}, Author("ulla"), {})
    [act] = acts_of(verbs_in(count).values()).values()
    assert asyncio.run(RunningActs().begin(act, query, 5.0)).message == "1 is there."
    foreign.is_over()


def test_within_a_user_s_transaction_it_stays(foreign: Foreign) -> None:
    with transaction.atomic(using=foreign._alias):
        SourceState("source", lambda: (str(foreign()), ())).again()
        assert foreign.used.connection is not None


def test_what_is_queued_is_sent_together_after_a_pause_or_at_once_where_no_more_comes() -> None:
    class Sender(SendingThread[int]):
        def send(self, items: list[int]) -> None:
            sent.append(items)

    sent = list[list[int]]()
    sender = Sender("sender", 3600.0, 10)
    sender.put(1)
    assert sender.flush(10), "a lone one goes out at once"
    sender.put(2)
    sender.put(3)
    assert sent == [[1]]
    sender.hurry()
    assert sender.flush(10)
    assert sent == [[1], [2, 3]]


FORKS = """
import os, threading
from coordinator.core.threads import SendingThread

class Sender(SendingThread):
    def send(self, items):
        if items == ["first"]:
            begun.set()
            hung.wait()
        os.write(1, f"{'parent' if os.getpid() == parent else 'child'} {items}\\n".encode())

parent, begun, hung = os.getpid(), threading.Event(), threading.Event()
sender = Sender("sender", 0.0, 10)
sender.put("first")
begun.wait()
sender.put("second")
if not os.fork():
    sender.put("the child's")
    sender.flush(10)
    os._exit(0)
os.wait()
hung.set()
sender.flush(10)
"""


def test_a_forked_process_sends_nothing_of_what_waits_in_its_parent() -> None:
    told = python(["-c", FORKS], ROOT, os.environ).stdout
    assert told.splitlines() == ['child ["the child\'s"]', "parent ['first']", "parent ['second']"]
