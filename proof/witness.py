"""Where the tasks, the clients and the nemesis write down what they do: a list in a Redis that no fault touches.

Each line is an event as Jepsen writes them: who (`process`), `type` (`invoke` begins it; `ok` and `fail` end it; `info`
says something at once), what (`f`) and a `value`. The witness adds the time; the place in the list is the order.
"""

import json
import os
import socket
import threading
from typing import Any

import redis

# The cell of a key, as a store would guard it: it refuses a fence that is older than the greatest it has seen, and
# applies each `what` once.
_WRITE = """
local t = redis.call('TIME')
local greatest, outcome = tonumber(redis.call('HGET', KEYS[2], 'fence') or 0), 'applied'
if tonumber(ARGV[2]) < greatest then
  outcome = 'refused'
else
  redis.call('HSET', KEYS[2], 'fence', ARGV[2])
  if redis.call('HSETNX', KEYS[2], ARGV[3], 1) == 0 then outcome = 'known' end
end
local line = string.gsub(ARGV[1], '"@outcome"', '"' .. outcome .. '"')
redis.call('RPUSH', KEYS[1], string.format('%.0f ', t[1] * 1000000 + t[2]) .. line)
return outcome"""
_NOTE = """
local t = redis.call('TIME')
return redis.call('RPUSH', KEYS[1], string.format('%.0f ', t[1] * 1000000 + t[2]) .. ARGV[1])"""


# A run writes its fence into its cells, which then refuse earlier runs.
_BEGIN = (
    """
for place = 2, #KEYS do
  local greatest = tonumber(redis.call('HGET', KEYS[place], 'fence') or 0)
  if tonumber(ARGV[2]) > greatest then redis.call('HSET', KEYS[place], 'fence', ARGV[2]) end
end"""
    + _NOTE
)


class Witness:
    """`process`: the name of the writer, noted with its process id, and with its thread, or greenlet, if it is another
    than the first.
    """

    def __init__(self, url: str, name: str, process: str = "") -> None:
        self._redis = redis.Redis.from_url(url, decode_responses=True)
        self._name = name
        self._process = process or socket.gethostname()

    @classmethod
    def here(cls, process: str = "") -> "Witness":
        """The witness that the environment names."""
        return cls(os.environ["TEST_LOG"], os.environ["TEST_PREFIX"], process)

    @property
    def process(self) -> str:
        """Who writes."""
        is_first = threading.current_thread() is threading.main_thread()
        thread = "" if is_first else f".{threading.get_ident()}"
        return f"{self._process}{thread}/{os.getpid()}"

    def note(self, type: str, f: str, **value: Any) -> None:
        self._redis.eval(_NOTE, 1, f"{self._name}.history", self._line(type, f, value))

    def begin(self, cells: list[str], fence: int, **value: Any) -> None:
        """Note that a run begins; earlier runs can no longer write into its cells."""
        line = self._line("invoke", "run", {"fence": fence, **value})
        keys = [f"{self._name}.history", *(f"{self._name}.cell.{cell}" for cell in cells)]
        self._redis.eval(_BEGIN, len(keys), *keys, line, fence)

    def write(self, cell: str, fence: int, what: str, **value: Any) -> str:
        """Apply an effect, after a check of its fence and name. Returns `applied`, `known` or `refused`."""
        line = self._line("info", "write", {"cell": cell, "fence": fence, "what": what, "outcome": "@outcome", **value})
        keys = f"{self._name}.history", f"{self._name}.cell.{cell}"
        return str(self._redis.eval(_WRITE, 2, *keys, line, fence, f"what {what}"))

    def now(self) -> int:
        """Seconds since 1970, by its clock: the same for all who ask."""
        seconds, _ = self._redis.time()
        return int(seconds)

    def lines(self, last: int = 0) -> list[str]:
        """All events, or the `last` ones, as "<time in µs> <event in JSON>"."""
        return [str(line) for line in self._redis.lrange(f"{self._name}.history", -last, -1)]

    def _line(self, type: str, f: str, value: dict[str, Any]) -> str:
        event = {"process": self.process, "type": type, "f": f, "value": value}
        return json.dumps(event, separators=(",", ":"))
