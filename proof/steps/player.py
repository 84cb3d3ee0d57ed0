"""Plays the recorded steps of an installation into the model, which says what each must answer.

A handler has the name of the step, and gets its arguments. It returns the reply; what the model does not know of it is
ANY. Wake-ups are not predicted: which node is woken is a matter of load.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import deepcopy
from json import loads
from math import floor
from typing import Any

from proof.model.instances import Instances, told_alike
from proof.model.invariants import broken
from proof.model.lanes import Node
from proof.model.mirror import differences
from proof.model.operators import Model
from proof.model.quotas import Bounds
from proof.model.raw import Dump
from proof.model.record import Job, Place
from proof.steps import asked
from proof.steps.asked import Unknown
from proof.steps.playing import Deviation, Playing
from proof.steps.recording import Look, Step
from proof.steps.schedules import Schedules


class Anything:
    """Any part of a reply."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "…"


ANY = Anything()
OFFERED, EDGE = 30_000, 2  # ms until a trouble is offered again; and of doubt
AHEAD, LEAD = 1_000, 6  # ms: functions/rules/alarm.lua
KEPT, HELP, WAITS = 60_000, 4_000, 30_000  # ms: functions/steps/node.lua


class Nodes(dict[str, Node]):
    """One that nobody registered serves nothing."""

    def __missing__(self, name: str) -> Node:
        self[name] = Node(name, frozenset(), frozenset())
        return self[name]


