"""Jobs at many moments, as Redis has them: how many are at work, may begin, and wait."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from coordinator.core.store.client import Store
from tests.harness.waiting import looking

# One step of Redis: no job moves meanwhile.
LOOK = """
local found = {running = 0, ready = 0, waiting = 0}
for _, job in ipairs(KEYS) do
  local state = redis.call('HGET', job, 'state')
  if state then found[state] = (found[state] or 0) + 1 end
end
return {found.running, found.ready, found.waiting}
"""


class Seen(NamedTuple):
    running: int
    ready: int
    waiting: int


def watched(store: Store, ids: Sequence[str]) -> AbstractContextManager[list[Seen]]:
    """What these jobs do, looked at again and again until the body ends."""
    script, records = store._client.register_script(LOOK), [store.key("job", one) for one in ids]
    return looking(lambda: Seen(*script(keys=records)), pause=0.002)
