"""The plain model: what the clock brings."""

from proof.model.lanes import Node
from proof.model.quotas import AT_SWEEP
from proof.model.record import Job
from proof.model.sorters import Sorters

FORGOTTEN = 3_600_000  # ms for which the work of a node that is gone stays noted


class Sweeps(Sorters):
    def sweep(self, gap: int) -> tuple[list[str], list[str]]:
        """(the lost, the nodes that are gone)"""
        if gap != self.gap:
            self.gap = gap
            self.note_clock()
        lost, gone = self._lapsed()
        for by_wall in (False, True):
            self._start_due(by_wall)
        for by_wall in (False, True):
            self._expire(by_wall)
        self._end_pauses()
        self.time_out_waits()
        self.tell_dependants()
        self.look_at_due(AT_SWEEP)
        self.audit()
        self.go_on()
        self.changed = True
        self.forget_coalesced()
        for kind in [kind for kind in self.kinds if not self.is_needed(kind)]:
            self.kinds.remove(kind)
            self.ready.forget(kind)
        self.end_rings()
        return lost, gone

    def _end_pauses(self) -> None:
        due = [(till, key) for key, till in self.paused.items() if till is not None and till <= self.now]
        for _, key in sorted(due):
            self.resume(key)

    def is_needed(self, kind: str) -> bool:
        """A class that no node serves now, and of which nothing is ready, is forgotten until a job needs it again."""
        return bool(self.ready.lists[kind]) or any(kind in node.classes for node in self.nodes.values())

    def _start_due(self, by_wall: bool) -> None:
        waiting = [(job.due, job) for job in self.jobs.values() if job.state in ("retrying", "scheduled", "collecting")]
        now = self.wall if by_wall else self.now
        due = [(at, job.id) for at, job in waiting if at <= now and self.is_named(job) == by_wall]
        for _, name in sorted(due):
            job = self.jobs[name]
            if job.state == "retrying":
                self.put_back(job)
            else:
                self.enter(job, job.order)

    def is_named(self, job: Job) -> bool:
        """Did people name the instant at which it starts?"""
        return job.state == "scheduled" and not job.span

    def _expire(self, by_wall: bool) -> None:
        for _, name in sorted(self._over(by_wall)):
            if self.waits_for_room(self.jobs[name]):
                self.jobs[name].given_up = self.now
            elif self.jobs[name].expiry is not None:
                self.unqueue(self.jobs[name])
                self.give_up(self.jobs[name], "expired")

    def _over(self, by_wall: bool) -> list[tuple[int, str]]:
        now = self.wall if by_wall else self.now
        mine = [job for job in self.jobs.values() if job.by_the_wall() == by_wall]
        return [(job.expiry, job.id) for job in mine if job.expiry is not None and job.expiry <= now]

    def is_more_over(self) -> bool:
        """The sweep ended a rollback of a job whose own lifetime was over: it is held until the next sweep."""
        over = [self.jobs[name] for by_wall in (False, True) for _, name in self._over(by_wall)]
        return any(not self.waits_for_room(job) for job in over)

    def waits_for_room(self, job: Job) -> bool:
        """A rollback that some node may run."""
        place = job.place
        if not place or job.phase != "rollback" or job.state != "ready":
            return False
        return any(place.kind in node.classes and place.task in node.tasks for node in self.nodes.values())

    def _lapsed(self) -> tuple[list[str], list[str]]:
        lost = []
        for plain in (False, True):
            due = [(job.lease, job.id) for job in self.jobs.values() if job.state == "running" and job.plain == plain]
            for _, name in sorted(one for one in due if one[0] <= self.uptime):
                self.lose(self.jobs[name], "lost")
                lost.append(name)
        gone = sorted((node.alive, node.name) for node in self.nodes.values() if 0 < node.alive <= self.uptime)
        for _, name in gone:
            self.note_loss(self.nodes[name], [job_id for _, _, job_id in self.nodes[name].work.values()])
            self.forget(self.nodes[name])
        return lost, [name for _, name in gone]

    def note_loss(self, node: Node, held: list[str]) -> None:
        """Remember for an hour that it did not leave in order; what is older goes at the next loss."""
        for one in self.nodes.values():
            if one.lost and one.lost[0] < self.wall - FORGOTTEN:
                one.lost = None
        node.lost = (self.wall, node.incarnation, sorted(held))

    def forget(self, node: Node) -> None:
        node.gone = (node.incarnation, self.wall + FORGOTTEN)
        node.lapse = self.wall + FORGOTTEN if node.work else None
        node.incarnation, node.alive, node.closed, node.classes = "", 0, False, set()
