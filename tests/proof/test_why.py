"""`why` beside the model: it names the causes for which the model does not start a job, and no other."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from coordinator.ops.diagnosis import cause, codes
from coordinator.ops.diagnosis.jobs import of_lane
from coordinator.ops.diagnosis.nodes import of_node
from coordinator.ops.diagnosis.snapshot import Snapshot
from coordinator.ops.diagnosis.summary import Summary, why_summary
from coordinator.ops.diagnosis.why import why_job, why_thing
from proof.model import asks
from proof.model.dependants import EVENT
from proof.model.depending import Depending
from proof.model.grabbing_jobs import GrabbingJobs
from proof.model.lanes import Node
from proof.model.machine import KEY, KEYS, NODE, PICK, A, B, C
from proof.model.operators import Model
from proof.model.quotas import Bounds
from proof.model.record import Job, Place
from proof.model.steps import act
from proof.model.sweeps import FORGOTTEN
from proof.model.wholes import Whole, parked
from tests.harness.long import long
from tests.harness.redis import RedisServer

Said = tuple[str, ...]


def why_lane(snapshot: Snapshot, key: str) -> cause.Why:
    return why_thing(snapshot, f"lane {key}", of_lane(snapshot, key))


Sets = Callable[[Model, Job], Iterator[Said]]

# Those that wait


def in_the_way(model: Model, job: Job, key: str) -> list[Job]:
    """Who keeps it waiting in this lane."""
    line = model.line(key)
    return line[: min(1, line.index(job))]


def waiting(model: Model, job: Job) -> Iterator[Said]:
    for key in job.keys if job.state == "waiting" else ():
        yield from (("waiting.lane", job.id, other.id, key) for other in in_the_way(model, job, key))
        yield from marked(model, key)
    yield from lacking(model, job) if job.lack else ()


def lacking(model: Model, job: Job) -> Iterator[Said]:
    """It has its turn in all its lanes, and lacks units, or the rate, of a quota; or that cools down."""
    found: list[Said] = [("waiting.quota", job.id, other, job.lack) for other in has_units(model, job)]
    bounds, now = model.bounds(job.lack) or Bounds(), model.uptime * 1000 + model.micros
    if bounds.step:
        full, _ = model.full_at(job.lack, bounds)
        if max(full, now) + bounds.step - (bounds.burst or 0) * bounds.step > now:
            found.append(("waiting.rate", job.id))
    if model.cooling(job.lack):
        found.append(("waiting.cooldown", job.lack))
    yield from found or (("waiting.ready", job.id, other.id, job.lack) for other in model.alike(job, job.lack))


def has_units(model: Model, job: Job) -> list[str]:
    """Who holds it up, and those that use the quota, where it has too few free units; "" where nobody does."""
    if not job.lack:
        return []
    quota, bounds, head = model.quota(job.lack), model.bounds(job.lack) or Bounds(), model.ahead(job, job.lack)
    (use,) = [use for use in job.uses if use.name == job.lack]
    short = quota.used > 0 if use.all else max(0, bounds.most - quota.used) < use.units
    return list({*([head.id] if head else []), *quota.users}) or [""] if short or head else []


def marked(model: Model, key: str) -> Iterator[Said]:
    if key in model.paused:
        yield "waiting.paused", key


def waiting_for_nothing(model: Model, job: Job) -> Iterator[Said]:
    if (job.state == "waiting" or job.lack) and not list(waiting(model, job)):
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
    if job.state != "ready" or job.lack:
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


def is_held_by_a_cause(job: Job) -> bool:
    return job.state == "held" and job.taken is None


def waiting_for_causes(model: Model, job: Job) -> Iterator[Said]:
    if job.state == "blocked":
        yield from (("blocked", job.id, cause.removeprefix(EVENT)) for cause in job.open)
        yield from (event(model, cause[1:]) for cause in job.open if cause.startswith(EVENT))
    if is_held_by_a_cause(job):
        yield "held.cause", job.id
    if job.event:
        yield "parked.event", job.id
        yield event(model, job.event)


def event(model: Model, name: str) -> Said:
    return "event.set" if name in model.events else "event.unset", name


def later(model: Model, job: Job) -> Iterator[Said]:
    if is_held_by_a_cause(job) or job.event:
        return
    codes = {"scheduled": "later.scheduled", "retrying": "later.retry", "held": "held", "parked": "parked.results"}
    if job.state in codes:
        yield codes[job.state], job.id
    if job.state == "collected":
        yield "later.flush" if job.sealed else "later.sorter", job.id
        if not living(model):
            yield "waiting.fleet", job.id


def parked_on_tasks(model: Model, job: Job) -> Iterator[Said]:
    """Where none of the jobs among its sub-results is open."""
    if job.state == "parked" and not job.event and not following(model, job):
        begun = {each for each in job.waits_for if (job.id, each) in model.begun}
        yield from (("parked.begun", job.id, each) for each in begun)
        if len(begun) < len(job.waits_for):
            yield "parked.unbegun", job.id, str(len(job.waits_for) - len(begun))
        yield "parked.until", job.id, "time_limit" if job.till else "max_lifetime"


def over(model: Model, job: Job) -> Iterator[Said]:
    if job.over:
        yield "over", job.id, job.state


LOST = "ssd"  # the label that no node has
OF_JOB: list[Sets] = [
    waiting, waiting_for_nothing, ready, running, waiting_for_causes, later, parked_on_tasks, over,
]  # fmt: skip
CODES = {
    "waiting.lane", "waiting.paused", "waiting.quota", "waiting.rate", "waiting.cooldown", "waiting.ready",
    "waiting.fleet", "waiting.node", "waiting.slot", "waiting.claim",
    "rejected.queue", "rejected.task", "rejected.drains", "rejected.full", "rejected.app", "rejected.label",
    "rejected.lost", "parked.begun",
    "parked.unbegun", "parked.until", "over", "running.job", "running.rollback", "running.stopping", "running.orphan",
    "running.lock", "later.scheduled", "later.retry", "later.sorter", "later.flush", "parked.results", "held",
    "lane.free", "lane.held", "lane.line", "node.gone", "node.lost", "node.silent", "node.drains", "node.busy",
    "node.full", "node.lacks", "node.offered", "node.idle",
}  # fmt: skip
OF_CAUSES = {"blocked", "held.cause", "parked.event", "event.unset", "event.set"}
# tests/coordinator/ops/diagnosis has them, too.
SELDOM = {
    "waiting.ready", "waiting.slot", "rejected.full", "rejected.queue", "later.scheduled", "later.sorter",
    "later.flush", "node.full",
}  # fmt: skip
RICH = (34, 152, 24, 201, 33, 59)  # courses that have all others between them
# What no model need hold: each is one plain fact, and tests/coordinator/ops/diagnosis has it. An entry's causes are
# held against all that can befall one in its test_entries.py, those of members and items of the service in tests/tasks.
PLAIN = {
    "later.collects": "fields of the job's record, and its time",
    "lane.collects": "the job that the lane's key names",
    "damaged": "the reader of records names the fields",
    "waiting.next": "no step leaves such a job: whoever may start is ready",
    "node.deaf": "a field of the node's record",
    "node.overloaded": "a field of the node's record",
}
ENTRIES = {code for code in codes.CODES if code.startswith("entry.")}


# The facts that are compared, beside the thing, by the code or its first word.
FACTS = {
    "rejected": ("lacks", "count"), "rejected.lost": (), "parked.begun": ("child",), "parked.unbegun": ("count",),
    "parked.until": ("limit",), "over": ("state",),
}  # fmt: skip


def ended_badly(model: Model, causes: Iterable[str]) -> list[str]:
    known = [model.job(cause) for cause in causes if not cause.startswith(EVENT)]
    return [one.id for one in known if one and one.over and one.state != "succeeded"]


def following(model: Model, job: Job) -> list[str]:
    if job.state == "blocked":
        return [cause for cause in job.open if not cause.startswith(EVENT)]
    if is_held_by_a_cause(job):
        return ended_badly(model, job.open)
    if job.state == "failed" and job.after and job.taken is None:
        return ended_badly(model, (cause for _, cause in job.after))
    if job.event:
        return []
    if job.state == "parked":
        known = [model.job(name) for name in job.waits_for]
        return [one.id for one in known if one and not one.over][:1]
    if job.state != "waiting" and not job.lack:
        return []
    keys = job.keys if job.state == "waiting" else ()
    users = [said[2] for said in lacking(model, job) if len(said) > 3 and said[2]] if job.lack else []
    return [*users, *(other.id for key in keys for other in in_the_way(model, job, key))]


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
    offered, lacks, places = 0, Counter[Said](), [model.jobs[name].place for name in model.ready.all()]
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
    own = [one for one in why.causes if one.thing == why.thing and one.code not in ("node.deaf", "node.overloaded")]
    return {(one.code, *(str(one.facts[name]) for name in ("lacks", "count") if name in one.facts)) for one in own}


def expected_counts(model: Model) -> Counter[str]:
    """Of those in line, their number."""
    jobs = [job for job in model.jobs.values() if not job.over and not job.plain]
    kinds = (ready, waiting_for_causes, later)
    codes = [next((code for kind in kinds for code in kind(model, job)), None) for job in jobs]
    states = {"held.cause": "held", "parked.event": "parked.results"}
    found = Counter(states.get(code[0], code[0]) for code in codes if code)
    found["later.sorter"] += found.pop("later.flush", 0)
    found["in line"] = sum(job.state == "waiting" or bool(job.lack) for job in jobs)
    return +found


def said_counts(summary: Summary) -> Counter[str]:
    lined = ("waiting.lane", "waiting.paused", "waiting.quota", "waiting.rate", "waiting.cooldown", "waiting.ready")
    found = Counter[str]()
    for row in summary.rows:
        found["in line" if row.code in lined else row.code] += row.count
    return found


def said(why: cause.Why) -> set[Said]:
    found: set[Said] = set()
    for one in why.causes:
        name = one.thing.partition(" ")[2]
        others = [other.partition(" ")[2] for other in one.of]
        if one.code == "waiting.lane":
            found |= {(one.code, name, other, str(one.facts["key"])) for other in others}
        elif one.code in ("waiting.quota", "waiting.ready"):
            found |= {(one.code, name, other, str(one.facts["name"])) for other in others or [""]}
        elif one.code in ("lane.held", "lane.line", "blocked"):
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

    @act(6, keys=[*KEYS, (A,), (A,), (A, B)], hold=range(2), pick=PICK)
    def submit_to_a_busy_lane(self, keys: tuple[str, ...], hold: int, pick: int) -> None:
        self.submit(keys, 0, 1, [["bare", "hold"][hold]], pick)

    @act(2, on=[False, True])
    def drain_all(self, on: bool) -> None:
        for node in self.model.nodes:
            self.drain(node, on)

    def look_at_all(self) -> None:
        super().look_at_all()
        snapshot = Snapshot(self.lanes, {LOST: lambda _store: ["it is gone"]})  # time stands still
        for job in [job for job in self.model.jobs.values() if job.id not in self.ended]:
            self.compare(expected(self.model, job.id), why_job(snapshot, job.id))
        self.ended = frozenset(job.id for job in self.model.jobs.values() if job.over)
        for key in (A, B, C):
            self.compare(expected_of_lane(self.model, key), why_lane(snapshot, key))
        for node in self.model.nodes.values():
            why = why_thing(snapshot, f"node {node.name}", of_node(snapshot, node.name))
            self.compare(expected_of_node(self.model, node), why, said_of_node)
        assert said_counts(why_summary(snapshot)) == expected_counts(self.model)

    def compare(self, must: set[Said], why: cause.Why, said: Callable[[cause.Why], set[Said]] = said) -> None:
        does = said(why)
        assert does == must, f"{why.thing}: missing {must - does}, wrong {does - must}: {why}"
        self.seen.update(code for code, *_ in must)


def test_why_names_the_causes_of_the_model_and_no_other(redis_server: RedisServer) -> None:
    class Here(Asked):
        url = redis_server.url(9)
        seen: ClassVar[set[str]] = set()

    for place, number in enumerate(dict.fromkeys((*RICH, *range(75)))):
        if place < long(7, 75) or CODES - Here.seen - SELDOM:
            Here.course(number, 40)
    assert CODES - Here.seen <= SELDOM


class AskedOfDependants(Asked, Depending):
    pass


def test_why_names_the_causes_after_which_a_job_runs(redis_server: RedisServer) -> None:
    class Here(AskedOfDependants):
        url = redis_server.url(9)
        seen: ClassVar[set[str]] = set()

    for number in range(long(30, 90)):
        if number < long(4, 90) or OF_CAUSES - Here.seen - {"event.set"}:
            Here.course(number, 40)
    assert OF_CAUSES - Here.seen <= {"event.set"}  # more than a hundred jobs have to wait for one


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
    assert sorted([*CODES, *OF_CAUSES, "running.grab", *PLAIN, *ENTRIES]) == sorted(codes.CODES)
