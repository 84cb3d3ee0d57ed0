"""One order for each file that arrives, once each, whoever watches and whatever dies in between."""

import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator import Coordinator, InvalidJob, ShuttingDown, Sorter, StoreUnavailable
from coordinator.sorters import directory as module
from coordinator.sorters.directory import DirectoryWatch
from coordinator.sorters.sorter import Sorters
from tests.harness.waiting import wait_for_count


def signature(path: Path | str = "") -> dict[str, Any]:
    return {"task": "shop.work", "args": [str(path)], "kwargs": {}, "options": {}}


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    directory = tmp_path / "in"
    directory.mkdir()
    return directory


def watcher(sorter: Sorter, directory: Path, pattern: str = "*", **given: Any) -> DirectoryWatch:
    """Its looks are made by hand."""
    made: list[DirectoryWatch] = []
    run, DirectoryWatch.run = DirectoryWatch.run, lambda watch, poll, stop: made.append(watch)  # type: ignore[method-assign, assignment]
    try:
        sorter.watch(directory, pattern, **{"key": "k", "signature": signature, "if_unknown": "wait", **given})
    finally:
        DirectoryWatch.run = run  # type: ignore[method-assign]
    return made[0]


def names(sorter: Sorter) -> list[str]:
    return [one.partition("/")[2] for one in sorter.orders(1000)]


def look(*watches: DirectoryWatch, times: int = 2) -> None:
    for _ in range(times):
        for watch in watches:
            watch.step()


def test_a_file_is_an_order_once_it_did_not_change_between_two_looks(
    coordinator: Coordinator, orders: Sorter, inbox: Path
) -> None:
    watch = watcher(orders, inbox, "*.xml", key=lambda path: f"k/{path.stem}", priority=3)
    for name in ("b.xml", "a.xml", "c.txt", ".d.xml"):
        (inbox / name).write_text("1")
    (inbox / "folder.xml").mkdir()
    (inbox / "broken.xml").symlink_to(inbox / "nowhere")
    watch.step()
    assert names(orders) == []
    (inbox / "b.xml").write_text("12")
    watch.step()
    assert names(orders) == ["a.xml"]
    look(watch)
    assert names(orders) == ["a.xml", "b.xml"]
    job = coordinator.job("orders/b.xml")
    assert (job.key, job.args) == ("k/b", (str(inbox / "b.xml"),))


def test_any_number_of_watchers_restarted_at_any_time_make_one_order_of_each(orders: Sorter, inbox: Path) -> None:
    watches = [watcher(orders, inbox) for _ in range(3)]
    for number in range(5):
        (inbox / f"{number}").touch()
        look(*watches)
        watches[number % 3] = watcher(orders, inbox)
        look(*watches)
    assert names(orders) == [f"{number}" for number in range(5)]


@pytest.mark.parametrize("differs", ["inode", "time", "size"])
def test_a_file_that_differs_in_one_thing_from_the_one_of_its_name_before_is_another(
    orders: Sorter, inbox: Path, differs: str
) -> None:
    watch, path = watcher(orders, inbox), inbox / "a"
    path.write_text("1")
    os.utime(path, ns=(0, 10**9))
    look(watch)
    if differs == "inode":
        (inbox / ".new").write_text("2")
        (inbox / ".new").rename(path)
    path.write_text("22" if differs == "size" else "2")
    os.utime(path, ns=(0, 2 * 10**9 if differs == "time" else 10**9))
    look(watch)
    assert len(names(orders)) == 2


