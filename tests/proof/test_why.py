"""`why` beside the model: it names the causes for which the model does not start a job, and no other."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from coordinator.diagnosis import cause, codes
from coordinator.diagnosis.jobs import of_lane
from coordinator.diagnosis.nodes import of_node
from coordinator.diagnosis.snapshot import Snapshot
from coordinator.diagnosis.summary import Summary, why_summary
from coordinator.diagnosis.why import why_job, why_thing
from proof.model import asks
from proof.model.grabbing_jobs import GrabbingJobs
from proof.model.lanes import Node
from proof.model.machine import KEY, KEYS, NODE, PICK, A, B, C
from proof.model.operators import Model
from proof.model.record import Job, Place
from proof.model.steps import act
from proof.model.sweeps import FORGOTTEN
from proof.model.wholes import Whole, parked
from tests.harness.long import long
from tests.harness.redis import RedisServer

Said = tuple[str, ...]


def why_lane(look: Snapshot, key: str) -> cause.Why:
    return why_thing(look, f"lane {key}", of_lane(look, key))


Sets = Callable[[Model, Job], Iterator[Said]]

# Those that wait


def in_the_way(model: Model, job: Job, key: str) -> tuple[str, list[Job]]:
    """By which rule of `may_start` others keep it waiting in this lane, and who they are."""
    line, limit = model.line(key), max(1, model.limit(key))
    before = line[: line.index(job)]
    if len(before) < limit and not job.alone:
        return "waiting.exclusive", [other for other in before if other.alone]
    holding = max(limit, sum(other.state != "waiting" for other in before))
    return "waiting.lane" if limit == 1 else "waiting.alone" if job.alone else "waiting.limit", before[:holding]


def waiting(model: Model, job: Job) -> Iterator[Said]:
    for key in job.keys if job.state == "waiting" else ():
        code, others = in_the_way(model, job, key)
        yield from ((code, job.id, other.id, key) for other in others)
        yield from marked(model, key)


def marked(model: Model, key: str) -> Iterator[Said]:
    if key in model.paused:
        yield "waiting.paused", key
    if not model.limit(key):
        yield "waiting.closed", key


def waiting_for_nothing(model: Model, job: Job) -> Iterator[Said]:
    if job.state == "waiting" and not list(waiting(model, job)):
        yield "waiting.next", job.id


# Those that are ready, and at work


def living(model: Model) -> list[Node]:
    return [node for node in model.nodes.values() if node.alive > model.uptime]


def is_full(node: Node) -> bool:
    return len(node.work) >= 4


def rejected(node: Node, place: Place) -> tuple[str, str]:
    """The first cause that rejects a job of this place, and what the node lacks."""
    app, queue, *labels = place.kind.split("\n")
    lacks = [("rejected.app", app)] if app not in ("", "shop") else []
    lacks += [("rejected.queue", queue)] if queue not in node.queues else []
    lacks += [("rejected.label", label) for label in labels if label not in node.labels]
    lacks += [("rejected.task", place.task)] if place.task not in node.tasks else []
    lacks += [("rejected.drains", "")] if node.closed else []
    return [*lacks, ("rejected.full" if is_full(node) else "free", "")][0]


def ready(model: Model, job: Job) -> Iterator[Said]:
    """Each node counts under the first cause that rejects it."""
    if job.state != "ready":
        return
    assert job.place
    codes = Counter(rejected(node, job.place)[0] for node in living(model))
    beside = "waiting.slot" if codes["rejected.full"] else "waiting.node" if codes else "waiting.fleet"
    yield "waiting.claim" if codes["free"] else beside, job.id
    lacks = Counter(rejected(node, job.place) for node in living(model) if not codes["free"])
    yield from ((code, job.id, lack, str(count)) for (code, lack), count in lacks.items())
    if LOST in job.place.kind.split("\n"):
        yield "rejected.lost", LOST


def running(model: Model, job: Job) -> Iterator[Said]:
    if job.state != "running":
        return
    if job.plain:
        yield "running.lock", job.id
        return
    yield "running.rollback" if job.phase == "rollback" else "running.job", job.id
    if job.stop:
        yield "running.stopping", job.id
    if model.nodes[job.node] not in living(model):
        yield "running.orphan", job.id


def later(model: Model, job: Job) -> Iterator[Said]:
    codes = {"scheduled": "later.scheduled", "retrying": "later.retry", "held": "held", "parked": "parked.results"}
    if job.state in codes:
        yield codes[job.state], job.id
    if job.state == "collected":
        yield "later.flush" if job.sealed else "later.sorter", job.id
        if not living(model):
            yield "waiting.fleet", job.id


def parked_on_tasks(model: Model, job: Job) -> Iterator[Said]:
    """Where none of the jobs among its sub-results is open."""
    if job.state == "parked" and not following(model, job):
        begun = {each for each in job.waits_for if (job.id, each) in model.begun}
        yield from (("parked.begun", job.id, each) for each in begun)
        if len(begun) < len(job.waits_for):
            yield "parked.unbegun", job.id, str(len(job.waits_for) - len(begun))
        yield "parked.until", job.id, "time_limit" if job.till else "max_lifetime"


def over(model: Model, job: Job) -> Iterator[Said]:
    if job.over:
        yield "over", job.id, job.state


LOST = "ssd"  # the label that no node has
OF_JOB: list[Sets] = [waiting, waiting_for_nothing, ready, running, later, parked_on_tasks, over]
CODES = {
    "waiting.lane", "waiting.limit", "waiting.alone", "waiting.exclusive", "waiting.paused", "waiting.closed",
    "waiting.fleet", "waiting.node", "waiting.slot", "waiting.claim", "rejected.queue", "rejected.task",
    "rejected.drains", "rejected.full", "rejected.app", "rejected.label", "rejected.lost", "parked.begun",
    "parked.unbegun", "parked.until", "over", "running.job", "running.rollback", "running.stopping", "running.orphan",
    "running.lock", "later.scheduled", "later.retry", "later.sorter", "later.flush", "parked.results", "held",
    "lane.free", "lane.held", "lane.line", "node.gone", "node.lost", "node.silent", "node.drains", "node.busy",
    "node.full", "node.lacks", "node.offered", "node.idle",
}  # fmt: skip
# tests/coordinator/diagnosis has them, too.
SELDOM = {
    "waiting.slot", "rejected.full", "rejected.queue", "later.scheduled", "later.sorter", "later.flush", "node.full",
}  # fmt: skip
RICH = (3, 34, 5, 28, 37, 13, 17)  # courses that have all others between them
# What no model need hold: each is one plain fact, and tests/coordinator/diagnosis has it. An entry's causes are held
# against all that can befall one in its test_entries.py, those of members and items of the service in tests/tasks.
PLAIN = {
    "damaged": "the reader of records names the fields",
    "waiting.next": "no step leaves such a job: whoever may start is ready",
    "node.deaf": "a field of the node's record",
    "node.braked": "a field of the node's record",
}
ENTRIES = {code for code in codes.CODES if code.startswith("entry.")}


# The facts that are compared, beside the thing, by the code or its first word.
FACTS = {
    "rejected": ("lacks", "count"), "rejected.lost": (), "parked.begun": ("task",), "parked.unbegun": ("count",),
    "parked.until": ("limit",), "over": ("state",),
}  # fmt: skip


def following(model: Model, job: Job) -> list[str]:
    if job.state == "parked":
        known = [model.job(name) for name in job.waits_for]
        return [one.id for one in known if one and not one.over][:1]
    if job.state != "waiting":
        return []
    return [other.id for key in job.keys for other in in_the_way(model, job, key)[1]]


def expected(model: Model, *names: str) -> set[Said]:
    found, queue, seen = set(), [*names], set(names)
    while queue:
        job = model.jobs[queue.pop()]
        found |= {each for holds in OF_JOB for each in holds(model, job)}
        queue += (fresh := set(following(model, job)) - seen)
        seen |= fresh
    return found


def expected_of_lane(model: Model, key: str) -> set[Said]:
    line = model.line(key)
    holders = [job.id for job in line if job.taken is not None]
    found = set(marked(model, key))
    if holders:
        found |= {("lane.held", key, name) for name in holders}
    elif line:
        found.add(("lane.line", key, line[0].id))
    elif not found:
        found.add(("lane.free", key))
    return found | expected(model, *(holders or [job.id for job in line[:1]]))


def expected_of_node(model: Model, node: Node) -> set[Said]:
    if not node.incarnation:
        return {("node.lost" if node.lost and node.lost[0] > model.wall - FORGOTTEN else "node.gone",)}
    alive, found = node in living(model), set[Said]()
    found |= set() if alive else {("node.silent",)}
    found |= {("node.drains",)} if node.closed else set()
    if node.work:
        found.add(("node.full" if is_full(node) else "node.busy",))
    offered, lacks, places = 0, Counter[Said](), [job.place for job in model.jobs.values() if job.state == "ready"]
    for place in places if alive else ():
        assert place
        code, lack = rejected(node, place)
        lacks[code, lack] += bool(lack)  # an app and a queue may have one name
        offered += code == "free"
    if alive and not found and not offered:
        found.add(("node.idle",))
    found |= {("node.offered", str(offered))} if offered else set()
    return found | {("node.lacks", lack, str(count)) for (_, lack), count in lacks.items() if count}


def said_of_node(why: cause.Why) -> set[Said]:
    own = [one for one in why.causes if one.thing == why.thing and one.code not in ("node.deaf", "node.braked")]
    return {(one.code, *(str(one.facts[name]) for name in ("lacks", "count") if name in one.facts)) for one in own}


def expected_counts(model: Model) -> Counter[str]:
    """Of those in line, their number."""
    jobs = [job for job in model.jobs.values() if not job.over and not job.plain]
    codes = [next(ready(model, job), None) or next(later(model, job), None) for job in jobs]
    found = Counter(code[0] for code in codes if code)
    found["later.sorter"] += found.pop("later.flush", 0)
    found["in line"] = sum(job.state == "waiting" for job in jobs)
    return +found


def said_counts(summary: Summary) -> Counter[str]:
    lined = ("waiting.lane", "waiting.limit", "waiting.paused", "waiting.closed")
    found = Counter[str]()
    for row in summary.rows:
        found["in line" if row.code in lined else row.code] += row.count
    return found


def said(why: cause.Why) -> set[Said]:
    found: set[Said] = set()
    for one in why.causes:
        name = one.thing.partition(" ")[2]
        others = [other.partition(" ")[2] for other in one.of]
        if one.code in ("waiting.lane", "waiting.limit", "waiting.alone", "waiting.exclusive"):
            found |= {(one.code, name, other, str(one.facts["key"])) for other in others}
        elif one.code in ("lane.held", "lane.line"):
            found |= {(one.code, name, other) for other in others}
        elif one.code == "running.grab":
            found.add((one.code, str(one.facts["key"]), str(one.facts["instance"])))
        else:
            names = FACTS.get(one.code, FACTS.get(one.code.partition(".")[0], ()))
            found.add((one.code, name, *(str(one.facts[fact]) for fact in names)))
    return found


class Asked(Whole):
    seen: ClassVar[set[str]]
    ended: frozenset[str] = frozenset()  # they were looked at

    @act(3, key=KEY, asked=[{"needs": ["gpu"]}, {"needs": ["gpu", LOST]}, {"app": "other"}])
    def submit_to_few(self, key: str, asked: dict[str, Any]) -> None:
        ask = asks.Ask(self.new("j"), (key,), 0, self.model.wall, "", **asked)
        self._submit(ask.job, ask.args, "queue")

    @act(6, parked, pick=PICK, node=NODE)
    def begin_a_child(self, pick: int, node: str) -> None:
        job = self.model.jobs.get(self.any_job(pick, "parked"))
        for child in job.waits_for[: 1 + pick % 2] if job else ():
            self.call("child_began", job.id, child, job.fence, node, "first")
            self.model.begun.add((job.id, child))

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
        look = Snapshot(self.lanes, {LOST: lambda _store: ["it is gone"]})  # time stands still
        for job in [job for job in self.model.jobs.values() if job.id not in self.ended]:
            self.compare(expected(self.model, job.id), why_job(look, job.id))
        self.ended = frozenset(job.id for job in self.model.jobs.values() if job.over)
        for key in (A, B, C):
            self.compare(expected_of_lane(self.model, key), why_lane(look, key))
        for node in self.model.nodes.values():
            why = why_thing(look, f"node {node.name}", of_node(look, node.name))
            self.compare(expected_of_node(self.model, node), why, said_of_node)
        assert said_counts(why_summary(look)) == expected_counts(self.model)

    def compare(self, must: set[Said], why: cause.Why, said: Callable[[cause.Why], set[Said]] = said) -> None:
        does = said(why)
        assert does == must, f"{why.thing}: missing {must - does}, wrong {does - must}: {why}"
        self.seen.update(code for code, *_ in must)


@pytest.mark.timeout(300)
def test_why_names_the_causes_of_the_model_and_no_other(redis_server: RedisServer) -> None:
    class Here(Asked):
        url = redis_server.url(9)
        seen: ClassVar[set[str]] = set()

    for place, number in enumerate(dict.fromkeys((*RICH, *range(75)))):
        if place < long(7, 75) or CODES - Here.seen - SELDOM:
            Here.course(number, 40)
    assert CODES - Here.seen <= SELDOM


class AskedOfGrabs(GrabbingJobs):
    """A process's grab is a lock in plain code; that of a job is the job."""

    seen = 0

    def look_at_all(self) -> None:
        super().look_at_all()
        names = {lane: tuple(lane.split("\x1f")[1:]) for lane in self.instances}
        for key in {key for key, _ in names.values()}:
            lanes = [lane for lane in names if names[lane][0] == key]
            running = {names[lane] for lane in lanes if self.instances.read(lane)[1] == "running"}
            why = why_lane(Snapshot(self.lanes), key)
            named = {each[1:] for each in said(why) if each[0] == "running.grab" and each[1] == key}
            assert named == running, why
            type(self).seen += len(running)


def test_why_names_the_grabs_of_a_key_that_the_model_knows(redis_server: RedisServer) -> None:
    class Here(AskedOfGrabs):
        url = redis_server.url(9)

    for number in range(long(6, 12)):
        Here.course(number, 40)
    assert Here.seen


def test_each_code_is_compared_with_the_model_or_is_one_plain_fact() -> None:
    assert sorted([*CODES, "running.grab", *PLAIN, *ENTRIES]) == sorted(codes.CODES)
