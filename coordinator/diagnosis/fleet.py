"""What is wrong with the nodes of an installation, and which jobs none of them can run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from shlex import quote

from coordinator.diagnosis.codes import command
from coordinator.diagnosis.finding import Finding
from coordinator.diagnosis.fit import fit
from coordinator.diagnosis.snapshot import Snapshot
from coordinator.errors import StoreRefused
from coordinator.fleet.nodes import Node
from coordinator.jobs.ready import ReadyKind, ready_of
from coordinator.lanes import view
from coordinator.store.client import Store
from coordinator.store.reading import number_in
from coordinator.store.times import milliseconds, span_text

_MOST = 1000  # ready jobs behind which it looks, and wake-ups of a node
_PAGES = 10  # of 10,000 keys, where an installation of another prefix is looked for
_UNANSWERED = 10.0  # seconds after which a wake-up is overdue
_UNTRIED = 60.0  # seconds after which a node of the app should have tried to send what an ended job owes
_TRIED_AGAIN = 30.0  # seconds after the first try: functions/steps/job.lua
_SKEW = 2.0  # seconds
_NOT_OWN = ("celery.", "coordinator.")


def of_fleet(look: Snapshot) -> Iterator[Finding]:
    store, living = look.store, look.living
    labels = {label for node in living for label in node.labels}
    for label in look.needed:
        if label not in labels:
            said = f"no node has the label {label}: the jobs that need it wait"
            yield Finding("error", "label.lost", f"label {label}", said, "coordinator nodes")
    if not living:
        yield _no_node(store)
        return
    if all(node.draining for node in living):
        fixes = [command("undrain", {"name": node.name}) for node in living if node.drained]
        said = f"each living node drains, so no job starts: {', '.join(node.name for node in living[:10])}"
        yield Finding("warning", "node.draining", "nodes", said, (fixes or ["celery -A APP worker"])[0])
    yield from _of_sweep(store)
    yield from _of_bells(store, living)
    yield from _of_results(look)
    yield from _of_clocks(living)
    yield from _of_versions(living)
    yield from _of_apps(living)
    yield from _of_queues(living)
    yield from (finding for _, finding in unserved(look))


def since_sweep(store: Store) -> float | None:
    """Seconds since the last sweep of any node."""
    last = number_in(store.read("HGET", store.key("swept"), "last"))
    return None if last is None else max(0.0, (store.now() - last) / 1000)


def _no_node(store: Store) -> Finding:
    others = [] if store.read("EXISTS", store.key("swept")) else _other_prefixes(store)
    prefix = f"prefix {store.settings.prefix}"
    if others:
        said = f"no node ever was under the prefix {store.settings.prefix!r}, but under {', '.join(others)}"
        way_out = f"COORDINATOR_PREFIX={others[0]} coordinator nodes"
        return Finding("error", "node.none", prefix, f"no node is alive: {said}", way_out)
    return Finding("error", "node.none", prefix, "no node is alive: jobs wait", "celery -A APP worker")


def _other_prefixes(store: Store) -> list[str]:
    """The prefixes of the installations in this Redis, by the keys of their sweeps; none where we may not look."""
    with suppress(StoreRefused):
        names, cursor = set(), 0
        for _ in range(_PAGES):
            cursor, page = store.read("SCAN", cursor, "MATCH", "{*}:swept", "COUNT", 10_000)
            names |= {repr(name.decode(errors="replace")[1:].partition("}")[0]) for name in page}
            if cursor == 0:
                break
        return sorted(names)
    return []


def _of_sweep(store: Store) -> Iterator[Finding]:
    swept = since_sweep(store)
    if swept is not None and swept > store.settings.node_ttl:
        said = f"no node has swept for {span_text(swept)}: retries, time limits and lost jobs wait"
        way_out = "celery -A APP worker  # each node sweeps; the logs of those that live say why they do not"
        yield Finding("error", "sweep.old", "sweep", said, way_out)


def _of_bells(store: Store, living: Sequence[Node]) -> Iterator[Finding]:
    """Wake-ups that a node with a free slot does not answer. Those of a full node wait for a slot."""
    now = store.now()
    rungs = store.read_many([("ZRANGE", store.key("rung", node.name), 0, _MOST) for node in living])
    for node, wakes in zip(living, rungs, strict=True):
        ages = [(now - int(wake.partition(b"-")[0])) / 1000 for wake in wakes]
        late = [age for age in ages if age > _UNANSWERED]
        if late and node.running + node.ordinary < node.capacity:
            said = f"{len(late)} wake-ups are not answered, the oldest for {span_text(max(late))}"
            said += f"; the last runner there failed: {node.failure}" if node.failure else ""
            way_out = f"celery -A APP worker -n {quote(node.name)}  # again, once it reaches the broker"
            yield Finding("warning", "wakes.overdue", f"node {node.name}", said, way_out)


def _of_results(look: Snapshot) -> Iterator[Finding]:
    """Ended jobs whose results and links the errands could not send, or nobody tried to.

    `unsent:<app>` has when the next try of each is due: 30 s after the first, later after the second. So those between
    are told apart by their records.
    """
    now = look.store.now()
    early, late = now - milliseconds(_UNTRIED), now + milliseconds(_TRIED_AGAIN)
    for app in sorted({node.app for node in look.living}):
        owed = look.store.key("unsent", app)
        untried, failed, between = look.store.read_many(
            [
                ("ZCOUNT", owed, "-inf", f"({early}"),
                ("ZCOUNT", owed, f"({late}", "+inf"),
                ("ZRANGEBYSCORE", owed, early, late, "LIMIT", 0, _MOST),
            ]
        )
        tries = (number_in(offers) for (offers,) in look.fields([raw.decode() for raw in between], "offers"))
        if count := untried + failed + sum((number or 0) > 1 for number in tries):
            said = f"what {count} ended jobs owe cannot be sent: results, links, the rest of canvases"
            way_out = f"celery -A {quote(app)} report  # names its result backend; the nodes' logs say what it answers"
            yield Finding("error", "results.overdue", f"app {app}", said, way_out)


def _of_clocks(living: Sequence[Node]) -> Iterator[Finding]:
    for node in living:
        if abs(node.skew) >= _SKEW:
            side = "ahead of" if node.skew > 0 else "behind"
            said = f"the clock of its host {node.host} is {abs(node.skew):.0f} s {side} the installation's"
            way_out = f"timedatectl set-ntp true  # on {node.host}; dates in results, logs and eta go by its clock"
            yield Finding("warning", "node.clock", f"node {node.name}", said, way_out)


def _of_versions(living: Sequence[Node]) -> Iterator[Finding]:
    versions: defaultdict[str, list[str]] = defaultdict(list)
    for node in living:
        versions[node.version or "unknown"].append(node.name)
    if len(versions) > 1:
        each = "; ".join(f"{version} on {', '.join(names)}" for version, names in sorted(versions.items()))
        said, way_out = f"nodes run several versions: {each}", "coordinator nodes  # end the upgrade of the older ones"
        yield Finding("warning", "version.mixed", "nodes", said, way_out)


def _of_apps(living: Sequence[Node]) -> Iterator[Finding]:
    """Nodes of one app and queue that have different tasks of one module. Where one has all of them, an upgrade adds
    some; where none has, they may be two projects of one name, which run each other's jobs.
    """
    having: defaultdict[tuple[str, str, str], defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for node in living:
        for task in node.tasks:
            for queue in () if task.startswith(_NOT_OWN) else node.queues:
                having[node.app, queue, task.rpartition(".")[0]][node.name].add(task)
    for (app, queue, module), tasks in sorted(having.items()):
        every = set[str]().union(*tasks.values())
        lacking = [f"{name} lacks {', '.join(sorted(every - own)[:3])}" for name, own in tasks.items() if own != every]
        said = f"nodes of the queue {queue} have different tasks of the module {module}: {'; '.join(lacking[:5])}"
        if len(lacking) == len(tasks):
            said += "; if they are of two projects, each runs jobs of the other"
            way_out = "coordinator nodes  # give each project a name, Celery('shop', …), or a prefix; or end an upgrade"
            yield Finding("warning", "app.mixed", f"app {app}", said, way_out)
        elif lacking:
            way_out = "coordinator nodes  # end the upgrade of the others"
            yield Finding("info", "app.mixed", f"app {app}", said, way_out)


def _of_queues(living: Sequence[Node]) -> Iterator[Finding]:
    """Queues to which the nodes' own apps send tasks, and that none of them serves."""
    served = {(node.app, queue) for node in living for queue in node.queues}
    tasks: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for node in living:
        for task, queue in node.routes.items():
            tasks[node.app, queue].add(task)
        if rest := {task for task in node.tasks if not task.startswith(_NOT_OWN)} - node.routes.keys():
            tasks[node.app, node.queue] |= rest
    for (app, queue), names in sorted(tasks.items()):
        if queue and (app, queue) not in served:
            said = f"no node of the app {app} serves it, and these go there: {', '.join(sorted(names)[:5])}"
            way_out = f"celery -A {quote(app)} worker -Q {quote(queue)}"
            yield Finding("warning", "queue.no-consumer", f"queue {queue}", said, way_out)


