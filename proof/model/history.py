"""What must hold from step to step, seen in the dumps alone."""

from collections.abc import Iterator

from proof.model.batches import Batches
from proof.model.invariants import ACTING, ENDS, Held, keys_of


class History:
    """Takings and fences, who came before whom, who is over."""

    def __init__(self) -> None:
        self.fence = 0
        self.takings: dict[str, int] = {}
        self.claims: dict[str, tuple[int, int]] = {}
        self.asked = 0
        self.admitted: set[str] = set()
        self.started: dict[str, set[str]] = {}
        self.waiting: set[str] = set()
        self.over: set[str] = set()
        self.batches = Batches()

    def came(self, name: str, priority: int, to: str = "back") -> None:
        """It was asked for: the lesser claim goes first."""
        self.asked += 1
        self.claims[name] = (-priority, self.asked if to == "back" else -self.asked)

    def again(self, name: str, priority: int, to: str) -> None:
        """An operator wants it once more: as if it came now."""
        self.over.discard(name)
        self.admitted.discard(name)
        self.came(name, priority, to)

    def look(self, held: Held) -> None:
        wrong = list(self.batches.look(held))
        for name in self.batches.let_go:
            self.came(name, int(held.records[name].get("priority", 0)))
        wrong += self._wrong(held)
        assert not wrong, wrong
        self.fence = max([self.fence, *(int(record.get("fence", 0)) for record in held.records.values())])
        self.started = {key: set(held.started(key)) for key in held.lines}
        self.waiting = {name for name, record in held.live.items() if record["state"] == "waiting"}
        for name, record in held.records.items():
            self.takings[name] = int(record.get("attempt", 0))
            if record["state"] in ENDS:
                self.over.add(name)
            if record["state"] in ACTING:
                self.admitted.add(name)

    def _wrong(self, held: Held) -> Iterator[str]:
        yield from self._takings(held)
        for key in held.lines:
            started = held.started(key)
            if len(started) > held.limit(key) and not set(started) <= self.started.get(key, set()):
                yield f"{started} are at work on {key}, where {held.limit(key)} may be"
            heavy = [name for name in started if held.live[name].get("exclusive")]
            if heavy and len(started) > 1 and not set(started) <= self.started.get(key, set()):
                yield f"{heavy} is to run alone on {key}, at work are {started}"
        for name, record in held.records.items():
            if name in self.over and record["state"] not in ENDS:
                yield f"{name} was over and is {record['state']}"
            fresh = record["state"] in ACTING and name not in self.admitted
            for key in keys_of(record) if fresh else ():
                waiting = [one for one in held.line(key) if one in self.waiting and held.waits(one)]
                better = [one for one in waiting if self.claims[one] < self.claims[name]]
                if better and len(better) + len(held.started(key)) > held.limit(key):
                    yield f"{name} goes before {better} on {key}"

    def _takings(self, held: Held) -> Iterator[str]:
        """In one step a job is taken once at most, and its count goes back only where it was handed over; each taking
        has a fence greater than all before.
        """
        fences = []
        for name, record in held.records.items():
            takings = int(record.get("attempt", 0)) - self.takings.get(name, 0)
            handed = takings == -1 and record["state"] == "ready" and not record["token"]
            if takings not in (0, 1) and not handed:
                yield f"{name} was taken {takings} times in one step"
            if takings > 0 and name in self.over:
                yield f"{name} runs again after its end"
            if takings > 0:
                fences.append(int(record["fence"]))
        if fences and (min(fences) <= self.fence or len(set(fences)) < len(fences)):
            yield f"fences {fences} after {self.fence}"
