"""`why` beside the model: it names the causes for which the model does not start a job, and no other."""

import re
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

from coordinator.diagnosis.why import Look, causes_of
from tests.harness.redis import RedisServer
from tests.model.lanes import Node
from tests.model.machine import KEYS, PICK, A, B
from tests.model.operators import Model
from tests.model.record import Job
from tests.model.steps import act
from tests.model.wholes import Whole

Sets = Callable[[Model, Job], Iterator[tuple[str, ...]]]

BEHIND = r"job (\S+) waits behind job (\S+) in lane '(\S+)'"
READY = r"job (\S+) is (?:ready|to be rolled back), and "


class Cause(NamedTuple):
    """`says`: what its sentence looks like, with groups; `holds`: the groups of each such sentence, by the model."""

    says: str
    holds: Sets


# Those that wait


def in_the_way(model: Model, job: Job, key: str) -> tuple[str, list[Job]]:
    """By which rule of `may_start` others keep it waiting in this lane, and who they are."""
    line, limit = model.line(key), max(1, model.limit(key))
    before = line[: line.index(job)]
    if len(before) < limit and not job.alone:
        return "behind alone", [other for other in before if other.alone]
    holding = max(limit, sum(other.state != "waiting" for other in before))
    return "alone" if job.alone and limit > 1 else "full", before[:holding]


def behind(rule: str) -> Sets:
    def those(model: Model, job: Job) -> Iterator[tuple[str, ...]]:
        for key in job.keys if job.state == "waiting" else ():
            how, others = in_the_way(model, job, key)
            yield from ((job.id, other.id, key) for other in others if how == rule)

    return those


def lane(holds: Callable[[Model, str], bool]) -> Sets:
    def those(model: Model, job: Job) -> Iterator[tuple[str, ...]]:
        yield from ((key,) for key in job.keys if job.state == "waiting" and holds(model, key))

    return those


# Those that are not in line, or were started


def living(model: Model) -> list[Node]:
    return [node for node in model.nodes.values() if node.alive > model.uptime]


def fitting(model: Model, job: Job) -> list[Node]:
    assert job.place
    return [node for node in living(model) if node.serves(job.place.kind) and job.place.task in node.tasks]


def is_ready(holds: Callable[[Model, Job], bool]) -> Sets:
    return state("ready", holds)


def state(name: str, holds: Callable[[Model, Job], bool] = lambda model, job: True) -> Sets:
    def those(model: Model, job: Job) -> Iterator[tuple[str, ...]]:
        if job.state == name and holds(model, job):
            yield (job.id,)

    return those


def is_full(node: Node) -> bool:
    return len(node.work) >= 4


CAUSES = {
    "full": Cause(BEHIND + "(?:, of which \\d+ may run at once)?", behind("full")),
    "alone": Cause(BEHIND + ', to run alone \\(exclusive\\)', behind("alone")),
    "behind alone": Cause(BEHIND + ', which runs alone \\(exclusive\\)', behind("behind alone")),
    "paused": Cause(r"lane '(\S+)' is paused by who since .*: why", lane(lambda model, key: key in model.paused)),
    "closed": Cause(r"lane '(\S+)' has the limit 0, set by who .*: why", lane(lambda model, key: not model.limit(key))),
    "runs": Cause(r"job (\S+) (?:runs|is rolled back) on node .*", state("running", lambda model, job: not job.plain)),
    "node died": Cause(
        r"job (\S+) .*; that node is not alive: .*",
        state("running", lambda model, job: not job.plain and model.nodes[job.node] not in living(model)),
    ),
    "stops": Cause(r"job (\S+) .*; it is being stopped, .*", state("running", lambda model, job: bool(job.stop))),
    "lock": Cause(r"job (\S+) is a lock in plain code, held for .*", state("running", lambda model, job: job.plain)),
    "retrying": Cause(r"job (\S+) is tried again at .*", state("retrying")),
    "held": Cause(r"job (\S+) is held for an operator, .*", state("held")),
    "parked": Cause(r"job (\S+) is (?:rolled back; its rollback is )?parked until .*", state("parked")),
    "scheduled": Cause(r"job (\S+) is scheduled for later: .*", state("scheduled")),
    "collected": Cause(r"job (\S+) is (?:held by|among the orders that) the sorter .*", state("collected")),
    "no node": Cause(READY + "no node is alive", is_ready(lambda model, job: not living(model))),
    "no node fits": Cause(
        READY + "no living node .*",
        is_ready(lambda model, job: bool(living(model)) and all(node.closed for node in fitting(model, job))),
    ),
    "nodes are full": Cause(
        READY + "every slot of the nodes that may run it is taken: .*",
        is_ready(lambda model, job: any(not node.closed for node in fitting(model, job))
                 and all(node.closed or is_full(node) for node in fitting(model, job))),
    ),
    "a node has room": Cause(
        READY + "node .* has room for it",
        is_ready(lambda model, job: any(not node.closed and not is_full(node) for node in fitting(model, job))),
    ),
}  # fmt: skip
SELDOM = {"nodes are full", "scheduled", "collected"}  # tests/coordinator/diagnosis/test_why.py has them, too
LATE = 48  # a course with a node that died, the rarest cause of the others
BESIDE = r"sub-task .* was begun on .*|the other \d+ have not begun.*|its (?:time_limit|max_lifetime) ends the wait .*"


