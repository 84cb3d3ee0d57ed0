"""Writes the committed dates of syncs to the permanent store. No sync waits for the store.

A follower runs beside each node and checks once a second. The one that holds the turn, a key in Redis that expires,
writes all that the store lacks. The turn only saves work: where two followers write after all, say because one was
paused, the notes about the store keep them apart as they do for any two writers.

A follower tries each version once. The refresh tries again where the store refused it, or was away.
"""

import time

from tasks.nodelist.replicated import ReplicatedNodelist

PAUSE = 1.0  # seconds from one look to the next
AWAY = 10.0  # seconds until the next look where the store is away
SHARE = 10  # a follower uses a tenth of a processor at most
PORTION = 20
TURN = 10.0  # seconds for which nobody else writes, from the last sign of life


class Follower:
    """`who`: a name that no other follower has."""

    def __init__(self, nodelist: ReplicatedNodelist, who: str) -> None:
        self._document = nodelist.document
        self._reconciler = nodelist.reconciler
        self._portion = max(PORTION, nodelist.store.at_once)
        self._who = who
        self._tried: dict[str, int] = {}

    def step(self) -> float:
        """Write what is new. Returns the seconds until the next look. Raises StoreUnavailable."""
        behind = self._document.behind()
        new = {entry.partition("/")[2] for entry, version in behind.items() if self._tried.get(entry) != version}
        if not new or not self._has_turn():
            return PAUSE
        began, away = time.thread_time(), not self._wrote(sorted(new))
        still = self._document.behind()
        self._tried = {entry: version for entry, version in still.items() if behind.get(entry) == version}
        pause = AWAY if away else max(PAUSE, SHARE * (time.thread_time() - began))
        self._has_turn(pause)
        return pause

    def _wrote(self, names: list[str]) -> bool:
        """Write these members. False where the store went away."""
        while names and self._has_turn():
            portion, names = names[: self._portion], names[self._portion :]
            if not self._reconciler.follow_some(portion):
                return False
        return True

    def _has_turn(self, longer: float = 0.0) -> bool:
        """Take the turn, or keep it."""
        store, key, life = self._document.store, self._turn, int((TURN + longer) * 1000)
        if store.read("SET", key, self._who, "PX", life, "NX"):
            return True
        return bool(store.read("GET", key) == self._who.encode() and store.read("PEXPIRE", key, life))

    @property
    def _turn(self) -> str:
        return self._document.store.key("turn", self._document.name)
