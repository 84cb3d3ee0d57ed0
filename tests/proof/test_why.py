"""`why` beside the model: it names the causes for which the model does not start a job, and no other."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import ClassVar

from coordinator.diagnosis import cause
from coordinator.diagnosis.snapshot import Snapshot
from coordinator.diagnosis.summary import Summary, why_summary
from coordinator.diagnosis.why import why_job, why_key, why_node
from proof.model.lanes import Node
from proof.model.machine import KEYS, PICK, A, B, C
from proof.model.operators import Model
from proof.model.record import Job
from proof.model.steps import act
from proof.model.wholes import Whole
from tests.harness.redis import RedisServer

Said = tuple[str, ...]
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


def ready(model: Model, job: Job) -> Iterator[Said]:
    """Each node counts under the first cause that rejects it."""
    if job.state != "ready":
        return
    assert job.place
    groups: dict[str, list[Node]] = {}
    for node in living(model):
        code = "rejected.full" if is_full(node) else "free"
        code = "rejected.drains" if node.closed else code
        code = "rejected.task" if job.place.task not in node.tasks else code
        code = "rejected.queue" if not node.serves(job.place.kind) else code
        groups.setdefault(code, []).append(node)
    if "free" in groups:
        yield "waiting.claim", job.id
        return
    yield "waiting.slot" if "rejected.full" in groups else "waiting.node" if groups else "waiting.fleet", job.id
    yield from ((code, job.id, str(len(nodes))) for code, nodes in groups.items())


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


OF_JOB: list[Sets] = [waiting, waiting_for_nothing, ready, running, later]
CODES = {
    "waiting.lane", "waiting.limit", "waiting.alone", "waiting.exclusive", "waiting.paused", "waiting.closed",
    "waiting.fleet", "waiting.node", "waiting.slot", "waiting.claim", "rejected.queue", "rejected.task",
    "rejected.drains", "rejected.full", "running.job", "running.rollback", "running.stopping", "running.orphan",
    "running.lock", "later.scheduled", "later.retry", "later.sorter", "later.flush", "parked.results", "held",
    "lane.free", "lane.held", "lane.line", "node.gone", "node.silent", "node.drains", "node.busy", "node.full",
    "node.lacks", "node.offered", "node.idle",
}  # fmt: skip
# tests/coordinator/diagnosis has them, too.
SELDOM = {
    "waiting.slot", "rejected.full", "rejected.queue", "later.scheduled", "later.sorter", "later.flush", "node.full",
}  # fmt: skip
LATE = 48  # a course with a node that died, the rarest cause of the others
BESIDE = {"parked.begun", "parked.unbegun", "parked.until"}  # the model has no sub-tasks


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
        return {("node.gone",)}
    alive, found = node in living(model), set[Said]()
    found |= set() if alive else {("node.silent",)}
    found |= {("node.drains",)} if node.closed else set()
    if node.work:
        found.add(("node.full" if is_full(node) else "node.busy",))
    offered, lacks, places = 0, Counter[Said](), [job.place for job in model.jobs.values() if job.state == "ready"]
    for place in places if alive else ():
        assert place
        if not node.serves(place.kind):
            lacks["node.lacks", place.kind.split("\n")[1]] += 1
        elif place.task not in node.tasks:
            lacks["node.lacks", place.task] += 1
        else:
            offered += not node.closed and not is_full(node)
    if alive and not found and not offered:
        found.add(("node.idle",))
    found |= {("node.offered", str(offered))} if offered else set()
    return found | {(*what, str(count)) for what, count in lacks.items()}


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
        elif one.code.startswith("rejected."):
            found.add((one.code, name, str(one.facts["count"])))
        elif one.code not in BESIDE:
            found.add((one.code, name))
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
        for job in [job for job in self.model.jobs.values() if not job.over]:
            self.compare(expected(self.model, job.id), why_job(Snapshot(self.on.lanes), job.id))
        for key in (A, B, C):
            self.compare(expected_of_lane(self.model, key), why_key(Snapshot(self.on.lanes), key))
        for node in self.model.nodes.values():
            why = why_node(Snapshot(self.on.lanes), node.name)
            self.compare(expected_of_node(self.model, node), why, said_of_node)
        assert said_counts(why_summary(Snapshot(self.on.lanes))) == expected_counts(self.model)

    def compare(self, must: set[Said], why: cause.Why, said: Callable[[cause.Why], set[Said]] = said) -> None:
        does = said(why)
        assert does == must, f"{why.thing}: missing {must - does}, wrong {does - must}: {why}"
        self.seen.update(code for code, *_ in must)


def test_why_names_the_causes_of_the_model_and_no_other(redis_server: RedisServer) -> None:
    class Here(Asked):
        url = redis_server.url(9)
        seen: ClassVar[set[str]] = set()

    for place, number in enumerate((LATE, *range(75))):
        if place < 25 or CODES - Here.seen - SELDOM:
            Here.course(number, 40)
    assert CODES - Here.seen <= SELDOM
