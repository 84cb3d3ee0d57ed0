"""The plain model: ready jobs. Of each class the groups by their shares of slot seconds, of each group its jobs.

The order of groups stands here alone. A group has used a share: the time of its runs over its weight. A claim is
charged what its task usually takes; its end corrects that.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from math import floor

WORTH = 2**20  # places that a point of priority is worth
STARTED = "\1started"  # the group of those that were started before: it goes before all others
UNKNOWN, DOUBT = 1_000, 100  # ms that a run takes of which nothing is known; a difference that does not count


@dataclass
class Server:
    """What a server remembers until its library is loaded anew.

    `reached`: of each class, the share at which its last claim began; `floors`: at which one begins at least; `met`:
    nodes whose classes have met; `owed`: the group that stands in a class alone, what it is charged and
    not written yet, and for its last claim; `missed`: by class and group, the ms that were charged too little and are
    not written yet; `usual`: as it was read; `alarm`: when a quota lets its queue go on (µs); `noted`: since when it
    serves stands in Redis.
    """

    reached: dict[str, int] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    owed: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    missed: dict[tuple[str, str], int] = field(default_factory=dict)
    usual: dict[str, int] = field(default_factory=dict)
    alarm: int | None = None
    noted: bool = False


class Ready:
    """`lists`: of each class its groups, of each group its jobs in order; `scores`: of the jobs; `places`: of the
    groups. `shares`: in µs. `usual`: ms of a run, by task.
    """

    def __init__(self) -> None:
        self.lists: dict[str, dict[str, list[str]]] = defaultdict(dict)
        self.scores: dict[str, float] = {}
        self.places: dict[str, dict[str, float]] = defaultdict(dict)
        self.shares: dict[str, int] = defaultdict(int)
        self.weights: dict[str, float] = {}
        self.usual: dict[str, int] = {}
        self.server = Server()

    def groups(self, kind: str) -> dict[str, list[str]]:
        """In the order in which they are served."""
        places = self.places[kind]
        return {group: self.lists[kind][group] for group in sorted(places, key=lambda one: (places[one], one.encode()))}

    def all(self, kinds: Collection[str] | None = None) -> list[str]:
        chosen = self.lists if kinds is None else kinds
        return [name for kind in chosen for queue in self.groups(kind).values() for name in queue]

    def put(self, kind: str, group: str, name: str, score: float) -> None:
        self.scores[name] = score
        queue = self.lists[kind].setdefault(group, [])
        queue.append(name)
        queue.sort(key=lambda one: (self.scores[one], one.encode()))
        if queue == [name]:
            self._enter(kind, group)

    def _enter(self, kind: str, group: str) -> None:
        """A group that comes, or comes back, begins where its class is."""
        places, alone = self.places[kind], not self.places[kind]
        least = 0 if alone else self.place_first(kind)
        if group == STARTED:
            places[group] = float("-inf")
        else:
            places[group] = self.enter_alone(kind) if alone else self._beside(kind, group, least)

    def place_first(self, kind: str) -> float:
        """While a group stood alone, no claim had to change its place. Where the class is."""
        places, reached = self.places[kind], self.server.reached
        first = next(iter(self.groups(kind)), STARTED)
        if first != STARTED and len(places) == 1:
            places[first] = self._beside(kind, first, max(reached.get(kind, 0), places[first]))
        return reached.get(kind, 0 if first == STARTED else places[first])

    def enter_alone(self, kind: str) -> float:
        self.server.floors[kind] = self.server.reached.get(kind, 0)
        return self.server.floors[kind]

    def _beside(self, kind: str, group: str, least: float) -> float:
        self.shares[group] = max(self._of(kind, group), int(least))
        return self.shares[group]

    def _of(self, kind: str, group: str) -> int:
        owed = self.server.owed.get(kind)
        return self._write_owed(kind) if owed and owed[0] == group else self.shares[group]

    def _write_owed(self, kind: str) -> int:
        return self._add(kind, *self.server.owed.pop(kind))

    def _add(self, kind: str, group: str, amount: int, own: int) -> int:
        """`own`: of its last claim. Who was away begins where its class is."""
        self.shares[group] = max(self.shares[group], self.server.floors.get(kind, 0)) + amount
        self.server.reached[kind] = self.shares[group] - own
        return self.shares[group]

    def remove(self, kind: str, group: str, name: str) -> None:
        self.lists[kind][group].remove(name)
        if not self.lists[kind][group]:
            del self.lists[kind][group], self.places[kind][group]

    def charge(self, kind: str, group: str, task: str, crowded: bool) -> None:
        """A claim. `crowded`: other groups stood in the class; else it is written once another comes."""
        own, owed = self._share(group, max(1, self._usual(task))), self.server.owed.get(kind)
        if not crowded and owed and owed[0] == group:
            self.server.owed[kind] = group, owed[1] + own, own
            return
        if owed:
            self._write_owed(kind)
        if not crowded:
            self.server.owed[kind] = group, own, own
            return
        self._move(kind, group, self._add(kind, group, own, own))

    def meet(self, node: str, kinds: Collection[str]) -> None:
        """What a group used before it could meet the others of a node does not count."""
        server = self.server
        if node in server.met:
            return
        server.met.add(node)
        most = max(server.reached.get(kind, 0) for kind in kinds)
        for kind in kinds:
            server.reached[kind] = server.floors[kind] = most

    def part(self, node: str) -> None:
        """It serves other classes or tasks than before: these have not met yet."""
        self.server.met.discard(node)

    def forget(self, kind: str) -> None:
        """No node serves the class, and nothing is ready in it."""
        if kind in self.server.owed:
            self._write_owed(kind)
        self.server.reached.pop(kind, None)
        self.server.floors.pop(kind, None)

    def order(self, node: str, kinds: list[str]) -> list[str]:
        """The classes of a node, the one first whose first group has used least; between equals as they stand."""
        if not kinds[1:]:
            return kinds
        for kind in kinds:
            if kind in self.server.owed:
                self._write_owed(kind)
                self.place_first(kind)
        self.meet(node, kinds)

        def place(kind: str) -> float:
            first = min(self.places[kind].values())
            return first if first > float("-inf") else self.server.reached.get(kind, 0)

        return sorted((kind for kind in kinds if self.places[kind]), key=place)

    def take_along(self, kind: str, kinds: Collection[str]) -> None:
        """A claim of a class takes those along that had nothing ready."""
        reached = self.server.reached
        for idle in kinds:
            reached[idle] = max(reached.get(idle, 0), reached.get(kind, 0))

    def correct(self, kind: str, group: str, task: str, ms: int, seen: bool) -> None:
        """A run of a task has ended. `seen`: it counts for what the task usually takes."""
        before = self._usual(task)
        charged = max(1, before)
        miss, owed, place = ms - charged, self.server.owed.get(kind), (kind, group)
        far = abs(miss) >= max(DOUBT, charged / 4)
        if miss == 0 or (owed and not far):
            return
        whole = self.server.missed.pop(place, 0) + miss
        if not far and abs(whole) < DOUBT:
            self.server.missed[place] = whole
            return
        if seen and far:
            usual = before + miss if before == UNKNOWN else (4 * before + miss) // 4
            self.usual[task] = self.server.usual[task] = max(1, usual)
        more = self._share(group, whole)
        if owed and owed[0] == group:
            self.server.owed[kind] = group, owed[1] + more, owed[2]
            return
        self.shares[group] += more
        self._move(kind, group, self.shares[group])

    def _move(self, kind: str, group: str, share: int) -> None:
        if group in self.places[kind]:
            self.places[kind][group] = share

    def weigh(self, group: str, weight: float) -> float:
        """The weight before."""
        before = self.weights.pop(group, 1)
        if weight != 1:
            self.weights[group] = weight
        return before

    def _usual(self, task: str) -> int:
        return self.server.usual.setdefault(task, self.usual.get(task, UNKNOWN))

    def _share(self, group: str, ms: int) -> int:
        return floor(ms * 1000 / self.weights.get(group, 1))
