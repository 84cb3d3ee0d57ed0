"""Whatever happens in whatever order, these hold: one job at a time per key, nobody stuck, nothing left behind."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator import Coordinator
from coordinator.jobs.record import TERMINAL
from tests.harness.hand_node import Puppet, Taken
from tests.harness.leftovers import leftovers
from tests.model.raw import Dump

KEYS = ("a", "b", "c", "d")
ADMITTED = ("ready", "running", "retrying")


class World:
    """Jobs, locks and two nodes, moved by chance."""

    def __init__(self, client: Coordinator, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = client.store
        self.nodes = [Puppet(client.store, name) for name in ("one", "two")]
        for node in self.nodes:
            node.up(capacity=8)
        self.jobs: list[str] = []
        self.locks: dict[str, str] = {}
        self.taken: list[tuple[Puppet, Taken]] = []
        self.fences: list[int] = []
        self.acts = [
            *[self.submit] * 5, *[self.take] * 4, *[self.finish] * 4, *[self.lapse] * 2, self.raised, self.lose,
            self.renew, self.cancel, self.sweep, self.lock, self.unlock, self.silence, self.condemn,
            self.limit, self.limit, self.pause, self.resume, self.resume, self.move, self.move,
        ]  # fmt: skip
        self.limits = dict.fromkeys(KEYS, 1)
        self.paused: set[str] = set()
        self.at_once = dict.fromkeys(KEYS, 1)

    def submit(self) -> None:
        keys = self.chance.sample(KEYS, self.chance.choice([1, 1, 1, 2, 3]))
        later = datetime.now(UTC) + timedelta(hours=1) if self.chance.random() < 0.1 else None
        busy = "queue" if later else self.chance.choice(["queue", "queue", "defer", "skip"])
        found = self.chance.choice(self.nodes).submit(
            keys, when_busy=busy, priority=self.chance.choice([0, 0, 0, 9, -9]), not_before=later,
            max_attempts=self.chance.choice([1, 3]), max_losses=2, tell=self.chance.random() < 0.3,
            options={"expires": 3600} if self.chance.random() < 0.2 else {},
            exclusive=self.chance.choice([False, False, False, True]),
        )  # fmt: skip
        if found.outcome in ("started", "queued"):
            self.jobs.append(found.id)

    def take(self) -> None:
        node = self.chance.choice(self.nodes)
        if taken := node.take():
            self.note(node, taken)

    def note(self, node: Puppet, taken: Taken) -> None:
        self.taken.append((node, taken))
        self.fences.append(taken.fence)

    def some(self) -> tuple[Puppet, Taken] | None:
        """A taking: mostly one of the last, sometimes one long over."""
        pool = self.taken[-4:] if self.chance.random() < 0.8 else self.taken
        return self.chance.choice(pool) if pool else None

    def finish(self, outcome: str = "succeeded") -> None:
        if one := self.some():
            token = f"next-{len(self.taken)}-{self.chance.random()}" if self.chance.random() < 0.5 else ""
            before = [one[1].token for one in self.taken]
            answers = [one[0].finish(one[1], outcome, token) for _ in range(self.chance.choice([1, 1, 2]))]
            if answers[-1].next and answers[-1].next.token not in before:
                self.note(one[0], answers[-1].next)

    def raised(self) -> None:
        self.finish("raised")

    def lose(self) -> None:
        if one := self.some():
            one[0].lose(one[1], self.chance.choice(["lost", "timed_out"]))

    def lapse(self) -> None:
        if self.taken:
            one = self.chance.choice(self.taken[-4:])[1].id
            self.store._client.zadd(self.store.key("leases"), {one: 1}, xx=True)
            if self.store._client.hget(self.store.key("job", one), "state") == b"running":
                for key in self.nodes[0].lanes.job(one).keys:
                    self.unlocked(key, self.store._client.hget(self.store.key("job", one), "token"))
            self.nodes[0].sweep()

    def unlocked(self, key: str, token: Any) -> None:
        for name in (self.store.key("lock", key), *self.store._client.scan_iter(self.store.key("slot", "*", key))):
            if (self.store._client.get(name) or b"").partition(b" ")[0] == token:
                self.store._client.delete(name)

    def renew(self) -> None:
        if one := self.some():
            one[0].renew(one[1])

    def condemn(self) -> None:
        if one := self.some():
            self.store.step("runner_condemn", one[0].name, one[1].runner, one[1].token, one[1].id)

    def cancel(self) -> None:
        if self.jobs:
            self.nodes[0].lanes.cancel(self.chance.choice(self.jobs[-10:]))

    def sweep(self) -> None:
        for name in (self.store.key("due"), self.store.key("starts")):
            due: Any = self.store._client.zrange(name, 0, -1)
            for job_id in due:
                self.store._client.zadd(name, {job_id: 1})
        self.nodes[0].sweep()

    def silence(self) -> None:
        """A node is declared dead and comes back."""
        node = self.chance.choice(self.nodes)
        self.store._client.zadd(self.store.key("alive"), {node.name: 1})
        self.nodes[0].sweep()
        node.up(capacity=8)

    def limit(self) -> None:
        key, limit = self.chance.choice(KEYS), self.chance.choice([0, 1, 1, 2, 3])
        assert self.nodes[0].lanes.set_limit(key, limit) == self.limits[key]
        self.limits[key] = limit

    def pause(self) -> None:
        key = self.chance.choice(KEYS)
        assert self.nodes[0].lanes.pause(key) is (key not in self.paused)
        self.paused.add(key)

    def resume(self) -> None:
        key = self.chance.choice(KEYS)
        assert self.nodes[0].lanes.resume(key) is (key in self.paused)
        self.paused.discard(key)

    def move(self) -> None:
        waiting = [name for name, job in self.records(self.dump()).items() if job["state"] in ("waiting", "scheduled")]
        if waiting:
            to, priority = self.chance.choice(["back", "front"]), self.chance.choice([None, 0, 9, -9])
            self.nodes[0].lanes.move(self.chance.choice(waiting), priority=priority, to=to)

    def lock(self) -> None:
        job_id, token = f"lock-{len(self.locks)}", f"token-{len(self.locks)}"
        busy = self.chance.choice(["queue", "skip"])
        outcome = self.store.step("lock_take", job_id, self.chance.choice(KEYS), busy, token, 60000, 10**9)[0]
        if outcome != b"skipped":
            self.locks[job_id] = token

    def unlock(self) -> None:
        for job_id in list(self.locks):
            if self.store.step("lock_wait", job_id)[0] in (b"running", b"failed", b"cancelled"):
                self.store.step("lock_release", job_id, self.locks.pop(job_id))
                return

    def dump(self) -> Dump:
        return Dump(self.store._client, self.store.prefix)

    def records(self, dump: Dump) -> dict[str, dict[str, str]]:
        """What is kept; of a lock that failed that is not for long."""
        found = dump.records()
        return {name: found[name] for name in (*self.jobs, *self.locks) if name in found}

    def check(self) -> None:
        dump = self.dump()
        records = self.records(dump)
        lines = {key: [name for name in dump.scores(f"line:{key}") if not name.startswith("\1")] for key in KEYS}
        for key, line in lines.items():
            admitted = [one for one in line if records[one]["state"] in ADMITTED]
            assert admitted == line[: len(admitted)], "who was admitted stands in front"
            self.at_once[key] = max(self.limits[key], min(self.at_once[key], len(admitted)))
            assert len(admitted) <= self.at_once[key], "no more at once than the limit"
            assert len(admitted) == 1 or not any("weight" in records[one] for one in admitted), "all runs alone"
            slots = [value for name, value in dump.under("slot").items() if name.endswith(f":{key}")]
            tokens = [value.partition(" ")[0] for value in (dump.held.get(f"lock:{key}"), *slots) if value]
            assert set(tokens) <= {records[one].get("token") for one in admitted}, "no lock without owner"
            assert len(set(tokens)) == len(tokens), "one lock each"
            assert (key in dump.scores("lanes")) == (f"line:{key}" in dump.held)
        groups, turns = dump.under("group"), dump.held.get("ready:shop\ncelery", [])
        assert sorted(f"{group}\nshop\ncelery" for group in turns) == sorted(groups)
        counted = Counter(name for queue in groups.values() for name, _ in queue)
        assert counted == Counter(name for name, job in records.items() if job["state"] == "ready")
        for name, job in records.items():
            keys = job["keys"].split("\n")
            standing = [name in lines[key] for key in keys]
            assert standing == [job["state"] not in (*TERMINAL, "scheduled")] * len(keys), (name, job["state"])
            stuck = job["state"] == "waiting" and all(self.may_start(name, lines[key], key, records) for key in keys)
            assert not stuck, f"{name} may start everywhere and waits"
        assert self.fences == sorted(set(self.fences)), "fences grow"

    def may_start(self, name: str, line: list[str], key: str, records: dict[str, dict[str, str]]) -> bool:
        ahead = line[: line.index(name)]
        if key in self.paused or len(ahead) >= self.limits[key]:
            return False
        return not ahead or not any("weight" in records[one] for one in (*ahead, name))

    def drain(self) -> None:
        """Let everything come to its end."""
        for key in KEYS:
            self.nodes[0].lanes.resume(key)
            self.nodes[0].lanes.set_limit(key, 1)
        for _ in range(3 * len(self.jobs) + 3 * len(self.locks) + 10):
            self.unlock()
            for node in self.nodes:
                node.up(capacity=8)  # they do not beat, and a slow machine takes longer than they live
            held: Any = self.store._client.zrange(self.store.key("leases"), 0, -1)
            for job_id in held:
                if not job_id.startswith(b"lock-"):
                    self.store._client.zadd(self.store.key("leases"), {job_id: 1})
            self.sweep()
            while taken := self.nodes[0].take():
                self.nodes[0].finish(taken)
        states = {name: job["state"] for name, job in self.records(self.dump()).items()}
        assert set(states.values()) <= TERMINAL, {
            name: state for name, state in states.items() if state not in TERMINAL
        }
        self.store._client.delete(self.store.key("unsent", "shop"))
        assert leftovers(self.store) == []
        kept = [key for key in ("leases", "due", "expiry") if self.store._client.exists(self.store.key(key))]
        assert kept == []
        for node in self.nodes:
            assert node.work() == {}


@pytest.mark.parametrize("seed", range(12))
def test_lanes_hold_what_they_promise_whatever_comes_in_whatever_order(coordinator: Coordinator, seed: int) -> None:
    world = World(coordinator, seed)
    for _ in range(120):
        world.chance.choice(world.acts)()
        world.check()
    world.drain()
