"""The steps on a real Redis beside the model: each call is made on both, then all that there is is compared."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kombu.utils.json import dumps

from coordinator.author import act_of
from coordinator.lanes.client import LaneClient
from proof.model.clock import Clocked
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
            self.model.ready.update(queue)
        counts = self.model.counted()
        assert self.lanes.counts() == counts

    def adopt_order(self, dump: Dump) -> None:
        """Looking for work that fits may turn ready lists round; nothing else changes their order."""
        for kind, groups in self.model.queues.items():
            turns = dump.held.get(f"ready:{kind}", [])
            if sorted(turns) == sorted(groups):
                self.model.queues[kind] = {group: groups[group] for group in turns}
            for group, queue in groups.items():
                scores = dump.scores(f"group:{group}\n{kind}")
                if list(scores) in [queue[i:] + queue[:i] for i in range(len(queue))]:
                    queue[:] = scores
                    self.model.ready.update(scores)

    # Takings

    def taken(self, given: Any, token: str, node: str, runner: str, known: set[str]) -> None:
        """What the model says to the answer of a taking by a node that knew these classes before."""
        model = self.model
        records, before = self.dump().records(), model.queued()
        while dead := [name for name in model.queued() if self._passed_over(name, records)]:
            model.pass_over(dead[0])
        name = given[0] if given else None
        late = {name for name in model.queued() if name not in before}
        late.update(name for kind in {*model.queues} - known for queue in model.queues[kind].values() for name in queue)
        job = model.take(model.nodes[node], runner, token, TTL, name, late)
        if job:
            told = {"attempt": job.attempt, "losses": job.losses, "fence": job.fence}
            assert [int(given[at] or 0) for at in (4, 5, 6)] == list(told.values()), f"{given} should say {told}"
            assert given[2] == (job.place and job.place.task)
            if token not in [taking.token for taking in self.takings]:
                self.takings.append(Taking(job.id, token, node, runner))

    def _passed_over(self, name: str, records: dict[str, dict[str, str]]) -> bool:
        return self.model.stale(name) and records.get(name, {}).get("state") == "expired"

    def _take(self, node: str, another: bool) -> None:
        """`another`: a worker of that name which is not the one that is known."""
        self.again = self.again and not self.model.any_stale()
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
            self.taken(given, token, node, runner, self.model.nodes[node].classes)

    def _finish(
        self, taking: Taking, outcome: str, delay: int, bound: int | None, chain: bool, ids: tuple[str, ...] = ()
    ) -> None:
        """`chain`: take the next with it. `ids`: the jobs for which it parks."""
        model, job = self.model, self.model.jobs.get(taking.id)
        self.again = self.again and not model.any_stale()
        most = "" if bound is None else bound
        following: tuple[str, str, Any] = ("", "", "")
        if outcome in ("succeeded", "step"):
            left = job.left if job and job.token == taking.token else ()
            outcome = "step" if left else "succeeded"
            following = (left[0].kind, left[0].task, left[0].limit) if left else ("", "", "")
        token = self.new_token() if chain else ""
        detail = dumps({"ids": ids}) if outcome == "parked" else '"detail"'
        plain = job and job.token == taking.token and job.state == "running" and outcome == "succeeded"
        answer = self.call(
            "job_finish", taking.id, taking.token, outcome, detail, delay, most, *following,
            taking.node, taking.runner, token, TTL,
        )  # fmt: skip
        model.tell_after = 5_000
        known = {*model.nodes[taking.node].classes}
        verdict, state = model.finish(taking.id, taking.token, outcome, delay, bound, ids)
        if verdict == "deadlock":
            assert answer[0] == verdict, f"{taking.id} would wait for itself, by {ids}: {answer}"
            model.tell_after = 0
            return
        assert answer[:2] == [verdict, state], f"should be {verdict}, {state}, is {answer[:2]}"
        entry = model.nodes[taking.node].work.get(taking.runner)
        if token and verdict != "condemned":
            ours = entry is not None and entry[0] == taking.token
            if answer[2] or ours:
                assert ours or plain, "a late request took a job for nobody"
                self.taken(answer[2], token, taking.node, taking.runner, known)
        else:
            assert not answer[2]
            if entry and entry[0] == taking.token:
                del model.nodes[taking.node].work[taking.runner]
        model.tell_after = 0

    def _cancel(self, name: str) -> None:
        assert self.call("job_cancel", name, ACT) == self.model.cancel(name)

    def _sweep(self, gap: int = STEADY) -> None:
        expected = self.model.sweep(gap)
        self.again = self.again and not self.model.is_more_over()
        due = len(self.model.due_sorters())
        answer = self.call("sweep", 0, gap, then=[1, [], [], due, 0])
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
        return answer and [str(part) for part in answer[:11]]
    if step == "job_finish":
        return [*answer[:2], answer[2] and [str(part) for part in answer[2][:11]]]
    return [answer[0], answer[2]] if step == "node_beat" else answer
