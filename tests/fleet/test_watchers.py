"""Watchers of a folder that are killed: one order for each file."""

from pathlib import Path
from typing import Any

from coordinator import Coordinator
from tests.coordinator.sorters.batches import names
from tests.harness.waiting import wait_until
from tests.harness.warm import start

WATCH = """
import sys
from coordinator import Coordinator
client = Coordinator(url=sys.argv[1], prefix=sys.argv[2])
made = lambda path: {"task": "tests.harness.apps.shop.work", "args": [path.name], "kwargs": {}, "options": {}}
client.sorter("files", 60).watch(sys.argv[3], key="k", signature=made, poll=0.05, if_unknown="wait")
"""


def test_watchers_killed_while_files_arrive_leave_one_order_for_each(coordinator: Coordinator, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    argv = ["-c", WATCH, coordinator.settings.url, coordinator.settings.prefix, str(inbox)]

    sorter, given, watches = coordinator.sorter("files", 60), [f"{number:03}" for number in range(200)], [start(argv)]
    ended: list[Any] = []
    try:
        for turn in range(4):
            watches.append(start(argv))
            for name in given[turn * 50 : turn * 50 + 50]:
                (inbox / f".{name}").write_text(name)
                (inbox / f".{name}").rename(
                    inbox / name
                )  # whole: a writer that pauses between two looks has two orders
            wait_until(lambda turn=turn: len(sorter.orders(1000)) > turn * 50 + 10)  # type: ignore[misc]
            ended.append(watches.pop(0))
            ended[-1].kill()
        wait_until(lambda: len(sorter.orders(1000)) >= len(given))
    finally:
        for watch in [*ended, *watches]:
            watch.kill()
            watch.wait()
    assert names(sorter.orders(1000)) == given
    assert coordinator.counts()["created"] == len(given)
    for job_id in sorter.orders(1000):
        coordinator.cancel(job_id)
