"""All keys of an installation as Redis holds them, in one round trip. Imports nothing of the coordinator."""

from typing import Any, Self

READ = """
local found = {}
for _, key in ipairs(redis.call('KEYS', KEYS[1] .. '*')) do
  local kind, held = redis.call('TYPE', key).ok, nil
  if kind == 'string' then held = {redis.call('GET', key)}
  elseif kind == 'hash' then held = redis.call('HGETALL', key)
  elseif kind == 'set' then held = redis.call('SMEMBERS', key)
  elseif kind == 'list' then held = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'stream' then
    held = {}
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do held[#held + 1] = cjson.encode(entry) end
  else held = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  found[#found + 1] = {string.sub(key, #KEYS[1] + 1), kind, redis.call('PTTL', key), held}
end
return found
"""


class Dump:
    """`held`: name without prefix -> str, dict, set, list, or for a sorted set a list of (member, score) in order.

    `fading`: the names that have a ttl.
    """

    def __init__(self, rows: list[Any]) -> None:
        """`rows`: the reply to READ, all bytes made text."""
        self.held: dict[str, Any] = {}
        self.fading: set[str] = set()
        self._kinds: dict[str, dict[str, Any]] = {}
        for name, kind, ttl, held in rows:
            parts, text = [str(part) for part in held], str(name)
            what, colon, rest = text.partition(":")
            self.held[text] = _whole(_shaped(kind, parts))
            if colon:
                self._kinds.setdefault(what, {})[rest] = self.held[text]
            if ttl >= 0:
                self.fading.add(text)

    @classmethod
    def of(cls, client: Any, prefix: str) -> Self:
        return cls(text_of(client.eval(READ, 1, prefix)))

    def under(self, kind: str) -> dict[str, Any]:
        """What is held by the keys `<kind>:<name>`, by name."""
        return self._kinds.get(kind, {})

    def records(self) -> dict[str, dict[str, str]]:
        """Of jobs, without aliases."""
        return {name: record for name, record in self.under("job").items() if "state" in record}

    def scores(self, name: str) -> dict[str, float]:
        return dict(self.held.get(name, ()))

    def stable(self) -> dict[str, Any]:
        """What a repeated call must leave as it is: all but the clock and the wake-ups.

        A look for work that fits may turn a ready list round: each begins with its least name here.
        """
        loose = (
            "time",
            "clock",
            "silence",
            "ends",
            "bells",
            "room",
            "rung:",
            "wakes:",
            "waits",
            "errands:",
            "swept",
            "tallies",
        )
        found = {name: held for name, held in self.held.items() if not name.startswith(loose)}
        for name, held in found.items():
            if name.startswith("node:"):
                found[name] = {field: value for field, value in held.items() if field != "turn"}
            if name.startswith(("ready:", "group:")):
                queue = [one for one, _ in held]
                first = queue.index(min(queue))
                found[name] = queue[first:] + queue[:first]
        return found


def text_of(value: Any) -> Any:
    """All bytes made text."""
    if isinstance(value, list):
        return [text_of(one) for one in value]
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


def _shaped(kind: str, parts: list[str]) -> Any:
    if kind == "string":
        return parts[0]
    if kind == "hash":
        return dict(zip(parts[::2], parts[1::2], strict=True))
    if kind == "zset":
        return [(member, float(score)) for member, score in zip(parts[::2], parts[1::2], strict=True)]
    return set(parts) if kind == "set" else parts


def _whole(held: Any) -> Any:
    """A success has its numbers in one text."""
    if not isinstance(held, dict) or "past" not in held:
        return held
    submitted, taken, started, ended, fence, attempt, node = held.pop("past").split(" ")
    since, begun = int(submitted), int(submitted) + int(started)
    times = {"submitted": since, "taken": since + int(taken), "started": begun, "ended": since + int(ended)}
    numbers = {**times, "fence": begun * 1000 + int(fence), "attempt": int(attempt)}
    return held | {name: str(number) for name, number in numbers.items()} | {"node": node, "faded": "1"}