class Player(Playing):
    """`fields`: of each job, as its submit had them; `forgotten`: those whose time is over; `bells`: those that were
    answered; `instants`: of the steps, at which bells may have been rung; `void`: since when those of a node are for
    nothing; `troubles`: when each is offered next, and whether it was before; `helpers`: which nodes do maintenance,
    until when; `waits`: since when jobs have waited at each beat; `outboxes`: the jobs that were submitted of each, and
    whose rows may still be there.
    """

    def __init__(self) -> None:
        self.model: Model
        super().__init__(Model())
        self.model.nodes = Nodes()
        self.instances = Instances(self.model)
        self.schedules = Schedules()
        self.fields: dict[str, dict[str, str]] = {}
        self.begun: dict[str, dict[str, tuple[int, str, str]]] = defaultdict(dict)
        self.troubles: dict[str, tuple[int, bool]] = {}
        self.revoked: set[str] = set()
        self.forgotten: set[str] = set()
        self.bells: set[str] = set()
        self.instants: set[int] = set()
        self.void: dict[str, int] = {}
        self.helpers: dict[str, int] = {}
        self.waits: int | None = None
        self.swept = 0
        self.outboxes: dict[str, set[str]] = defaultdict(set)

    def _go_to(self, step: Step) -> None:
        over = {name for name, job in self.model.jobs.items() if job.over}
        super()._go_to(step)
        self.forgotten |= over - self.model.jobs.keys()

    def _reply_of(self, handler: Callable[..., Any], args: list[str]) -> Any:
        self.schedules.now, self.schedules.wall = self.model.now, self.model.wall
        self.schedules.state_of = self._state_of
        self.instants.add(self.model.now)
        before = {name: (job.state, job.rollback) for name, job in self.model.jobs.items() if not job.over}
        faults = self.model.counts["faults"]
        reply = handler(*args)
        self.model.end_step()
        self._note_alarm()
        self._note_troubles(before, self.model.counts["faults"] > faults)
        return reply

    def _note_alarm(self) -> None:
        """A node may be woken at that instant for the first quota that is due."""
        now = self.model.now * 1000 + self.model.micros
        alarm = self.model.ready.server.alarm
        if alarm is not None and (left := (alarm - now) / 1000) <= AHEAD:
            self.instants.add(self.model.now + max(0, floor(left - LEAD)))

    def differences(self, look: Look) -> list[str]:
        """What Redis forgets just then is left out: its own clock of a step may be a millisecond off."""
        model, wall = deepcopy(self.model), look.time // 1000
        model.now += wall - self.wall + EDGE
        model.wall = wall
        ending = {job.id for job in model.jobs.values() if job.over and abs(job.kept_until - wall) <= EDGE}
        for name in ending:
            del model.jobs[name]
        model.lapse()
        gone = ending | self.forgotten  # where the clock went back, Redis may show again what it has not deleted yet
        dump = Dump([row for row in look.rows if row[0].removeprefix("job:") not in gone or row[2] < 0])
        model.turns = {name: turn for name, turn in model.turns.items() if f"turn:{name}" in dump.held}  # else: taken
        return [*differences(model, dump), *broken(dump)]

    # Clients

    def job_submit(self, name: str, keys: str, busy: str, priority: str, start: str, room: str, *words: str) -> Any:
        job, fields = asked.job(name, keys, busy, priority, start, words)
        if "grab" in fields or name in self.revoked:
            raise Unknown("a job with an instance" if "grab" in fields else "a job that was revoked before")
        if name not in self.model.jobs and name not in self.model.alias:
            self.fields[name] = fields
        return list(self.model.submit(job, busy, int(room) if room else None))

    def job_cancel(self, name: str, act: str, unbegun: str = "") -> Any:
        if unbegun == "1":
            raise Unknown("a cancel of what has not begun")
        return self.model.cancel(name)

    def jobs_named(self, ttl: str, *names: str) -> Any:
        known = [name for name in names if name in self.model.jobs or name in self.model.alias]
        self.revoked.update({*names} - {*known})
        return known

    def job_retry(self, name: str, act: str, to: str) -> Any:
        return self.model.retry(name, to)

    def job_flush(self, name: str, act: str) -> Any:
        return self.model.flush_job(name)

    def job_move(self, name: str, priority: str, to: str, act: str, token: str) -> Any:
        return list(self.model.move(name, int(priority) if priority else None, to, token))

    def event_set(self, name: str, value: str, keep: str, act: str) -> Any:
        return list(self.model.set_event(name, value, int(keep)))

    def job_await(self, other: str, *holders: str) -> Any:
        return "" if self.model.await_job(other, _twos(holders)) else ANY

    def counts_read(self) -> Any:
        found = {name: str(number) for name, number in self.model.counted().items()}
        if self.told is not None and asked.pairs(self.told) == found:
            return self.told
        return found

    def ready_read(self, after: str, most: str) -> Any:
        kinds: dict[tuple[str, str], int] = defaultdict(int)
        for job in self.model.jobs.values():
            if job.state == "ready" and job.place and not job.lack:
                kinds[job.place.task, job.place.kind] += 1
        if after:
            raise Unknown("a second page of ready jobs")
        return [[task, kind, number, ANY] for (task, kind), number in sorted(kinds.items())][: int(most)]

    def jobs_read(self, names: str, *ids: str) -> Any:
        wanted = names.split("\n")
        jobs = [self.model.jobs.get(one) for one in ids]
        return [[self._field(job, name) for name in wanted] if job else ANY for job in jobs]

    def _field(self, job: Job, name: str) -> Any:
        if name == "state":
            return job.state
        if name == "keys":
            return "\n".join(job.keys)
        return job.place.task if name == "task" and job.place else ANY

    def notices_take(self, app: str, most: str) -> Any:
        return [list(one) for one in self.model.notices(int(most))]

    def notices_sent(self, app: str, *names: str) -> Any:
        return self.model.told(list(names))

    # Runners

    def runner_take(self, node: str, incarnation: str, runner: str, bell: str, token: str, ttl: str) -> Any:
        known, fresh = self.model.nodes[node], bell not in self.bells
        if known.incarnation and known.incarnation != incarnation:
            return None
        self.bells.add(bell)
        held = known.work.get(runner, ("",))[0]
        if held == token:
            return self._claimed(self.model.jobs[known.work[runner][2]])
        if held or not fresh:
            return None
        born = bell.partition("-")[0]
        rung = int(born) if born.isdecimal() else 0  # else: rubbish
        if self.told is None and (rung not in self.instants or rung < self.void.get(node, 0)):
            return None
        return self._taken(known, runner, token, int(ttl), {*self.model.ready.all()}, {*known.classes})

    def _taken(self, node: Node, runner: str, token: str, ttl: int, queued: set[str], classes: set[str]) -> Any:
        """A job that the model may give, too; `queued`, `classes`: what was ready, and what the node knew, before."""
        model, given = self.model, self.told_job
        model.before_claim()
        job = model.jobs.get(given or "")
        late = {name for name in model.ready.all() if name not in queued}
        late.update(model.ready.all({*model.ready.lists} - classes))
        for kind in node.classes if given is None else {job.place.kind} & node.classes if job and job.place else ():
            name = model.next_of(node, kind)
            if name == given or (given is None and name in late):
                continue
            raise Deviation(f"{node.name} takes {given}, and {name} is before it")
        if given is None:
            node.work.pop(runner, None)
            return self._to_wait()
        if not job or not job.place or job.place.kind not in node.classes:
            raise Deviation(f"{node.name} takes {given}, which is none of its jobs")
        kinds, kind = sorted(node.classes), job.place.kind
        model.ready.order(node.name, kinds)
        idle = [kind for kind in kinds if not model.ready.places[kind]] if kinds[1:] else []
        job = model.take(node, runner, token, ttl, given, beside=len(kinds) > 1)
        model.ready.take_along(kind, idle)
        return self._claimed(job)

    def _to_wait(self) -> Any:
        """Nothing; or µs and the wake-up with which the runner comes again, since a quota lets its queue go on soon."""
        told = self._told_claim()
        soon = self.model.ready.server.alarm is not None or self.model.due
        return told if told and not told[2:] and soon else None

    @property
    def told_job(self) -> str | None:
        """The job that was given, by the reply to a claim or to the end of one."""
        claim = self._told_claim()
        return str(claim[0]) if claim and claim[2:] else None

    def _told_claim(self) -> Any:
        return self.told[2] if self.told and self.told[0] in ("accepted", "shared", "lost") else self.told

    def _claimed(self, job: Job) -> list[Any]:
        place, fields = job.place, self.fields[job.id]
        assert place
        limits = (job.max_attempts, job.max_losses, ANY, job.lifetime, job.keep_success, job.keep_failure)
        told = self.told[2] if self.told[0] in ("accepted", "shared", "lost") else self.told
        alike = [number in (str(ours), ours) for number, ours in zip(told[7].split(), limits, strict=True)]
        return [
            job.id, "\n".join(job.keys), place.task, fields["spec"], job.attempt, job.losses or Either(None, "0"),
            job.fence, told[7] if all(alike) else limits, job.calls_text() or None, place.kind, ANY, ANY, ANY,
        ]  # fmt: skip

    def job_finish(
        self, name: str, token: str, outcome: str, detail: str, delay: str, most: str, kind: str, task: str, limit: str,
        node: str, runner: str, following: str, ttl: str,
    ) -> Any:  # fmt: skip
        if outcome == "replaced":
            raise Unknown("steps in place of a step")
        model, job, known = self.model, self.model.jobs.get(name), self.model.nodes[node]
        plain = bool(job and job.token == token and job.state == "running" and outcome == "succeeded")
        self._is_next(job, token, outcome, (kind, task, limit))
        wait = asked.wait(detail, Place(kind, task, int(limit))) if outcome == "awaits" else None
        queued, classes = {*model.ready.all()}, {*known.classes}
        ids = _ids(detail) if outcome == "parked" else ()
        model.tell_after = 5_000
        verdict, state = model.finish(name, token, outcome, int(delay), int(most) if most else None, ids, task, wait)
        model.tell_after = 0
        if verdict == "deadlock":
            return [verdict, ANY, None]
        if verdict == "accepted" and self.told[0] == "shared":
            verdict = "shared" if name in self.model.alias.values() else verdict
        held = known.work.get(runner, ("",))[0]
        given = None
        if not following or verdict == "condemned":
            if held == token:
                del known.work[runner]
        elif held == following:
            given = self._claimed(model.jobs[known.work[runner][2]])
        elif held == token or (plain and self.told[2]):
            given = self._taken(known, runner, following, int(ttl), queued, classes)
        return [verdict, state, given]

    def _is_next(self, job: Job | None, token: str, outcome: str, named: tuple[str, str, str]) -> None:
        """A step that follows is one that the submit named."""
        if outcome == "step" and job and job.token == token and not job.over:
            place = job.left[0]
            if (place.kind, place.task, str(place.limit)) != named:
                raise Unknown(f"a next step {named} where {place} was asked for")

    # Supervisors

    def job_lose(self, name: str, token: str, how: str, detail: str, delay: str = "") -> Any:
        return self.model.lost(name, token, how, int(delay or 0))

    def job_progress(self, name: str, token: str, progress: str) -> Any:
        job = self.model.jobs.get(name)
        return int(bool(job and job.token == token and not self.model.faded(job)))

    def lease_renew(self, ttl: str, *words: str) -> Any:
        return [self.model.renew(name, token, int(ttl)) for name, token in _twos(words)]

    def runner_condemn(self, node: str, runner: str, token: str, name: str) -> Any:
        return self.model.condemn(self.model.nodes[node], runner, token, name)

    def work_drop(self, node: str, runner: str, token: str) -> Any:
        return self.model.drop(self.model.nodes[node], runner, token)

    def sweep(self, interval: str, gap: str, until: str = "") -> Any:
        now = self.model.now
        if 0 <= now - self.swept < int(interval) or (until and now > int(until)):
            return [0, [], [], 0, 0]
        self.swept = now
        lost, gone = self.model.sweep(int(gap))
        for node in gone:
            self.void[node] = now
        return [1, lost, gone, len(self.model.due_sorters()), 0]

    def trouble_take(self, app: str) -> Any:
        due = sorted((at, text) for text, (at, _) in self.troubles.items() if at <= self.model.now)
        for _, text in due:
            if text == self.told:
                self.troubles[text] = self.model.now + OFFERED, True
                return text
            if not self.troubles[text][1]:  # one that was offered before may have been told of, and removed
                return text
        return None

    def _note_troubles(self, before: dict[str, tuple[str, str]], faults: bool) -> None:
        for name, (state, rollback) in before.items():
            job = self.model.jobs.get(name)
            if not job or not job.place or (job.state, job.rollback) == (state, rollback):
                continue
            kinds = {"failed": "failed", "rolled_back": "failed", "held": "held"}
            found = [kinds[job.state]] if job.state in kinds and job.state != state else []
            found += ["double_fault"] if faults and job.rollback == "failed" != rollback else []
            for kind in found:
                self.troubles[f"{kind} {self.model.now} {name}"] = self.model.now, False

    # Parked jobs

    def child_began(self, parent: str, child: str, fence: str, node: str, incarnation: str) -> Any:
        noted, _, life = self.begun[parent].get(child, (-1, "", "-"))
        if noted > int(fence) or (noted == int(fence) and not life):
            return -1
        job = self.model.jobs.get(parent)
        if not job or job.over:
            return 0
        self.begun[parent][child] = int(fence), node, incarnation
        return 1

    def children_over(self, parent: str, *children: str) -> Any:
        for child in {*children} & self.begun[parent].keys():
            self.begun[parent][child] = self.begun[parent][child][0], "", ""
        return 0

    def child_ended(self, parent: str, child: str) -> Any:
        if self.begun[parent].get(child, (0, "", ""))[2]:
            del self.begun[parent][child]
        return self.model.child_ended(parent)

    def children_lost(self, parent: str, *children: str) -> Any:
        lost = []
        for child in children:
            _, name, life = self.begun[parent].get(child, (0, "", ""))
            node = self.model.nodes[name]
            gone = node.gone[0] == life and node.gone[1] > self.model.wall
            if life and (gone or node.incarnation not in ("", life)):
                lost.append(child)
        return lost

    def parked_take(self, app: str, pause: str) -> Any:
        return [[name, last, ANY, what] for name, last, what in self.model.parked(int(pause))]

    def job_unpark(
        self, name: str, last: str, outcome: str, detail: str, delay: str, most: str, kind: str, task: str, limit: str
    ) -> Any:
        if outcome == "replaced" or most:
            raise Unknown("an end of sub-results with a bound, or with other steps")
        job = self.model.jobs.get(name)
        self._is_next(job, "" if job and job.last == last else "-", outcome, (kind, task, limit))
        return self.model.unpark(name, last, outcome, int(delay or 0))

    # Locks in plain code, and grabs

    def lock_take(
        self, name: str, key: str, busy: str, token: str, ttl: str, lifetime: str, uses: str, *words: str
    ) -> Any:
        holders = _twos(words)
        answer = self.model.submit(job := asked.lock(name, key, token, ttl, lifetime, uses), busy)
        if answer.outcome == "queued" and holders and not self.model.nest(job, holders):
            return ["deadlock", -1, ANY, ""]
        return list(answer)

    def lock_wait(self, name: str) -> Any:
        job = self.model.jobs.get(name)
        if not job:
            return ["", ""]
        if job.state == "waiting":
            job.seen = self.model.uptime
            for key in job.keys:
                self.model.end_lapsed(key)
        if job.state == "running":
            self.model.begin(job)
        if job.nested and job.state == "waiting" and not self.model.stays(job):
            return ["deadlock", ANY]
        return [job.state, job.fence or ""]

    def lock_release(self, name: str, token: str) -> Any:
        job = self.model.jobs.get(name)
        if not job or job.token != token:
            return "lost"
        if not job.over:
            self.model.leave(job, "succeeded")
        return "released" if job.state == "succeeded" else "lost"

    def grab_take(
        self, lane: str, name: str, token: str, ttl: str, lifetime: str, keep: str, attempts: str, about: str
    ) -> Any:
        lock = asked.lock(name, lane, token, ttl, lifetime)
        return self._grabbed(self.instances.take(lane, lock, int(keep), int(attempts), about))

    def grab_end(self, lane: str, name: str, token: str, state: str, keep: str, value: str) -> Any:
        return self.instances.end(lane, name, token, state, int(keep), value)

    def grab_release(self, lane: str, attempt: str, act: str) -> Any:
        return self.instances.release(lane, attempt)

    def grab_look(self, lane: str) -> Any:
        one, state = self.instances.read(lane)
        return self._grabbed(one.told(state))

    def _grabbed(self, expected: list[str]) -> list[str]:
        """The earlier winners are JSON."""
        return self.told if told_alike(self.told, expected) else expected

    # Operators

    def lane_pause(self, key: str, until: str, act: str) -> Any:
        return self.model.pause(key, self.model.own_clock(*asked.instant(until)) if until else None)

    def quota_declare(self, name: str, prefix: str, *words: str) -> Any:
        return self.model.declare(name, prefix == "1", asked.bounds(*words[:4]))

    def quota_drop(self, name: str, prefix: str, act: str) -> Any:
        return self.model.drop_quota(name, prefix == "1")

    def quota_cool(self, name: str, until: str, act: str) -> Any:
        instant, span = asked.instant(until or "0")
        return self.model.cool(name, (span, instant + (self.model.now if span else 0)) if until else None)

    def quotas_read(self, *names: str) -> Any:
        return [self._shown(name) for name in names]

    def _shown(self, name: str) -> list[Any]:
        model, quota = self.model, self.model.quota(name)
        bounds = ["" if one is None else one for one in model.bounds(name) or Bounds()]
        declared = [ANY, None if quota.bounds or not model.bounds(name) else ANY]
        counts = [quota.used, len(quota.users), len(model.queue(name))]
        return [*bounds, *declared, *counts, ANY, model.cooling(name), ANY]

    def quota_queue(self, name: str, most: str) -> Any:
        return [part for job in self.model.queue(name)[: int(most)] for part in (job.id, ANY)]

    def quota_place(self, name: str, job_id: str) -> Any:
        model, job = self.model, self.model.jobs.get(job_id)
        if job is None or job.lack != name:
            return [0, "", []]
        ahead, alike = model.ahead(job, name), model.alike(job, name)
        return [model.queue(name).index(job), ahead.id if ahead else "", [one.id for one in alike]]

    def weight_set(self, group: str, weight: str, act: str) -> Any:
        before = self.model.ready.weigh(group, float(weight))
        return self.told if float(self.told) == before else f"{before:g}"

    def lane_resume(self, key: str, act: str) -> Any:
        return self.model.resume(key)

    def lane_release(self, key: str, act: str, holder: str) -> Any:
        return self.model.release(key, holder)

    # Nodes

    def node_register(self, name: str, incarnation: str, ttl: str, about: str, serves: str, tasks: str) -> Any:
        node = self.model.nodes[name]
        other = node.incarnation or (node.gone[0] if node.gone[1] > self.model.wall else "")
        if not (other and other != incarnation and node.alive > self.model.uptime):
            asked.serve(node, about, serves, tasks)
        if other != incarnation:
            self.void[name] = self.model.now
        return self.model.register(name, incarnation, int(ttl), bool(loads(about).get("ending")))

    def node_beat(self, name: str, incarnation: str, ttl: str, times: str, measures: str, *words: str) -> Any:
        model, node, fields = self.model, self.model.nodes[name], asked.pairs(words)
        ending = fields["ending"] == "1" if "ending" in fields else node.ending
        if model.beat(name, incarnation, int(ttl), ending) == "unknown":
            return ["unknown", [], -1, 0, 0, 0, 0]
        if not any(model.ready.lists[kind] for kind in node.classes):
            self.void[name] = model.now  # its bells that are due are for nothing
        return ["alive", ANY, ANY, self._due(name), len(node.work), model.now - self.swept, model.now]

    def _due(self, node: str) -> Any:
        """Is the node to do maintenance? One that was told of a trouble takes it away, and one that looks at what waits
        notes it, which no step tells.
        """
        now, waits = self.model.now, self._waits()
        new = (at for at, known in self.troubles.values() if not known)
        sure = [at for at in (*self.model.owed.values(), *self.model.looks.values(), *new) if at <= now]
        perhaps = [at for at, known in self.troubles.values() if known and at <= now]
        if not (sure or perhaps or waits):
            return 0
        since, untold = min(sure, default=now), not sure or min(perhaps, default=now) < min(sure)
        others = self.helpers = {name: until for name, until in self.helpers.items() if until > now}
        helps = self.told[3] == 1 if untold else node in others or 2 ** len(others) - 1 <= (now - since) / HELP
        if helps:
            self.helpers[node] = now + KEPT
        return ANY if untold else int(helps)

    def _waits(self) -> bool:
        """True if jobs have waited at each beat for half a minute."""
        model = self.model
        waiting = (job for job in model.jobs.values() if not job.over)
        if not model.paused and not any(
            (job.state == "ready" and not job.lack) or any(len(model.line(key)) > 1 for key in job.keys)
            for job in waiting
        ):
            self.waits = None
            return False
        self.waits = self.waits or model.now
        return model.now - self.waits >= WAITS

    def node_leave(self, name: str, incarnation: str, lost: str = "") -> Any:
        node = self.model.nodes[name]
        if not incarnation or node.incarnation != incarnation:
            return 0
        if lost:
            self.model.note_loss(node, loads(lost))
        self.model.forget(node)
        self.void[name] = self.model.now
        return 1

    def node_drain(self, name: str, on: str, act: str) -> Any:
        return self.model.drain(name, on == "1")

    # Sorters

    def sorter_add(
        self, name: str, keys: str, sorter: str, sort_key: str, idle: str, longest: str, token: str, priority: str,
        start: str, path: str, identity: str, act: str, *words: str,
    ) -> Any:  # fmt: skip
        job, fields = asked.job(name, keys, "queue", priority, start, words)
        if name not in self.model.jobs and name not in self.model.alias:
            self.fields[name] = fields
        job.sorter, job.sort_key, job.asked = sorter, sort_key, token
        return self.model.add(job, int(idle), int(longest), path, identity)

    def sorter_hasten(self, sorter: str, act: str) -> Any:
        return self.model.hasten(sorter)

    def sorter_flush(self, most: str) -> Any:
        return self.model.flush(int(most))

    def sorter_forget(self, sorter: str, *words: str) -> Any:
        return self.model.forget_files(sorter, asked.pairs(words))

    # Outboxes

    def outbox_submit(self, key: str, token: str, *words: str) -> Any:
        if self.model.locks.get(key, ("", 0))[0] != token:
            return None
        replies, sent, closed, left = [], self.outboxes[key], set[str](), list(words)
        while left:
            size = int(left.pop(0))
            row, left = left[:size], left[size:]
            keys = {*row[1].split("\n")} - {""}
            if row[0] in sent:
                reply = ["duplicate", -1, row[0], ""]
            elif closed & keys:
                reply = ["behind", -1, row[0], ""]
            else:
                reply = self.job_submit(*row)
            if reply[0] in ("behind", "full", "undeclared", "too_many"):
                closed |= keys
            else:
                sent.add(row[0])
            replies.append(reply)
        return replies

    def outbox_forget(self, key: str, token: str, *names: str) -> Any:
        if self.model.locks.get(key, ("", 0))[0] != token:
            return 0
        self.outboxes[key].difference_update(names)
        return 1

    # Schedules

    def entry_put(self, name: str, text: str, hash: str, due: str, about: str, act: str) -> Any:
        return self.schedules.put(name, text, hash)

    def entry_remove(self, name: str, act: str) -> Any:
        return self.schedules.remove(name)

    def entries_read(self, since: str, cursor: str) -> Any:
        return self.schedules.read(since, cursor, self.told)

    def schedule_follow(self, source: str, version: str, before: str, lapse: str, entries: str, *fours: str) -> Any:
        return self.schedules.follow(source, version, before, int(lapse), entries, list(fours))

    def tick_take(
        self, name: str, hash: str, other: str, instant: str, former: str, due: str, token: str, lease: str, word: str,
        missed: str, wanted: str, beat: str, most: str, *job: str,
    ) -> Any:  # fmt: skip
        def submit() -> str:
            return str(self.job_submit(*job)[0])

        return self.schedules.take(name, hash, other, instant, former, token, int(lease), word, bool(job), submit)

    def tick_done(self, name: str, instant: str, token: str, *about: str) -> Any:
        return self.schedules.done(name, instant, token)

    # Backfills

    def entry_backfill(
        self, name: str, at_once: str, reverse: str, since: str, till: str, act: str, *instants: str
    ) -> Any:  # fmt: skip
        return self.schedules.fill(name, at_once, reverse == "1", list(instants))

    def backfill_look(self, name: str, room: str) -> Any:
        return self.schedules.look(name, int(room))

    def backfill_take(self, name: str, hash: str, ending: str, room: str, *job: str) -> Any:
        return self.schedules.put_in_line(name, hash, ending, int(room), lambda: self.job_submit(*job))

    def backfill_fail(self, name: str, hash: str, why: str) -> Any:
        return self.schedules.give_up(name, hash)

    def _state_of(self, name: str) -> str:
        job = self.model.jobs.get(name)
        return "" if job is None else job.state if job.over else "in_line"


class Either:
    """One of these."""

    def __init__(self, *these: Any) -> None:
        self.these = these

    def __eq__(self, other: object) -> bool:
        return other in self.these

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return " or ".join(map(repr, self.these))


def _twos(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(words[::2], words[1::2], strict=True))


def _ids(handles: str) -> tuple[str, ...]:
    return tuple(one for one in loads(handles)["ids"] if one)
