"""The plain model: an operator's hand, and supervisors."""

from proof.model.lanes import Node
from proof.model.record import Job
from proof.model.sweeps import FORGOTTEN, Sweeps

OVER = 1  # the deadline of a runner that is to be stopped


class Model(Sweeps):
    def cancel(self, name: str) -> str:
        job = self.job(name)
        if not job:
            return ""
        if job.over:
            return job.state
        unbegun = job.phase == "rollback" and job.state == "ready" and job.back == 0
        if unbegun and job.ends != "cancelled":
            hold, job.hold = job.hold, False
            self.unqueue(job)
            self.give_up(job, "cancelled")
            job.hold = hold
            return job.state
        if job.phase == "rollback":
            return "rolling_back"
        if job.state == "running" and job.place:
            job.stop = job.stop or "cancelled"  # the first cause is kept
            self.to_be_stopped(job)
            return "running"
        self.unqueue(job)
        return self.give_up(job, "cancelled")

    def replace(self, keys: tuple[str, ...]) -> None:
        """Those at work now, and those that wait to replace them; not those that are admitted as these end."""
        others = [job for key in keys for job in self.line(key) if job.place]
        for job in reversed([job for job in others if job.state != "waiting" or job.replaces]):
            self.cancel(job.id)

    def to_be_stopped(self, job: Job) -> None:
        node = self.nodes[job.node]
        if job.runner in node.work:
            node.work[job.runner] = (job.token, OVER, job.id)

    def retry(self, name: str, to: str) -> str:
        job = self.job(name)
        if not job:
            return ""
        if job.state == "retrying":
            self.put_back(job)
        elif job.state == "held" and job.taken is None:
            self._anew(job)
            self.forget_causes(job)
            self.goes_on(job)
        elif job.state == "held":
            self._anew(job)
            job.taken = self.now
            self.put_back(job)
        elif job.over and job.state != "succeeded" and job.place:
            self.owed.pop(job.id, None)
            self.coalesced.pop(job.id, None)
            self.counts[job.state] -= 1
            self._anew(job)
            job.taken = job.expires = None
            job.token, job.last, job.condemned, job.offers = "", "", "", 0
            job.lacked, job.apart = 0, False
            job.kept = 0
            self.revived(job)
            self.enter(job, self.next_order(job.priority, to))
        return job.state

    def _anew(self, job: Job) -> None:
        """All attempts and losses are before it again; an order that was undone begins at its first step."""
        if job.rollback == "done" and (first := job.home or (job.steps or (None,))[0]):
            job.step, job.place = 0, first
        job.forgiven, job.losses, job.conflicts = job.attempt, 0, 0
        job.phase = job.stop = job.ends = job.rollback = ""

    def release(self, key: str, holder: str) -> str:
        """Of those that were started, from this one; "" = the one that was started first."""
        started = [job for job in self.line(key) if job.taken is not None and holder in ("", job.id)]
        if not started:
            return ""
        job = min(started, key=lambda job: (job.taken, job.id))
        self.unqueue(job)
        if job.state == "running" and job.place:
            self.to_be_stopped(job)
        if job.phase == "rollback":
            self.undone(job, "failed")
        self.leave(job, "cancelled")
        return job.id

    def pause(self, key: str, till: int | None) -> int:
        """`till`: by the installation's clock."""
        known = key in self.paused
        self.paused[key] = till
        if not known:
            for job in self.line(key)[:1]:
                if job.state == "waiting":
                    self.withdraw(job)
            self._call_back(key)
        return int(not known)

    def _call_back(self, key: str) -> None:
        """Who is ready and was never taken goes back to its place; others may be first in its lanes now."""
        for job in self.line(key):
            if job.state == "ready" and job.taken is None:
                self.unqueue(job)
                job.state = "waiting"
                for each in job.keys:
                    self.admit(each)

    def flush_job(self, name: str) -> str:
        job = self.job(name)
        if job and job.state == "collecting":
            self.enter(job, job.order)
        return job.state if job else ""

    def move(self, name: str, priority: int | None, to: str, asked: str) -> tuple[str, int]:
        job = self.job(name)
        if job and job.move == asked:
            return job.state, 1
        if not job or job.state not in ("waiting", "scheduled", "blocked"):
            return (job.state, 0) if job else ("", 0)
        self.withdraw(job)
        job.priority, job.move = job.priority if priority is None else priority, asked
        job.order = self.next_order(job.priority, to)
        if job.state == "waiting":
            self.overtake(job)
            for key in job.keys:
                self.admit(key)
            if not job.keys:
                self.admit_one(job)
        return job.state, 1

    # Supervisors

    def renew(self, name: str, token: str, ttl: int) -> str:
        job = self.jobs.get(name)
        stopped = job and job.state == "ready" and job.condemned == token
        if not job or job.token != token or job.state not in ("running", "ready") or stopped:
            return ""
        if job.state == "ready":  # put back too early
            self.unqueue(job)
            job.losses -= 1
            self.take_again(job)
            till = job.started + job.place.limit if job.place and job.place.limit else 0
            self.nodes[job.node].work[job.runner] = (token, till, name)
        if job.plain and job.taken is not None and job.taken + job.lifetime < self.now:
            self.leave(job, "expired")
            return ""
        job.state, job.lease = "running", self.uptime + ttl
        self._relock(job, token, ttl)
        since = job.started if job.phase == "rollback" else job.taken
        if job.place and not job.stop and since is not None and since + job.lifetime < self.now:
            job.stop = "expired"
            self.nodes[job.node].work[job.runner] = (token, OVER, name)
        return token

    def begin(self, job: Job) -> None:
        """Who waited for a lock goes on, with the full ttl."""
        job.lease = self.uptime + job.ttl
        self._relock(job, job.token, job.ttl)

    def _relock(self, job: Job, token: str, ttl: int) -> None:
        """Each lock is its own again, unless another was given it meanwhile."""
        for key in job.keys:
            if self.locks.get(key, (token, 0))[0] == token:
                self.locks[key] = (token, self.now + ttl)

    def condemn(self, node: Node, runner: str, token: str, name: str) -> int:
        job = self.jobs.get(name)
        if node.work.get(runner, ("",))[0] != token:
            return 0
        if job and job.token == token:
            job.condemned = token
        self.condemned[token] = self.wall + FORGOTTEN
        return 1

    def lost(self, name: str, token: str, how: str, delay: int) -> str:
        job = self.jobs.get(name)
        return self.lose(job, how, delay) if job and job.token == token and job.state == "running" else ""

    def drop(self, node: Node, runner: str, token: str) -> int:
        if node.work.get(runner, ("",))[0] != token:
            return 0
        del node.work[runner]
        return 1

    # Notices

    def notices(self, most: int = 100) -> list[tuple[str, int]]:
        """(id, how often it was offered) of each."""
        found = []
        for _, name in sorted((at, name) for name, at in self.owed.items() if at <= self.now)[:most]:
            if job := self.jobs.get(name):
                pause = min(30_000 * 2**job.offers, 600_000)
                self.owed[name], job.kept = self.now + pause, max(job.kept, self.wall + pause + 3_600_000)
                job.offers += 1
                found.append((name, job.offers))
            else:
                del self.owed[name]
        return found

    def told(self, names: list[str]) -> int:
        return sum(self.owed.pop(name, None) is not None for name in names)

    # Nodes

    def register(self, name: str, incarnation: str, ttl: int, ending: bool = False) -> str:
        node = self.nodes[name]
        other = node.incarnation or (node.gone[0] if node.gone[1] > self.wall else "")
        if other and other != incarnation and node.alive > self.uptime:
            return "taken"
        if node.lost and node.lost[1] == incarnation:
            node.lost = None
        node.lapse, node.gone, node.ending = None, ("", 0), ending
        if other != incarnation:
            node.work = {}
        node.incarnation, node.alive = incarnation, self.uptime + ttl
        self.ready.part(name)
        self._open(node)
        return "registered"

    def beat(self, name: str, incarnation: str, ttl: int, ending: bool) -> str:
        node = self.nodes[name]
        if node.incarnation != incarnation:
            return "unknown"
        node.alive, node.ending = self.uptime + ttl, ending
        if node.ending or node.drained:
            node.closed, node.classes = True, set()
        return "alive"

    def drain(self, name: str, on: bool) -> int:
        node = self.nodes[name]
        changed = node.drained != on
        node.drained = on
        if node.incarnation:
            self._open(node)
        return int(changed)

    def _open(self, node: Node) -> None:
        """It may be given what it serves, unless it ends, or an operator drains it."""
        node.closed, before = node.ending or node.drained, node.classes
        node.classes = set() if node.closed else {kind for kind in self.kinds if node.serves(kind)}
        if node.classes != before:
            self.ready.part(node.name)