def _waits(look: Snapshot, lacking: Sequence[Sequence[ReadyKind]]) -> Iterator[str]:
    """How many jobs wait with these ready ones: the jobs behind them in their lanes, too."""
    all_ = [one for kinds in lacking for one in kinds]
    ids = iter(ready_of(look.store, all_, max(10, _MOST // max(1, len(all_)))))
    known = [[job_id for _ in kinds for job_id in next(ids)] for kinds in lacking]
    keys = iter(look.fields([job_id for some in known for job_id in some], "keys"))
    lanes = [{next(keys)[0].partition("\n")[0] for _ in some} for some in known]
    behind = {lane.key: lane.waiting for lane in view.lanes_at(look.store, sorted(set().union(*lanes)), 1)}
    for kinds, some, own in zip(lacking, known, lanes, strict=True):
        count = sum(one.count for one in kinds)
        if count > len(some):
            yield f"{count} jobs, and those behind them, wait"
        else:
            count += sum(behind[key] for key in own)
            yield f"{count} jobs wait" if count > 1 else "1 job waits"


def unserved(look: Snapshot) -> Iterator[tuple[str, Finding]]:
    """The tasks of ready jobs that no living node can run; each with what is said. The jobs behind them wait, too."""
    known = {task for node in look.living for task in node.tasks}
    lacking: defaultdict[tuple[str, str, str], list[ReadyKind]] = defaultdict(list)
    for one in look.ready:
        parts, task = one.kind.split("\n"), one.task
        if not fit(look.living, parts, task).nobody:
            continue
        lack = ("queue", parts[1]) if fit(look.living, parts[:2], task).nobody else ("label", ",".join(parts[2:]))
        lacking[*(lack if task in known else ("task", task)), task].append(one)
    lacks = sorted(lacking)
    waits = _waits(look, [lacking[lack] for lack in lacks])
    for (what, name, task), wait in zip(lacks, waits, strict=True):
        if what == "task":
            said, way_out = f"{wait} for a task that no node has", command("retarget", {"old": task})
            yield task, Finding("error", "task.unknown", f"task {task}", said, way_out, "retarget", {"old": task})
        elif what == "queue":
            said = f"{wait} for {task} there, and no node with that task serves it"
            way_out = f"celery -A APP worker -Q {quote(name)}"
            yield task, Finding("error", "queue.unserved", f"queue {name}", said, way_out)
        else:
            said = f"{wait} for a node that has it and the task {task}"
            way_out = f"COORDINATOR_LABELS={quote(name)} celery -A APP worker"
            yield task, Finding("error", "label.unserved", f"label {name}", said, way_out)
