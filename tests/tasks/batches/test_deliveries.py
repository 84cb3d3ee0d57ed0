"""Deliveries are taken in once each, when they are complete, whoever watches and whatever dies."""

import shutil
import signal
from pathlib import Path

import pytest

from tasks.batches import ItemConditions, Items
from tasks.batches.deliveries import MARKER, Deliveries
from tasks.batches.round_trips import deliver
from tasks.settings import Settings
from tests.harness.waiting import wait_until
from tests.harness.warm import start
from tests.tasks.batches.conftest import Store
from tests.tasks.conftest import IN_BOTH

RECEIVED = "Data_Received"
WATCH = (
    "import sys, threading; from pathlib import Path; from tasks.batches import Items\n"
    "from tasks.batches.deliveries import Deliveries; from tasks.settings import Settings\n"
    "Deliveries(Items(Settings(data_dir=Path(sys.argv[1]))), Path(sys.argv[2])).watch(0.01, threading.Event())"
)

DIES = """
import os, signal, sys
import tasks
from sqlalchemy import event
from tasks.batches import Items
from tasks.batches.round_trips import deliver
from tasks.settings import Settings
address, statement, left = sys.argv[1], sys.argv[2], [int(sys.argv[3])]
items = Items(Settings(database_url=address))
def die(text):
    if text.lstrip().startswith(statement):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
event.listen(items.engine, "before_cursor_execute", lambda connection, cursor, text, *rest: die(text))
event.listen(items.engine, "commit", lambda connection: die("COMMIT"))
deliver(items, "B1-RT2", directory="/in/B1-RT2", identity="file 2")
"""


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
    assert [one.id for one in store.items.query(ItemConditions()).items] == ["B1-RT1"]
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
    assert "'A-RTx' is not a round trip" in caplog.text


def test_a_delivery_that_nobody_can_look_at_keeps_no_other_waiting(
    store: Store, inbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (inbox / "B1-RT1").symlink_to("B1-RT1")
    (inbox / "B2-RT1").mkdir()
    (inbox / "B2-RT1" / MARKER).symlink_to(MARKER)
    send(inbox, "B3-RT1")
    watch = Deliveries(store.items, inbox)
    look(watch)
    assert [one.id for one in store.items.query(ItemConditions()).items] == ["B3-RT1"]
    assert [
        caplog.text.count(f"Too many levels of symbolic links: '{inbox / name}") for name in ("B1-RT1", "B2-RT1")
    ] == [1, 1], "told once"
    (inbox / "B2-RT1" / MARKER).unlink()
    send(inbox, "B2-RT1")
    look(watch)
    assert store.live("B2-RT1") == [RECEIVED]


@IN_BOTH
@pytest.mark.parametrize(
    ("statement", "number"),
    [("INSERT INTO events", 1), ("INSERT INTO events", 2), ("COMMIT", 1)],
    ids=["between the item and its event", "before another round trip is stopped", "before the end"],
)
def test_a_watcher_that_is_killed_half_way_has_taken_in_nothing(
    store: Store, settings: Settings, statement: str, number: int
) -> None:
    def deliver_second() -> str:
        return deliver(store.items, "B1-RT2", directory="/in/B1-RT2", identity="file 2")

    deliver(store.items, "B1-RT1", directory="/in/B1-RT1", identity="file 1")
    dying = start(["-c", DIES, settings.database, statement, str(number)])
    assert dying.wait(60) == -signal.SIGKILL
    assert [one.id for one in store.items.query(ItemConditions()).items] == ["B1-RT1"]
    assert store.live("B1-RT1") == [RECEIVED]
    assert [deliver_second(), deliver_second()] == ["received", "known"]
    assert [store.live(name) for name in ("B1-RT1", "B1-RT2")] == [[RECEIVED, "Manually_stopped"], [RECEIVED]]
    assert store.items.item("B1-RT2").revision == 1


def test_a_directory_that_is_watched_by_two_paths_holds_each_delivery_once(store: Store, inbox: Path) -> None:
    link = inbox.with_name("link")
    link.symlink_to(inbox)
    send(inbox, "B1-RT1")
    look(Deliveries(store.items, inbox), Deliveries(store.items, link), Deliveries(store.items, inbox / ".." / "in"))
    assert store.live("B1-RT1") == [RECEIVED]
    assert store.items.item("B1-RT1").revision == 1


def test_a_directory_that_is_gone_hides_no_other_and_comes_again(store: Store, inbox: Path) -> None:
    watch = Deliveries(store.items, inbox)
    for name in ("B1-RT1", "B2-RT1"):
        send(inbox, name)
    watch.step()
    shutil.rmtree(inbox / "B1-RT1")  # between the two looks
    watch.step()
    assert [one.id for one in store.items.query(ItemConditions()).items] == ["B2-RT1"]
    shutil.rmtree(inbox / "B2-RT1")
    away = inbox.rename(inbox.with_name("away"))
    look(watch)
    assert store.live("B2-RT1") == [RECEIVED]
    away.rename(inbox)
    for name in ("B1-RT1", "B2-RT1"):
        send(inbox, name)
    look(watch)
    assert [store.live(name) for name in ("B1-RT1", "B2-RT1")] == [[RECEIVED], [RECEIVED, RECEIVED]]


def test_watchers_that_are_killed_again_and_again_take_in_each_delivery_once(
    settings: Settings, items: Items, inbox: Path
) -> None:
    argv = ["-c", WATCH, str(settings.data_dir), str(inbox)]
    names = [f"B{number}-RT1" for number in range(12)]
    for name in names:
        send(inbox, name)

    def taken() -> int:
        return sum(bool(items.events(one.id)) for one in items.query(ItemConditions()).items)

    for count in (1, 5, 12):
        with start(argv) as watcher:
            wait_until(lambda count=count: taken() >= count)
            watcher.kill()
    look(Deliveries(items, inbox))
    assert [[one.type for one in items.events(name)] for name in names] == [[RECEIVED]] * 12
