"""A lane at many moments, as Redis has it: how many of its jobs are at work, may begin, and wait."""

from contextlib import AbstractContextManager
from typing import NamedTuple

from coordinator.store.client import Store
from tests.harness.waiting import looking

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


def watched(store: Store, key: str) -> AbstractContextManager[list[Seen]]:
    """What the lane has, looked at again and again until the body ends."""
    script = store._client.register_script(LOOK)
    return looking(lambda: Seen(*script(keys=[store.key("line", key)], args=[store.key("job", "")])), pause=0.002)
