"""Scripts on a clock of the test's own, their text changed in memory where a mutation asks for it.

TIME, PEXPIRE and SET … PX go by `<prefix>clock` (ms), which stands still until `Clocked.jump`; what ends by then is
deleted there. Nothing waits, and nothing lapses by itself however slow the machine is.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from coordinator.settings import Settings
from coordinator.store import Arg, Store, assemble, text_of
from tests.model.record import BEGINNING

_CLOCK = """
local redis = (function(server)
  local at, ends = tonumber(server.call('GET', KEYS[1] .. 'clock')), KEYS[1] .. 'ends'
  local function call(command, ...)
    if command == 'TIME' then return {string.format('%.0f', math.floor(at / 1000)), tostring(at % 1000 * 1000)} end
    if command ~= 'SET' and command ~= 'PEXPIRE' then return server.call(command, ...) end
    local words, number, ms = {...}, select('#', ...), nil
    local function later(i) ms, words[i] = words[i], words[i] + 86400000 end
    if command == 'PEXPIRE' then later(2) end
    for i = 3, number - 1 do
      if words[i] == 'PX' then later(i + 1) end
    end
    local reply = server.call(command, unpack(words, 1, number))
    if ms and reply then server.call('ZADD', ends, at + ms, words[1]) end -- not where SET … NX found one there
    return reply
  end
  return setmetatable({call = call}, {__index = server})
end)(redis)
"""

_JUMP = """
local now = redis.call('INCRBY', KEYS[1] .. 'clock', ARGV[1])
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1] .. 'ends', '-inf', now)) do
  redis.call('ZREM', KEYS[1] .. 'ends', key)
  if redis.call('PTTL', key) > 0 then redis.call('DEL', key) end
end
return now
"""


class Mutation(NamedTuple):
    """`why`: what is wrong with `new` for `old` in lua/<file>.lua; `seldom`: left to `make rough`."""

    file: str
    why: str
    old: str
    new: str
    seldom: bool = False


@cache
def assembled(script: str, mutation: Mutation | None = None) -> str:
    """lua/<script>.lua with its includes, as the store puts it together."""

    def mutated(file: str) -> str:
        text = text_of(file)
        return text.replace(mutation.old, mutation.new) if mutation and mutation.file == file else text

    return assemble(script, mutated)


class Clocked(Store):
    """An installation whose time is the test's."""

    def __init__(self, settings: Settings, mutation: Mutation | None = None) -> None:
        super().__init__(settings)
        self.mutation = mutation
        self.used: set[str] = set()
        self._scripts: dict[str, str] = {}
        self.client.set(self.prefix + "clock", BEGINNING)

    def _ask(self, script: str, args: Sequence[Arg], eager: bool = False) -> Any:
        self.used.add(script)
        text = _CLOCK + assembled(script, self.mutation)
        sha = self._scripts.get(script) or self._scripts.setdefault(script, self.client.script_load(text))
        return self.client.evalsha(sha, 1, self.prefix, *args)

    def jump(self, ms: int) -> int:
        """The new time."""
        return int(self.client.eval(_JUMP, 1, self.prefix, ms))

    def forget(self) -> None:
        """Delete all that was written under this prefix."""
        names = list(self.client.scan_iter(self.prefix + "*", 1000))
        if names:
            self.client.delete(*names)
