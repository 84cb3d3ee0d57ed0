"""The whole machine: what is parked and told, locks in plain code, nodes that come and go."""

from proof.model import asks
from proof.model.beside import ACT, Taking
from proof.model.courses import Courses
from proof.model.machine import BOTH, DELAY, KEY, NODE, PICK, Machine
from proof.model.steps import act


def parked(machine: Machine) -> bool:
    return any(job.state == "parked" for job in machine.model.jobs.values())


def locked(machine: Machine) -> bool:
    return any(job.plain for job in machine.model.jobs.values())


class Whole(Courses):
    # Parked jobs and notices

    @act(2, parked, pick=PICK)
    def child_ended(self, pick: int) -> None:
        name = self.any_job(pick, "parked")
        assert self.call("child_ended", name, "task") == self.model.child_ended(name)

    @act(pick=PICK, part="nodes", node=NODE)
    def lose_a_child(self, pick: int, node: str) -> None:
        """A worker begins a sub-task. Nobody says that it was lost while that worker lives; once its attempt went on
        without it, it does not begin again.
        """
        name, known, child = self.any_job(pick), self.model.nodes[node], self.new("c")
        job, began = self.model.jobs.get(name), (name, child, 1, node, known.incarnation or "one")
        noted = bool(job and not job.over)
        assert self.call("child_began", *began) == noted
        if known.incarnation:
            assert self.call("children_lost", name, child, "other") == []
        self.call("children_over", name, child)
        assert self.call("child_began", *began) == (-1 if noted else 0)

    @act(when=parked, seldom=0, pick=PICK, key=KEY)
    def end_a_child(self, pick: int, key: str) -> None:
        """A job of a parked one comes and is over."""
        ask = asks.Ask(self.new("j"), (key,), 0, self.model.wall, self.any_job(pick, "parked"), child=True)
        self._submit(ask.job, ask.args, "queue")
        self.check()
        self._cancel(ask.name)

    @act(pause=[1_000, 10_000])
    def look_at_parked(self, pause: int) -> None:
        expected = self.model.parked(pause)
        found = self.call("parked_take", "shop", pause, then=[])
        assert sorted((name, last, what) for name, last, _, what in found) == sorted(expected)

    @act(6, parked, pick=PICK, outcome=["succeeded", "step", "raised", "failed", "lost"], delay=DELAY, late=BOTH)
    def unpark(self, pick: int, outcome: str, delay: int, late: bool) -> None:
        job = self.model.jobs[self.some([job.id for job in self.model.jobs.values() if job.state == "parked"], pick)]
        left = job.left
        outcome = "succeeded" if outcome == "step" and not left else outcome
        more = (left[0].kind, left[0].task, left[0].limit) if outcome == "step" else ("", "", "")
        last = "of another" if late and pick % 4 == 0 else job.last
        expected = self.model.unpark(job.id, last, outcome, delay)
        answer = self.call("job_unpark", job.id, last, outcome, '"detail"', delay, "", *more, then="")
        assert answer == expected

    @act(4, lambda machine: machine.model.owed, 1)
    def take_notices(self) -> None:
        expected = self.model.notices()
        found = self.call("notices_take", "shop", 100, then=[])
        assert sorted((name, tries) for name, tries in found) == sorted(expected)

    @act(4, lambda machine: machine.model.owed, pick=PICK)
    def told(self, pick: int) -> None:
        name = self.some(list(self.model.owed), pick)
        assert self.call("notices_sent", "shop", name, then=0) == self.model.told([name])

    # Locks in plain code

    @act(3, part="locks", key=KEY, busy=["queue", "queue", "skip"], nested=range(2), pick=PICK)
    def lock(self, key: str, busy: str, nested: int, pick: int) -> None:
        self._lock_for(key, busy, "", bool(nested), pick)

    @act(4, locked, 1, part="locks", pick=PICK, other=PICK)
    def await_job(self, pick: int, other: int) -> None:
        name, holders = self.any_job(other, *(("waiting", "parked") if other % 4 else ())), self._holders(pick)
        name = "" if other % 11 == 0 else name
        well = self.model.await_job(name, holders)
        answer = self.call("job_await", name, *(part for pair in holders for part in pair))
        assert bool(answer) != well, f"{holders} wait for {name}: {answer}"

    def _lock(self, pick: int) -> str:
        """Mostly one that is not over."""
        locks = [job for job in self.model.jobs.values() if job.plain]
        return self.some([job.id for job in locks if pick % 4 and not job.over] or [job.id for job in locks], pick)

    @act(3, locked, part="locks", pick=PICK, other=range(3))
    def unlock(self, pick: int, other: int) -> None:
        job = self.model.jobs[self._lock(pick)]
        token = job.token if other else "of another"
        over, ours = job.over, job.token == token
        if ours and not over:
            self.model.leave(job, "succeeded")
        expected = "released" if ours and job.state == "succeeded" else "lost"
        assert self.call("lock_release", job.id, token) == expected

    @act(3, locked, part="locks", pick=PICK, ms=[0, 1, 1_000])
    def wait_for_lock(self, pick: int, ms: int) -> None:
        """`ms`: after which its waiter asks."""
        name = self._lock(pick)
        self.pass_time(ms)
        job = self.model.jobs.get(name)
        if job and job.state == "waiting":
            job.seen = self.model.uptime
            for key in job.keys:
                self.model.end_lapsed(key)
        if job and job.state == "running":
            self.model.begin(job)
        if job and job.nested and job.state == "waiting" and not self.model.stays(job):
            assert self.call("lock_wait", name, then=["", ""])[0] == "deadlock"
            return
        expected = [job.state, str(job.fence or "")] if job else ["", ""]
        assert self.call("lock_wait", name) == expected

    @act(when=locked, part="locks", pick=PICK)
    def renew_lock(self, pick: int) -> None:
        job = self.model.jobs[self._lock(pick)]
        self._renew([Taking(job.id, job.token, "", "")])

    # Nodes

    @act(part="nodes", node=NODE, incarnation=["first", "first", "second"])
    def register(self, node: str, incarnation: str) -> None:
        self._register(node, incarnation)

    @act(part="nodes", node=NODE, ending=range(6), other=range(6))
    def beat(self, node: str, ending: int, other: int) -> None:
        self._beat(node, (self.model.nodes[node].incarnation if other else "") or "nobody", ending == 5)

    @act(part="nodes", node=NODE, other=range(3), killed=BOTH)
    def leave(self, node: str, other: int, killed: bool) -> None:
        known = self.model.nodes[node]
        incarnation = (known.incarnation if other == 1 else "") or "nobody"
        if incarnation == known.incarnation:
            if killed:
                self.model.note_loss(known, ["j1", "j2"])
            self.model.forget(known)
        self.call("node_leave", node, incarnation, '["j2", "j1"]' if killed else "", then=0)

    @act(part="nodes", node=NODE, on=[False, False, True])
    def drain(self, node: str, on: bool) -> None:
        assert self.call("node_drain", node, int(on), ACT, then=0) == self.model.drain(node, on)
