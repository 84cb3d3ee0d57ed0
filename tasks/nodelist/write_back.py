"""Writes committed changes, such as harvest dates, to the nodelist's permanent store, so that syncs need not wait.

A WriteBack runs in a thread beside each node and checks once a second. One of them at a time, the holder of a key in
Redis that expires (its turn), writes all that the store lacks. The turn only saves work: if two write at the same time,
say because one was paused, the notes about the store (store_notes.py) keep their writes apart.

A WriteBack tries each version of an entry once. Where the store refused a version or was away, the refresh tries again.
"""

import time

from tasks.nodelist.replicated import ReplicatedNodelist

PAUSE = 1.0  # seconds from one check to the next
AWAY = 10.0  # seconds until the next check where the store is away
SHARE = 10  # pause so many times the processor time of the last writes: a tenth of a processor at most
PORTION = 20  # least number of members to write between two renewals of the turn
TURN = 10.0  # seconds until a turn expires, unless its holder renews it


class WriteBack:
    """Writes to the permanent store what it lacks, while no other does. `who`: a name that is unique in the fleet."""

    def __init__(self, nodelist: ReplicatedNodelist, who: str) -> None:
        self._document = nodelist.document
        self._reconciler = nodelist.reconciler
        self._portion = max(PORTION, nodelist.store.at_once)
        self._who = who
        self._tried: dict[str, int] = {}

    def step(self) -> float:
        """Write members with versions that were not tried yet. Returns the seconds until the next check.

        Raises StoreUnavailable while Redis is away.
        """
        behind = self._document.behind()
        new = {entry.partition("/")[2] for entry, version in behind.items() if self._tried.get(entry) != version}
        if not new or not self._take_turn():
            return PAUSE
        began, away = time.thread_time(), not self._write(sorted(new))
        still = self._document.behind()
        self._tried = {entry: version for entry, version in still.items() if behind.get(entry) == version}
        pause = AWAY if away else max(PAUSE, SHARE * (time.thread_time() - began))
        self._take_turn(pause)
        return pause

    def _write(self, names: list[str]) -> bool:
        """Write members to the permanent store, while this process has the turn. False: the store cannot be reached."""
        while names and self._take_turn():
            portion, names = names[: self._portion], names[self._portion :]
            if not self._reconciler.write_back_all(portion):
                return False
        return True

    def _take_turn(self, longer: float = 0.0) -> bool:
        """Acquire the turn, or renew it, for TURN and `longer` seconds. False: another process has it."""
        store, key, life = self._document.store, self._turn, int((TURN + longer) * 1000)
        if store.read("SET", key, self._who, "PX", life, "NX"):
            return True
        return bool(store.read("GET", key) == self._who.encode() and store.read("PEXPIRE", key, life))

    @property
    def _turn(self) -> str:
        return self._document.store.key("turn", self._document.name)
