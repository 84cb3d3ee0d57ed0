"""A lane at many moments, as Redis has it: how many of its jobs are at work, may begin, and wait."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from coordinator.store.client import Store

# One step of Redis: no job moves meanwhile.
LOOK = """
local found = {running = 0, ready = 0, waiting = 0}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local state = redis.call('HGET', ARGV[1] .. id, 'state')
  if state then found[state] = (found[state] or 0) + 1 end
end
return {found.running, found.ready, found.waiting}
"""


class Seen(NamedTuple):
    running: int
    ready: int
    waiting: int


@contextmanager
def watched(store: Store, key: str) -> Iterator[list[Seen]]:
    """What the lane has, looked at again and again until the body ends."""
    seen: list[Seen] = []
    over = threading.Event()
    look = store.client.register_script(LOOK)

    def watch() -> None:
        while not over.is_set():
            seen.append(Seen(*look(keys=[store.key("line", key)], args=[store.key("job", "")])))
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()
