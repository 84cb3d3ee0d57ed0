"""How many files does a submit pass? A move is a call from one file of `coordinator/` into another.

Counted by `sys.setprofile` over the second submit of a process: the first connects, and reads the task's defaults.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from celery import Celery

import coordinator
from bench.servers import redis_server
from coordinator import Coordinator

LIBRARY = str(Path(coordinator.__file__).parent) + "/"


def main() -> None:
    with redis_server() as url:
        app = Celery("bench", broker=f"{url}/1", set_as_current=False)
        keyed = Coordinator(app, url=f"{url}/0")

        @app.task(name="bench.ship")
        def ship(order: int) -> None:
            """Never run here."""

        keyed.submit("k", ship.s(1))
        signature = ship.s(2)
        moves = moves_of(lambda: keyed.submit("k", signature))
    files = {move.partition(":")[0] for move in moves}
    print(f"a submit: {len(moves)} moves through {len(files)} files")
    for move in moves:
        print(f"  {move}")


def moves_of(act: Callable[[], Any]) -> list[str]:
    """`file:function` of each call from one file into another while `act` runs."""
    found: list[str] = []

    def count(frame: FrameType, event: str, arg: Any) -> None:
        caller = frame.f_back
        if event != "call" or caller is None:
            return
        here, there = frame.f_code.co_filename, caller.f_code.co_filename
        if here != there and here.startswith(LIBRARY) and there.startswith(LIBRARY):
            found.append(f"{here.removeprefix(LIBRARY)}:{frame.f_code.co_qualname}")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


if __name__ == "__main__":
    main()
