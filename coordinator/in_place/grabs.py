"""Grabs in memory, for `coordinator.in_place`. No time passes here: nothing is forgotten, and a wait raises at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from coordinator.errors import WaitTimeout
from coordinator.in_place.instances import told
from coordinator.in_place.lanes import Memory
from coordinator.jobs.instances import Grabbed, found, names_in
from coordinator.lanes.grab import Grabber
from coordinator.lanes.leases import Lease, Renewer
from coordinator.settings import Settings
from coordinator.store.client import Store


class GrabsInMemory:
    """Answers the steps of grabs, as the store does; its process is the only one."""

    def __init__(self, memory: Memory, settings: Settings) -> None:
        self.settings = settings
        self.rules = memory.rules
        self._memory = memory

    def step(self, name: str, *args: str) -> list[bytes] | bytes:
        steps: dict[str, Callable[..., list[bytes] | bytes]] = {
            "grab_take": self._take,
            "grab_end": self._end,
            "grab_look": self.look,
        }
        reply = steps[name](*args)
        self._memory._settle()
        return reply

    def insist(self, ask: Callable[[], list[bytes] | bytes], deadline: float) -> list[bytes] | bytes:
        """No reply is lost here."""
        return ask()

    def look(self, lane: str) -> list[bytes]:
        return told(self.rules.state_of(lane), self.rules.instances.kept.get(lane, {}))

    def _take(self, lane: str, job_id: str, token: str, ttl: str, lifetime: str, keep: str, who: str) -> list[bytes]:
        rules = self.rules
        if rules.state_of(lane) in ("running", "complete"):
            return self.look(lane)
        rules.write(job_id, {"keys": lane}, "waiting")
        rules.score(job_id)
        rules.enter(job_id)
        rules.start(job_id)
        record = rules.records[job_id]
        record["token"] = token
        rules.instances.begin(lane, job_id, who, token, record["fence"], str(rules.now()))
        return told("won", rules.instances.kept[lane])

    def _end(self, lane: str, job_id: str, token: str, state: str, keep: str, value: str) -> bytes:
        rules = self.rules
        if rules.state_of(lane) != "running" or rules.instances.kept[lane]["token"] != token:
            return b"lost"
        rules.leave(job_id, "succeeded")
        del rules.records[job_id]
        rules.instances.end(lane, job_id, state, value, str(rules.now()))
        return b"ended"


class _NoTime(Renewer):
    """Leases have no end here."""

    def add(self, lease: Lease, ttl: float, since: float) -> None: ...

    def drop(self, lease: Lease) -> None: ...


class GrabberInPlace(Grabber):
    def __init__(
        self, memory: Memory, settings: Settings, node: Callable[[], str], in_task: Callable[[], bool]
    ) -> None:
        store = cast(Store, GrabsInMemory(memory, settings))
        super().__init__(store, _NoTime(store), memory.holds, node, in_task)

    def all(self, key: str | None, most: int) -> list[Grabbed]:
        rules, counted, seen = self.store.rules, dict[str, int](), list[Grabbed]()  # type: ignore[attr-defined]
        for lane in rules.instances.latest():
            of, name = names_in(lane)
            counted[of] = counted.get(of, 0) + 1
            if key in (None, of) and counted[of] <= most:
                seen.append(found(of, name, told(rules.state_of(lane), rules.instances.kept[lane])))
        return sorted(seen, key=lambda one: one.key)

    @contextmanager
    def listening(self, key: str, instance: str) -> Iterator[Callable[[float], None]]:
        def listen(seconds: float) -> None:
            raise WaitTimeout(f"{key} {instance}", "running")

        yield listen
