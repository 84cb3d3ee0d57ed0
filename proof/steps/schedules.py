"""The plain model of schedules: beats agree on the entries of a source, and send each instant of an entry once.

Of what operators do with entries, only backfills are here, and no stop of one: no seed has the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proof.steps.asked import Unknown

STORED = "entries"


@dataclass
class Tick:
    """An entry: `last`: its last instant that somebody took, or passed over; `unsent`: one that the beat with `token`
    is to send until `till`.
    """

    source: str
    hash: str
    last: int
    unsent: str = ""
    token: str = ""
    till: int = 0


FILLED = ["to_come", "in_line", "succeeded", "failed", "cancelled", "expired", "rolled_back", "double_fault"]


@dataclass
class Fill:
    """The backfill of an entry. `known`: the state of each instant and its ms, by the end of its id."""

    at_once: str = ""
    reverse: bool = False
    open: bool = False
    known: dict[str, tuple[str, int]] = field(default_factory=dict)

    def number(self, state: str) -> int:
        return sum(one == state for one, _ in self.known.values())

    def set(self, ending: str, state: str) -> None:
        self.known[ending] = state, self.known[ending][1]

    def look_after(self) -> None:
        self.open = self.number("to_come") + self.number("in_line") > 0


@dataclass
class Source:
    """`seen`: when a beat said last that `version` is the current one; `waits`: a version that may follow it."""

    version: str = ""
    seen: int = 0
    waits: str = ""


class Schedules:
    """`now`, `wall`: set before each step."""

    def __init__(self) -> None:
        self.now = self.wall = 0
        self.ticks: dict[str, Tick] = {}
        self.sources: dict[str, Source] = defaultdict(Source)
        self.texts: dict[str, str] = {}
        self.changes: list[str] = []
        self.fills: dict[str, Fill] = {}
        self.state_of: Callable[[str], str] = lambda job: ""  # of a job; in_line: it is not over; "": it has no record

    def _news(self) -> list[Any]:
        backfills = [part for name, fill in self.fills.items() if fill.open for part in (name, fill.at_once)]
        return ["0", str(len(self.changes)), [], backfills]

    def put(self, name: str, text: str, hash: str) -> list[Any]:
        tick = self.ticks.get(name)
        if tick and tick.source != STORED:
            return [-1, tick.source]
        if tick and tick.hash == hash:
            return [0]
        if tick:
            tick.unsent = ""
        self.texts[name] = text
        self.changes.append(name)
        self._follow(STORED, self.wall, name, hash)
        return [1]

    def remove(self, name: str) -> list[Any]:
        tick = self.ticks.get(name)
        if tick and tick.source != STORED:
            return [-1, tick.source]
        if name not in self.texts:
            return [0]
        del self.texts[name]
        del self.ticks[name]
        if name in self.fills:
            self.fills[name].open = False
        self.changes.append(name)
        return [1]

    def read(self, since: str, cursor: str, told: list[Any]) -> list[Any]:
        """`told`: a page of all is in an order of the server's own."""
        if since and int(since) > len(self.changes):
            return [len(self.changes), ""]
        if since:
            names = list(dict.fromkeys(self.changes[int(since) :]))
            return [len(self.changes), 0, *map(self._entry, names)]
        page = [len(self.changes), told[1], *sorted(map(self._entry, self.texts))]
        whole = cursor == "0" == told[1]
        if whole and page == [int(told[0]), told[1], *sorted(told[2:])]:
            return told
        return page if whole else told

    def _entry(self, name: str) -> list[str]:
        last = self.ticks[name].last if name in self.ticks else 0
        return [name, self.texts.get(name, ""), str(last)]

    def _follow(self, source: str, since: int, name: str, hash: str) -> int:
        """A new or changed one counts from then, and no instant comes twice."""
        tick = self.ticks.get(name)
        if not tick:
            tick = self.ticks[name] = Tick(source, "", 0)
        if tick.hash != hash:
            tick.hash, tick.last = hash, min(max(tick.last, since), self.wall)
        tick.source = source
        return tick.last

    def follow(self, source: str, version: str, before: str, lapse: int, entries: str, fours: list[str]) -> list[Any]:
        known, news = self.sources[source], self._news()
        alone = self.now - known.seen
        free = not known.version or known.version == before or alone > lapse
        if known.version != version and (entries == "none" or not free):
            known.waits = version
            return ["behind", self.wall, [], [], news]
        rested = known.version not in ("", version) and known.waits == version
        since = self.wall - alone if rested else self.wall
        names, hashes = fours[::4], fours[1::4]
        lasts = [self._follow(source, since, name, hash) for name, hash in zip(names, hashes, strict=True)]
        if entries == "all":
            for name in [name for name, tick in self.ticks.items() if tick.source == source and name not in names]:
                del self.ticks[name]
        if known.version != version:
            known.waits = ""
        known.version, known.seen = version, self.now
        overdue = [(tick.till, name) for name, tick in self.ticks.items() if tick.unsent and tick.till <= self.now]
        return ["current", self.wall, lasts, [name for _, name in sorted(overdue)[:64]], news]

    def take(
        self, name: str, hash: str, other: str, instant: str, former: str, token: str, lease: int, word: str,
        keyed: bool, submit: Callable[[], str],
    ) -> list[Any]:  # fmt: skip
        """`submit`: puts its job in line, and says what became of it."""
        tick = self.ticks.get(name)
        if other:
            raise Unknown("an entry whose schedule an operator changed")
        if not tick or tick.hash != hash:
            return ["stale", instant, tick.last if tick else 0, self.wall, ""]
        if tick.unsent:
            if tick.token != token and tick.till > self.now:
                return ["held", tick.unsent, tick.last, self.wall, ""]
            keyed = keyed and instant == tick.unsent
            instant = tick.unsent
        elif int(instant) <= tick.last or tick.last < int(former):
            return ["over", instant, tick.last, self.wall, ""]
        elif int(instant) > self.wall:
            return ["early", instant, tick.last, self.wall, ""]
        else:
            tick.last = int(instant)
        if not word and not keyed:
            tick.unsent, tick.token, tick.till = instant, token, self.now + lease
            return ["taken", instant, tick.last, self.wall, ""]
        verdict = "passed" if word else "sent"
        tick.unsent = ""
        return [verdict, instant, tick.last, self.wall, word or submit()]

    def done(self, name: str, instant: str, token: str) -> int:
        tick = self.ticks.get(name)
        if not tick or tick.unsent != instant or tick.token != token:
            return 0
        tick.unsent = ""
        return 1

    def fill(self, name: str, at_once: str, reverse: bool, instants: list[str]) -> list[int]:
        """Backfill instants: the end of the id and ms of each, in turns."""
        tick = self.ticks.get(name)
        if not tick:
            return [-1]
        fill = self._fill(name)
        fill.at_once, fill.reverse = at_once, reverse
        found, new, beats = list[str](), 0, 0
        for ending, ms in zip(instants[::2], instants[1::2], strict=True):
            if ending not in fill.known:
                if int(ms) > tick.last or ms == tick.unsent:
                    beats += 1
                    continue
                state = self.state_of(f"{name}@{ending}")
                new += not state
                fill.known[ending] = state or "to_come", int(ms)
            found.append(fill.known[ending][0])
        fill.look_after()
        return [1, new, *map(found.count, FILLED), beats]

    def look(self, name: str, room: int) -> list[str]:
        fill = self._fill(name)
        if not fill.open:
            return []
        for ending in [ending for ending, (state, _) in fill.known.items() if state == "in_line"]:
            fill.set(ending, self.state_of(f"{name}@{ending}") or "to_come")
        fill.look_after()
        free = room - fill.number("in_line")
        coming = sorted((ms, ending) for ending, (state, ms) in fill.known.items() if state == "to_come")
        chosen = coming[:: -1 if fill.reverse else 1][: max(0, free)]
        return [part for ms, ending in chosen for part in (ending, str(ms))]

    def put_in_line(
        self, name: str, hash: str, ending: str, room: int, submit: Callable[[], list[Any]]
    ) -> list[str]:  # fmt: skip
        """`submit`: puts its job in line, and answers as that step."""
        tick, fill, job = self.ticks.get(name), self._fill(name), f"{name}@{ending}"
        if not tick or tick.hash != hash:
            return ["stale", ""]
        if not fill.open or fill.known.get(ending, ("",))[0] != "to_come":
            return ["over", ""]
        if fill.number("in_line") >= room:
            return ["full", ""]
        if self.state_of(job) == "cancelled":
            raise Unknown("a job that a stop took out of line")
        outcome, place, other, *_ = submit()
        if outcome in ("undeclared", "too_many"):
            return ["refused", f"{other}\n{place}"]
        fill.set(ending, self.state_of(job) or "succeeded")
        return [outcome, ""]

    def give_up(self, name: str, hash: str) -> int:
        tick, fill = self.ticks.get(name), self._fill(name)
        was = bool(tick and tick.hash == hash and fill.open)
        fill.open = fill.open and not was
        return int(was)

    def _fill(self, name: str) -> Fill:
        """With the ends of its jobs since the last step."""
        fill = self.fills.setdefault(name, Fill())
        for ending, (state, _) in list(fill.known.items()):
            if state != "to_come" and (end := self.state_of(f"{name}@{ending}")):
                fill.set(ending, end)
        return fill
