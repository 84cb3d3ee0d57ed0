"""The steps on a real Redis beside the model: each call is made on both, then all that there is is compared."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kombu.utils.json import dumps

from coordinator.core.author import act_of
from coordinator.core.lanes.client import LaneClient
from proof.model.clock import Clocked
from proof.model.dependants import Wait, detail_of
from proof.model.invariants import broken
from proof.model.lanes import Node
from proof.model.mirror import differences
from proof.model.mutant import Mutant
from proof.model.operators import Model
from proof.model.raw import Dump
from proof.model.record import Job
from proof.model.steps import Stepping

ACT = act_of("why", "who")
TTL, NODE_TTL = 60_000, 120_000
STEADY = 10**13  # a silence that is no silence yet
TASKS = {"one": ("shop.work", "shop.other"), "two": ("shop.work",)}
QUEUES = {"one": ("celery", "other"), "two": ("celery",)}
LABELS = {"one": (), "two": ("gpu",)}

# Steps that look for work that fits, and so may turn ready lists round.
TURNING = ("runner_take", "job_finish", "sweep", "node_register", "node_leave", "node_drain")
TOKEN = 11  # which argument of job_finish asks for the next job


class Taking(NamedTuple):
    id: str
    token: str
    node: str
    runner: str


class Beside(Stepping):
    """A machine whose steps are made on a real Redis and on the model alike. `again`: each call is made twice;
    `takings`: all there ever were; `requests`: the first ones of runners: node, incarnation, runner, bell, token.
    """

    url = ""
    mutant: Mutant | None = None

    def __init__(self) -> None:
        super().__init__()
        self.store = Clocked(self.url, self.mutant, node_ttl=NODE_TTL / 1000, timeout=60)
        self.lanes = LaneClient(self.store)
        self.model = Model()
        self.again = self.turned = False
        self.takings: list[Taking] = []
        self.requests: list[tuple[str, ...]] = []
        self._numbers = itertools.count(1)
        for name in TASKS:
            self.model.nodes[name] = Node(
                name, frozenset(QUEUES[name]), frozenset(TASKS[name]), frozenset(LABELS[name])
            )
            self._register(name, "first")

    def teardown(self) -> None:
        self.store.close()

    def look_at_all(self) -> None:
        """All is as the model says."""
        self.check()

    def new(self, what: str) -> str:
        return f"{what}{next(self._numbers):03}"

    def new_token(self) -> str:
        """As long as a real one: of a job that succeeded only a trace of it stays."""
        return f"{self.new('t')}-is-a-token-{next(self._numbers):08}"

    def call(self, step: str, *args: Any, then: Any = ...) -> Any:
        """The reply, bytes made text. A repeated call replies the same, or `then`, and changes nothing."""
        answer = _text(self.store.step(step, *args))
        self.model.end_step()
        self.turned |= step in TURNING and (step != "job_finish" or args[TOKEN] != "")
        if self.again:
            with self.unchanged(f"{step} asked again"):
                second = _text(self.store.step(step, *args))
                expected = answer if then is ... else then
                assert _quiet(step, second) == _quiet(step, expected), f"{step} asked again: {second}, not {expected}"
        return answer

    @contextmanager
    def unchanged(self, what: str) -> Iterator[None]:
        before = self.dump().stable()
        yield
        after = self.dump().stable()
        names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        assert not names, f"{what} changed {names}: {[(before.get(name), after.get(name)) for name in names]}"

    def pass_time(self, ms: int) -> None:
        """On the server's clock; then somebody takes a step."""
        self.model.jump(ms)
        self.store.jump(ms)
        model = self.model
        assert self.call("clock_read") == [model.now, model.wall, model.uptime]

    def dump(self) -> Dump:
        return self.store.dump()

    def check(self) -> None:
        self.model.end_step()
        dump = self.dump()
        for node in self.model.nodes.values():
            node.lapse = node.lapse if node.work else None
        if self.turned and self.model.any_unfit():
            self.adopt_order(dump)
        self.turned = False
        self.model.sequence = int(dump.held.get("sequence", 0))
        wrong = [*differences(self.model, dump), *broken(dump)]
        assert not wrong, "\n".join(wrong)
        for queue in dump.under("group").values():  # a job that is taken at once has no number there
            self.model.ready.scores.update(queue)
        counts = self.model.counted()
        assert self.lanes.counts() == counts

    def adopt_order(self, dump: Dump) -> None:
        """Looking for work that fits may turn ready lists round; nothing else changes their order."""
        ready = self.model.ready
        for kind, groups in ready.lists.items():
            places = dump.scores(f"ready:{kind}")
            if places.keys() == groups.keys():
                ready.places[kind] = places
            for group, queue in groups.items():
                scores = dump.scores(f"group:{group}\n{kind}")
                if list(scores) in [queue[i:] + queue[:i] for i in range(len(queue))]:
                    queue[:] = scores
                    ready.scores.update(scores)

    # Takings

    def taken(self, given: Any, token: str, node: str, runner: str, direct: bool) -> None:
        """What the model says to the answer of a taking. `direct`: the step does not write down the last job that
        became ready before it knows whether it takes that one: no node knows its class yet, if that is new.
        """
        model = self.model
        model.before_claim()
        known = model.nodes[node].classes - ({model.fresh} if direct else set())
        name = given[0] if given and given[2:] else None  # else it is to come again
        ready = {kind for kind in known if model.ready.places[kind]}
        job = model.take_next(model.nodes[node], runner, token, TTL, [*self._in_turn(ready), *(known - ready)])
        assert name == (job and job.id), f"{node} was given {name}, and should get {job and job.id}"
        if job:
            told = {"attempt": job.attempt, "losses": job.losses, "fence": job.fence}
            assert [int(given[at] or 0) for at in (4, 5, 6)] == list(told.values()), f"{given} should say {told}"
            assert given[2] == (job.place and job.place.task)
            assert (given[8] or "") == job.calls_text(), f"{given[8]} should be {job.calls}"
            if token not in [taking.token for taking in self.takings]:
                self.takings.append(Taking(job.id, token, node, runner))

    def _in_turn(self, kinds: set[str]) -> list[str]:
        """As the clock has them: see proof/model/clock.py, and rules/claim.lua."""
        sent = sorted(kinds, reverse=self.model.wall // 1000 % 2 == 1)
        return [sent[(self.model.now + place) % len(sent)] for place in range(1, len(sent) + 1)]

    def _take(self, node: str, another: bool) -> None:
        """`another`: a worker of that name which is not the one that is known."""
        self.again = self.again and not self.model.any_late()
        runner, bell, token = self.new("r"), self.new("b"), self.new_token()
        known = self.model.nodes[node].incarnation
        rung = self.store.key("rung", node)
        self.store._client.zadd(rung, {bell: 2**53})
        asked = (node, "another" if another else known, runner, bell, token)
        given = self.call("runner_take", *asked, TTL)
        if another and known:
            assert not given
            self.store._client.zrem(rung, bell)
            self.store.jump(0)  # what was read before counts no more
        else:
            self.requests.append(asked)
            self.taken(given, token, node, runner, False)
        self.model.end_step()

    def _finish(
        self, taking: Taking, outcome: str, delay: int, bound: int | None, chain: bool, ids: tuple[str, ...] = (),
        quota: str = "", wait: Wait | None = None,
    ) -> None:  # fmt: skip
        """`chain`: take the next with it. `ids`: the jobs for which it parks; `quota`: that it found exhausted; `wait`:
        for the event for which it parks.
        """
        model, job = self.model, self.model.jobs.get(taking.id)
        self.again = self.again and not model.any_late()
        most = "" if bound is None else bound
        following: tuple[str, str, Any] = ("", quota, "")
        if outcome in ("succeeded", "step"):
            left = job.left if job and job.token == taking.token else ()
            outcome = "step" if left else "succeeded"
            following = (left[0].kind, left[0].task, left[0].limit) if left else ("", "", "")
        token = self.new_token() if chain else ""
        detail = dumps({"ids": ids}) if outcome == "parked" else '"detail"'
        if wait:
            detail, following = detail_of(wait)
        plain = job and job.token == taking.token and job.state == "running" and outcome == "succeeded"
        plain = plain and "seldom" not in self.dump().records().get(taking.id, ())
        answer = self.call(
            "job_finish", taking.id, taking.token, outcome, detail, delay, most, *following,
            taking.node, taking.runner, token, TTL,
        )  # fmt: skip
        model.tell_after = 5_000
        verdict, state = model.finish(taking.id, taking.token, outcome, delay, bound, ids, quota, wait)
        if verdict == "deadlock":
            assert answer[0] == verdict, f"{taking.id} would wait for itself, by {ids}: {answer}"
            model.tell_after = 0
            return
        assert answer[:2] == [verdict, state], f"should be {verdict}, {state}, is {answer[:2]}"
        self._finished(taking, answer[2], "" if verdict == "condemned" else token, bool(plain))
        model.tell_after = 0
        model.end_step()

    def _finished(self, taking: Taking, given: Any, token: str, plain: bool) -> None:
        """`token`: with which the runner takes the next job, "" = it takes none; `given`: that job."""
        work = self.model.nodes[taking.node].work
        entry = work.get(taking.runner)
        ours = entry is not None and entry[0] == taking.token
        if token and (ours or plain):
            return self.taken(given, token, taking.node, taking.runner, True)
        assert not given, "a late request took a job for nobody"
        if not token and ours:
            del work[taking.runner]

    def _cancel(self, name: str) -> None:
        assert self.call("job_cancel", name, ACT, "") == self.model.cancel(name)

    def _sweep(self, gap: int = STEADY) -> None:
        expected = self.model.sweep(gap)
        self.again = self.again and not self.model.is_more_over()
        due = len(self.model.due_sorters())
        answer = self.call("sweep", 0, gap, "", then=[1, [], [], due, 0])
        assert answer == [1, *expected, due, 0], f"should be {expected}, {due}, is {answer}"

    # Nodes

    def _register(self, name: str, incarnation: str) -> None:
        about = dumps({"app": "shop", "capacity": 4, "ordinary": 0, "load": 0})
        serves = dumps(
            ["app shop", *(f"queue {queue}" for queue in QUEUES[name]), *(f"label {one}" for one in LABELS[name])]
        )
        answer = self.call("node_register", name, incarnation, NODE_TTL, about, serves, dumps(TASKS[name]))
        assert answer == self.model.register(name, incarnation, NODE_TTL)

    def _beat(self, name: str, incarnation: str, ending: bool) -> None:
        expected = self.model.beat(name, incarnation, NODE_TTL, ending)
        answer = self.call("node_beat", name, incarnation, NODE_TTL, "", "", "ending", int(ending))
        assert answer[0] == expected

    def beat_all(self) -> None:
        """Their workers live, or are started again."""
        for node in self.model.nodes.values():
            if node.alive:
                self._beat(node.name, node.incarnation, node.ending)
            else:
                self._register(node.name, "first")

    def _submit(
        self,
        job: Job,
        args: tuple[Any, ...],
        when_busy: str,
        room: int | None = None,
        holders: list[tuple[str, str]] | None = None,
    ) -> None:
        """`holders`: of a lock, what its code holds meanwhile."""
        args = (*args, *(part for pair in holders or () for part in pair))
        step = "lock_take" if job.plain else "job_submit"
        expected = self.model.submit(job, when_busy, room)
        again, self.again = self.again, False
        if expected.outcome == "queued" and holders and not self.model.nest(job, holders):
            assert self.call(step, *args)[0] == "deadlock", f"{job.id} would wait for itself"
            return
        answer = self.call(step, *args)
        assert answer == list(expected), f"should be {expected}, is {answer}"
        if again:
            with self.unchanged(f"{step} asked again"):
                second = self.call(step, *args)
                assert second == list(self.model.submit(job, when_busy, room)), second


def _text(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_text(part) for part in answer]
    return answer.decode() if isinstance(answer, bytes) else answer


def _quiet(step: str, answer: Any) -> Any:
    """Without overdue bells, and without what a repeated claim says more."""
    if step == "runner_take":
        return (answer and answer[2:] and [str(part) for part in answer[:11]]) or None
    if step == "job_finish":
        return [*answer[:2], _quiet("runner_take", answer[2])]
    return [answer[0], answer[2]] if step == "node_beat" else answer
