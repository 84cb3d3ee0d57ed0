"""The library on a clock of the test's own, its text changed in memory where a mutant asks for it.

TIME, PTTL, PEXPIRE and SET … PX go by `<prefix>time` (ms), which stands still until `Clocked.jump`, forth or back; what
ends by then is deleted there. Nothing waits, and nothing lapses by itself however slow the machine is. SMEMBERS and
SINTER go by it, too: each server has an order of its own, and a course is to be the same on all of them.
"""

import uuid
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.core.store.library import Library, assemble, text_of
from coordinator.core.store.wire import Arg
from proof.model.mutant import Mutant
from proof.model.raw import Dump
from proof.model.record import BEGINNING

T = TypeVar("T")

_BEGIN = """
local function server() return redis end -- while the library is loaded it is another than in a call
local redis = (function()
  local at, since, ends, told
  local function call(command, ...)
    if command == 'TIME' then
      return {string.format('%.0f', math.floor(at / 1000)), string.format('%.0f', at % 1000 * 1000)}
    end
    if command == 'PTTL' then
      local till = server().call('EXISTS', (...)) == 1 and server().call('ZSCORE', ends, (...))
      return till and till - since or -2
    end
"""
_SORTED = """
    if command == 'SMEMBERS' or command == 'SINTER' then
      local all, even = server().call(command, ...), math.floor(at / 1000) % 2 == 0
      table.sort(all, function(one, other) if even then return one < other end return other < one end)
      return all
    end
"""
_TOLD = """
    if command == 'PUBLISH' then
      local count, member = tonumber(server().call('LPOP', told) or 0), string.match(..., ':member:[^:]+:(.*)$')
      if not member then return count end
      return 1 - server().call('SISMEMBER', told .. ':gone', member) -- members come in another order than they did
    end
    if command == 'INFO' then return server().call('LPOP', told) or '' end
"""
_END = """
    if command ~= 'SET' and command ~= 'PEXPIRE' then return server().call(command, ...) end
    local words, number, ms, free = {...}, select('#', ...), nil, {}
    local function later(i) ms, words[i] = words[i], words[i] + 86400000 end
    if command == 'PEXPIRE' then later(2) end
    for i = 3, number - 1 do
      if words[i] == 'PX' then later(i + 1) end
      free[words[i]] = true
    end
    local reply = server().call(command, unpack(words, 1, number))
    local done = reply
    if free.NX and free.GET then done = not reply end
    if not ms or not done then return reply end -- SET … NX found one there
    local till = words[3] == 'GT' and server().call('ZSCORE', ends, words[1]) or since + ms
    server().call('ZADD', ends, math.max(since + ms, tonumber(till)), words[1])
    return reply
  end
  local function register(function_)
    local callback = function_.callback
    function_.callback = function(keys, args)
      at, since = string.match(server().call('GET', keys[1] .. 'time'), '^(%S+) (%S+)$')
      at, since, ends = tonumber(at), tonumber(since), keys[1] .. 'ends'
      told = keys[1] .. 'told'
      return callback(keys, args)
    end
    return server().register_function(function_)
  end
  return {
    call = call,
    pcall = function(command, ...)
      if command == 'INFO' then return call(command, ...) end
      return server().pcall(command, ...)
    end,
    log = function(_, text) error(text, 0) end, -- of base.guarded: what it would swallow
    register_function = register,
    sha1hex = function(text) return server().sha1hex(text) end,
  }
end)()
"""

_CLOCK = _BEGIN + _SORTED + _END
AGAIN = _BEGIN + _TOLD + _END
"""For steps that are done again: the server answers of others what `<prefix>told` lists."""

_GO = """
redis.call('SET', KEYS[1] .. 'time', ARGV[1] .. ' ' .. ARGV[2])
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1] .. 'ends', '-inf', ARGV[3])) do
  redis.call('ZREM', KEYS[1] .. 'ends', key)
  if redis.call('PTTL', key) > 0 then redis.call('DEL', key) end
end
"""


@cache
def library(mutant: Mutant | None = None, before: str = _CLOCK) -> Library:
    """As the store puts it together, behind the clock."""

    def planted(file: str) -> str:
        return mutant.plant(text_of(file)) if mutant and mutant.file == file else text_of(file)

    return assemble(planted, before)


def go_to(client: Any, prefix: str, ms: float, since: int, over: int) -> None:
    """The clock of an installation shows this instant. Keys that get a ttl have it `since` then; what ended by `over`
    is gone.
    """
    client.eval(_GO, 1, prefix, repr(ms), since, over)


class Clocked(Store):
    """A new installation whose time is the test's. Nothing is left of it once it is closed.

    Between two steps nothing changes, so what is read there again is as it was: the answers are kept that long.
    """

    def __init__(self, url: str, mutant: Mutant | None = None, **settings: float) -> None:
        named = {"url": url, "prefix": f"m{uuid.uuid4().hex[:8]}", **settings}
        super().__init__(Settings.model_validate(named))
        self.library = library(mutant)
        self.used: set[str] = set()
        self._kept: dict[Hashable, Any] = {}
        self.time = BEGINNING
        self.jump(0)

    def step(self, name: str, *args: Arg, job_id: str | None = None) -> Any:
        self.used.add(name)
        self._kept.clear()
        return super().step(name, *args, job_id=job_id)

    def step_many(self, name: str, calls: Iterable[Sequence[Arg]]) -> list[Any]:
        self._kept.clear()
        return super().step_many(name, calls)

    def read(self, command: str, *args: Arg, job_id: str | None = None) -> Any:
        return self._once((command, args), lambda: super(Clocked, self).read(command, *args, job_id=job_id))

    def read_many(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[Any]:
        asked = [tuple(command) for command in commands]
        return self._once(tuple(asked), lambda: super(Clocked, self).read_many(asked, atomic))

    def look(self, name: str, *args: Arg) -> Any:
        self.used.add(name)
        return self._once((name, args), lambda: super(Clocked, self).look(name, *args))

    def dump(self) -> Dump:
        return self._once("dump", lambda: Dump.of(self._client, self.prefix))

    def _once(self, asked: Hashable, ask: Callable[[], T]) -> T:
        if asked not in self._kept:
            self._kept[asked] = ask()
        answer: T = self._kept[asked]
        return answer

    def jump(self, ms: int) -> int:
        """The new time."""
        self._kept.clear()
        self.time += ms
        go_to(self._client, self.prefix, self.time, self.time, self.time)
        return self.time

    def close(self) -> None:
        if names := list(self._client.scan_iter(self.prefix + "*", 1000)):
            self._client.delete(*names)
        super().close()