def following(model: Model, job: Job) -> list[str]:
    if job.state == "parked":
        known = [model.job(name) for name in job.waits_for]
        return [one.id for one in known if one and not one.over][:1]
    if job.state != "waiting":
        return []
    return [other.id for key in job.keys for other in in_the_way(model, job, key)[1]]


def expected(model: Model, name: str) -> set[tuple[str, ...]]:
    found, queue, seen = set(), [name], {name}
    while queue:
        job = model.jobs[queue.pop()]
        found |= {(cause, *groups) for cause, (_, holds) in CAUSES.items() for groups in holds(model, job)}
        queue += (fresh := set(following(model, job)) - seen)
        seen |= fresh
    return found


def said(sentences: list[str]) -> set[tuple[str, ...]]:
    found = set()
    for sentence in sentences:
        matches = [(cause, re.fullmatch(says, sentence)) for cause, (says, _) in CAUSES.items()]
        named = {(cause, *match.groups()) for cause, match in matches if match}
        assert named or re.fullmatch(BESIDE, sentence), f"of no cause: {sentence}"
        found |= named
    return found


class Asked(Whole):
    seen: ClassVar[set[str]]

    @act(6, keys=[*KEYS, (A,), (A,), (A, B)], alone=range(3), hold=range(2), pick=PICK)
    def submit_to_a_busy_lane(self, keys: tuple[str, ...], alone: int, hold: int, pick: int) -> None:
        self.submit(keys, 0, 1, [["bare", "alone"][alone == 0], ["bare", "hold"][hold]], pick)

    @act(4, key=[A, A, B], limit=range(5))
    def set_limit(self, key: str, limit: int) -> None:
        super().set_limit(key, limit)

    @act(2, on=[False, True])
    def drain_all(self, on: bool) -> None:
        for node in self.model.nodes:
            self.drain(node, on)

    def look_at_all(self) -> None:
        super().look_at_all()
        for job in [job for job in self.model.jobs.values() if job.state == "waiting"]:
            sentences = causes_of(Look(self.on.lanes), job.id)
            must, does = expected(self.model, job.id), said(sentences)
            assert does == must, f"{job.id}: missing {must - does}, wrong {does - must}: {sentences}"
            self.seen.update(cause for cause, *_ in must)


def test_why_names_the_causes_of_the_model_and_no_other(redis_server: RedisServer) -> None:
    class Here(Asked):
        url = redis_server.url(9)
        seen: ClassVar[set[str]] = set()

    for place, number in enumerate((LATE, *range(75))):
        if place < 25 or set(CAUSES) - Here.seen - SELDOM:
            Here.course(number, 40)
    assert set(CAUSES) - Here.seen <= SELDOM
