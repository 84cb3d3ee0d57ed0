"""One process that takes and releases a lock, run by the interpreter of the lock's own environment.

`python -m bench.peers.holder NAME SECONDS PAUSE` says that it is ready and waits for a line. Then it holds the lock
again and again, each time for so long, until the time is over. It says how often, and what its longest wait was.
"""

import importlib
import sys
import time

from bench.peers.adapter import say


def main() -> None:
    name, seconds, pause = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    lock = importlib.import_module(f"bench.peers.locks.{name}").lock
    with lock("warm"):
        say(ready=True)
    sys.stdin.readline()
    held, longest, end = 0, 0.0, time.monotonic() + seconds
    while (asked := time.monotonic()) < end:
        with lock("ledger"):
            if (got := time.monotonic()) < end:
                held += 1
            longest = max(longest, got - asked)
            if pause:
                time.sleep(pause)
    say(held=held, longest=longest)


if __name__ == "__main__":
    main()