def test_a_watch_reads_redis_again_each_minute_since_that_may_have_been_restored(
    orders: Sorter, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, watch, read = 1000.0, watcher(orders, inbox), list[float]()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(watch, "_remembered", lambda: (read.append(now), {})[1])  # type: ignore[func-returns-value]
    for _ in range(240):
        watch.step()
        now += 0.5
    assert read == [1000, 1060]


def test_several_threads_that_watch_and_write_make_one_order_of_each(orders: Sorter, inbox: Path) -> None:
    stop = threading.Event()
    given = {"key": "k", "signature": signature, "poll": 0.05, "stop": stop, "if_unknown": "wait"}
    threads = [threading.Thread(target=orders.watch, args=(inbox,), kwargs=given) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(40):
        (inbox / f".{number:02}").write_text("x")
        (inbox / f".{number:02}").rename(inbox / f"{number:02}")
    wait_for_count(lambda: len(names(orders)), 40)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert names(orders) == [f"{number:02}" for number in range(40)]


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_a_lost_reply_costs_no_order_and_doubles_none(
    orders: Sorter, inbox: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, done: bool
) -> None:
    hold, watch = Sorters.hold, watcher(orders, inbox)

    def lost(self: Sorters, *args: Any) -> str:
        if done:
            hold(self, *args)
        raise StoreUnavailable("no answer")

    for name in "abc":
        (inbox / name).touch()
    watch.step()
    monkeypatch.setattr(Sorters, "hold", lost)
    watch.step()
    monkeypatch.undo()
    look(watch, watcher(orders, inbox))
    assert names(orders) == ["a", "b", "c"]
    assert "no answer; trying again" in caplog.text


def test_a_file_that_is_replaced_or_comes_again_is_another_order(
    coordinator: Coordinator, orders: Sorter, inbox: Path
) -> None:
    watch, file = watcher(orders, inbox), inbox / "a"
    file.write_text("1")
    look(watch)
    (inbox / ".new").write_text("2")
    os.utime(inbox / ".new", ns=(7, 7))
    (inbox / ".new").rename(file)
    look(watch)
    assert names(orders) == ["a", "a@7"]
    file.rename(inbox.parent / "aside")
    look(watch)
    (inbox.parent / "aside").rename(file)
    look(watch)
    assert names(orders) == ["a", "a@7", "a@7+2"]
    assert coordinator.job("orders/a@7").args == (str(file),)


def test_what_has_vanished_is_forgotten_and_nothing_else(coordinator: Coordinator, orders: Sorter, inbox: Path) -> None:
    watch, other = watcher(orders, inbox, "*.a"), watcher(orders, inbox, "*.b")
    for name in ("1.a", "2.a", "1.b"):
        (inbox / name).touch()
    look(watch, other)
    seen = coordinator.store.key("seen", "orders")
    (inbox / "1.a").unlink()
    look(watch, other)
    found: Any = coordinator.store._client.hkeys(seen)
    assert {os.path.basename(path) for path in found} == {b"2.a", b"1.b"}
    late = watcher(orders, inbox, "*.a")
    for name in ("2.a", "1.b"):
        (inbox / name).unlink()
    look(late)
    assert coordinator.store._client.exists(seen) == 0
    assert len(names(orders)) == 3, "an order stays when its file goes"


def test_a_watcher_that_is_behind_forgets_no_file_that_was_replaced(
    coordinator: Coordinator, orders: Sorter, inbox: Path
) -> None:
    (inbox / "a").write_text("1")
    look(watcher(orders, inbox))
    sorters = Sorters(coordinator.store)
    before = sorters.remembered("orders")
    (inbox / "a").write_text("22")
    look(watcher(orders, inbox))
    after = sorters.remembered("orders")
    sorters.forget("orders", before)
    assert sorters.remembered("orders") == after != before


def test_a_directory_that_cannot_be_read_or_is_another_one_costs_nothing(
    orders: Sorter, inbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch = watcher(orders, inbox)
    (inbox / "a").touch()
    look(watch)
    inbox.rename(inbox.parent / "away")
    look(watch)
    inbox.mkdir()
    (inbox / "b").touch()
    look(watch)
    assert names(orders) == ["a"]
    shutil.rmtree(inbox)
    (inbox.parent / "away").rename(inbox)
    (inbox / "c").touch()
    look(watch)
    assert names(orders) == ["a", "c"]
    said = [record.getMessage() for record in caplog.records]
    assert [("No such file" in text, "another directory" in text) for text in said] == [(True, False), (False, True)]


def test_names_that_are_no_text_or_too_long_become_orders_too(
    coordinator: Coordinator, orders: Sorter, inbox: Path
) -> None:
    strange = [b"caf\xe9", b"two\nlines", "a\u202eb".encode(), "é".encode() * 120, b"\xff" * 250]
    for name in strange:
        (inbox / os.fsdecode(name)).touch()
    watch = watcher(orders, inbox)
    look(watch, times=3)
    found = names(orders)
    assert [name for name in found if len(name) < 20] == [r"a\u202eb", r"caf\xe9", r"two\x0alines"]
    assert "é" * 120 in found
    (cut,) = [name for name in found if name.startswith(r"\xff")]
    assert len(cut) == 300
    assert os.fsencode(coordinator.job(r"orders/caf\xe9").args[0]) == os.fsencode(inbox) + b"/caf\xe9"


def test_a_file_of_which_no_order_can_be_made_is_told_once_and_holds_up_no_other(
    orders: Sorter, inbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = True

    def made(path: Path) -> dict[str, Any]:
        if path.name == "b" and broken:
            raise ValueError("unheard of")
        return signature(path)

    watch = watcher(orders, inbox, signature=made)
    for name in "abc":
        (inbox / name).touch()
    (inbox / "a circle").symlink_to("a circle")
    look(watch, times=4)
    assert names(orders) == ["a", "c"]
    assert [caplog.text.count(said) for said in ("cannot make an order of", "Too many levels")] == [1, 1]
    broken = False
    look(watch, times=1)
    assert names(orders) == ["a", "b", "c"]


@pytest.mark.parametrize("away", [True, False], ids=["it was away", "a while has passed"])
def test_what_redis_has_forgotten_is_added_again(
    coordinator: Coordinator, orders: Sorter, inbox: Path, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """It may have been restored from an older file."""
    watch, store = watcher(orders, inbox), coordinator.store
    (inbox / "a").touch()
    look(watch)
    coordinator.cancel("orders/a")
    store._client.delete(store.key("seen", "orders"), store.key("job", "orders/a"))
    look(watch)
    assert names(orders) == []
    if away:
        (inbox / "b").touch()
        monkeypatch.setattr(Sorters, "hold", lambda *_: (_ for _ in ()).throw(StoreUnavailable("away")))
        look(watch)
        monkeypatch.undo()
        (inbox / "b").unlink()
    else:
        watch._ask_at = 0.0
    look(watch)
    assert names(orders) == ["a"]


def test_files_stand_in_the_order_of_their_names(coordinator: Coordinator, inbox: Path) -> None:
    sorter = coordinator.sorter("orders", order="natural")
    for number in (10, 9, 2):
        (inbox / f"{number}.xml").touch()
    look(watcher(sorter, inbox))
    assert names(sorter) == ["2.xml", "9.xml", "10.xml"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"pattern": "sub/*.xml"}, "pattern 'sub/"),
        ({"pattern": ""}, "pattern ''"),
        ({"directory": "/nowhere"}, "cannot watch /nowhere"),
        ({"directory": __file__}, "cannot watch"),
        ({"key": ""}, "a key is text"),
        ({"signature": {"task": 1}}, "not a signature"),
        ({"poll": 0}, "poll is seconds above 0"),
        ({"poll": None}, "poll is seconds above 0"),
        ({"colour": "red"}, "colour"),
        ({"job_id": "x"}, "job_id: an order's job id"),
        ({"when_busy": "skip"}, "when_busy='skip'"),
    ],
)
def test_a_watch_that_cannot_work_is_refused_at_once(
    orders: Sorter, inbox: Path, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidJob, match=says):
        orders.watch(**{"directory": inbox, "key": "k", "signature": signature, "stop": threading.Event(), **given})


def test_a_task_is_no_signature(orders: Sorter, inbox: Path) -> None:
    class Task:
        def delay(self) -> None: ...

        def __call__(self, path: Path) -> dict[str, Any]:
            raise AssertionError("it is not to be run here")

    with pytest.raises(InvalidJob, match="is a task"):
        orders.watch(inbox, key="k", signature=Task())


def test_a_watch_ends_when_its_process_shuts_down(coordinator: Coordinator, orders: Sorter, inbox: Path) -> None:
    (inbox / "a").touch()
    coordinator.stop_submitting()
    with pytest.raises(ShuttingDown):
        orders.watch(inbox, key="k", signature=signature, poll=0.01, if_unknown="wait")
    assert names(orders) == []
