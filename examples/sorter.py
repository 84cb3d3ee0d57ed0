"""A sorter: orders arrive in any order, and run in the order of their names.

Files arrive in a directory, and the operator adds another order. The sorter holds them, visible and cancellable, until
none has come for two seconds. Then all of them stand in line, sorted, and run one after another. Later orders are the
next batch.

Run it: python examples/sorter.py
"""

import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from celery import Celery
from onemachine import Machine, say, until

from coordinator import Coordinator, Sorter

app = Celery("sorter")
coordinator = Coordinator(app)


@app.task
def load(path: str) -> str:
    say(f"{Path(path).name} is loaded")
    time.sleep(0.1)
    return path


def order(path: Path) -> Any:
    return load.s(str(path))


def arrive(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).write_text("an order")


def show(machine: Machine, sorter: Sorter, count: int) -> None:
    until(lambda: len(sorter.orders()) == count)
    machine.say(f"held: {', '.join(sorter.orders())}")


def main() -> None:
    stop = threading.Event()
    with Machine() as machine, TemporaryDirectory() as directory:
        machine.workers("sorter", coordinator, "one")
        sorter = coordinator.sorter("stock", idle_timeout=2, order="natural")
        # A thread is enough here; in real use, run it as a process, on any number of hosts.
        watch = threading.Thread(
            target=sorter.watch,
            args=(directory, "*.xml"),
            kwargs={"key": "stock", "signature": order, "poll": 0.1, "stop": stop},
        )
        watch.start()
        try:
            arrive(Path(directory), "10.xml", "9.xml", "3.xml", "readme.txt")
            sorter.add("2-by-hand", "stock", load.s("2-by-hand"))
            show(machine, sorter, 4)
            machine.say(f"stock/3.xml is {coordinator.cancel('stock/3.xml', why='not needed today')}")
            until(lambda: not coordinator.sorters())
            arrive(Path(directory), "1.xml")
            show(machine, sorter, 1)
            machine.say(f"the last one is {coordinator.wait('stock/1.xml', 60).state}")
        finally:
            stop.set()
            watch.join()


if __name__ == "__main__":
    main()
