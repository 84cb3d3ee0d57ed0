"""Deliveries are taken in once each, when they are complete, whoever watches and whatever dies."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.batches import Items, Wanted
from tasks.batches.deliveries import MARKER, Deliveries
from tasks.settings import Settings
from tests.harness.waiting import wait_until
from tests.tasks.batches.conftest import Store
from tests.tasks.conftest import IN_BOTH

RECEIVED = "Data_Received"
WATCH = (
    "import sys, threading; from pathlib import Path; from tasks.batches import Items\n"
    "from tasks.batches.deliveries import Deliveries; from tasks.settings import Settings\n"
    "Deliveries(Items(Settings(data_dir=Path(sys.argv[1]))), Path(sys.argv[2])).watch(0.01, threading.Event())"
)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def send(inbox: Path, name: str, *, complete: bool = True) -> None:
    (inbox / name).mkdir(exist_ok=True)
    (inbox / name / "page-1.jp2").write_text("a page")
    if complete:
        new = inbox / name / ".new"
        new.write_text("")
        new.rename(inbox / name / MARKER)


def look(*watches: Deliveries) -> None:
    for watch in watches:
        watch.step()
        watch.step()


@IN_BOTH
def test_a_directory_is_a_delivery_once_it_holds_the_marker(store: Store, inbox: Path) -> None:
    watches = [Deliveries(store.items, inbox) for _ in range(2)]
    send(inbox, "B1-RT1")
    send(inbox, "B2-RT1", complete=False)
    send(inbox, "leftovers")
    (inbox / "B3-RT1").write_text("a file")
    (inbox / "B4-RT1" / MARKER).mkdir(parents=True)
    look(*watches)
    assert [one.id for one in store.items.query(Wanted()).items] == ["B1-RT1"]
    assert store.items.item("B1-RT1").directory == str(inbox / "B1-RT1")
    send(inbox, "B2-RT1")
    look(*watches, Deliveries(store.items, inbox))
    assert [store.live(name) for name in ("B1-RT1", "B2-RT1")] == [[RECEIVED]] * 2


def test_a_delivery_that_is_sent_again_is_another_one(store: Store, inbox: Path) -> None:
    watch = Deliveries(store.items, inbox)
    send(inbox, "B1-RT1")
    look(watch)
    send(inbox, "B1-RT1")
    look(watch, Deliveries(store.items, inbox))
    assert store.live("B1-RT1") == [RECEIVED, RECEIVED]
    assert store.items.item("B1-RT1").revision == 2


def test_a_name_that_is_no_round_trip_keeps_no_other_waiting(
    store: Store, inbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("A-RTx", "B1-RT1"):
        send(inbox, name)
    look(Deliveries(store.items, inbox))
    assert store.live("B1-RT1") == [RECEIVED]
    assert "'A-RTx' names no round trip" in caplog.text


def test_watchers_that_are_killed_again_and_again_take_in_each_delivery_once(
    settings: Settings, items: Items, inbox: Path
) -> None:
    argv = [sys.executable, "-c", WATCH, str(settings.data_dir), str(inbox)]
    names = [f"B{number}-RT1" for number in range(12)]
    for name in names:
        send(inbox, name)

    def taken() -> int:
        return sum(bool(items.events(one.id)) for one in items.query(Wanted()).items)

    for count in (1, 5, 12):
        with subprocess.Popen(argv) as watcher:
            wait_until(lambda count=count: taken() >= count, 30)
            os.kill(watcher.pid, signal.SIGKILL)
    look(Deliveries(items, inbox))
    assert [[one.type for one in items.events(name)] for name in names] == [[RECEIVED]] * 12
