"""Finds faults of an installation's nodes, and jobs that none of them can run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from shlex import quote

from coordinator.core.finding import Finding
from coordinator.core.fleet.nodes import Node
from coordinator.core.jobs.ready import ReadyKind, ready_of
from coordinator.core.lanes import view
from coordinator.core.store.bundle import side_by_side
from coordinator.core.store.client import Store
from coordinator.core.store.reading import number_in
from coordinator.core.store.steps import clock_read
from coordinator.core.store.times import ClockReading, milliseconds, span_text
from coordinator.core.store.wire import Arg
from coordinator.errors import StoreRefused
from coordinator.ops.diagnosis.codes import command
from coordinator.ops.diagnosis.snapshot import Snapshot
from coordinator.ops.search.fit import fit

_MOST = 1000  # how many ready jobs, or wake-ups of a node, are read at most
_PAGES = 10  # pages of 10,000 Redis keys that are scanned for other prefixes
_UNANSWERED = 10.0  # seconds after which a wake-up is overdue
_UNTRIED = 60.0  # seconds after which a node of the app should have tried to send the result of an ended job
_TRIED_AGAIN = 30.0  # seconds between the first and the second try to send a result: functions/steps/job.lua
_SKEW = 2.0  # seconds by which the clock of a node's host may be wrong
_NOT_OWN = ("celery.", "coordinator.")


def of_fleet(snapshot: Snapshot) -> Iterator[Finding]:
    store, living = snapshot.store, snapshot.living
    labels = {label for node in living for label in node.labels}
    for label in snapshot.needed:
        if label not in labels:
            message = f"no node has the label {label}: the jobs that need it wait"
            yield Finding("error", "label.lost", f"label {label}", message, "coordinator nodes")
    if not living:
        yield _no_node(store)
        return
    if all(node.draining for node in living):
        fixes = [command("undrain", {"name": node.name}) for node in living if node.drained]
        message = f"each living node drains, so no job starts: {', '.join(node.name for node in living[:10])}"
        yield Finding("warning", "node.draining", "nodes", message, (fixes or ["celery -A APP worker"])[0])
    yield from side_by_side(
        store,
        [
            _of_sweep,
            lambda own: _of_wakes(own, living),
            lambda own: _of_results(snapshot.within(own)),
            lambda own: (finding for _, finding in unserved(snapshot.within(own))),
        ],
    )
    yield from _of_clocks(living)
    yield from _of_versions(living)
    yield from _of_apps(living)
    yield from _of_queues(living)


def since_sweep(store: Store) -> float | None:
    """Return the seconds since the last sweep by any node; None: no node has swept yet."""
    text, clock = store.read_many([("HGET", store.key("swept"), "last"), clock_read.looking(store)])
    last = number_in(text)
    return None if last is None else max(0.0, (ClockReading(*clock).now - last) / 1000)


def _no_node(store: Store) -> Finding:
    others = [] if store.read("EXISTS", store.key("swept")) else _other_prefixes(store)
    prefix = f"prefix {store.settings.prefix}"
    if others:
        message = f"no node ever ran under the prefix {store.settings.prefix!r}, but under {', '.join(others)}"
        fix = f"COORDINATOR_PREFIX={others[0]} coordinator nodes"
        return Finding("error", "node.none", prefix, f"no node is alive: {message}", fix)
    return Finding("error", "node.none", prefix, "no node is alive: jobs wait", "celery -A APP worker")


def _other_prefixes(store: Store) -> list[str]:
    """Find the prefixes of other installations in this Redis, by their keys `{prefix}:swept`; [] if SCAN is refused."""
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
        message = f"no node has swept for {span_text(swept)}: retries, time limits and lost jobs wait"
        fix = "celery -A APP worker  # each node sweeps; the logs of those that live say why they do not"
        yield Finding("error", "sweep.old", "sweep", message, fix)


def _of_wakes(store: Store, living: Sequence[Node]) -> Iterator[Finding]:
    """Find nodes with a free slot that have not answered wake-ups for 10 seconds. A full node answers once it has a
    free slot.
    """
    rungs_of = [("ZRANGE", store.key("rung", node.name), 0, _MOST) for node in living]
    clock, *rungs = store.read_many([clock_read.looking(store), *rungs_of])
    now = ClockReading(*clock).now
    for node, wakes in zip(living, rungs, strict=True):
        ages = [(now - int(wake.partition(b"-")[0])) / 1000 for wake in wakes]
        late = [age for age in ages if age > _UNANSWERED]
        if late and node.running + node.ordinary < node.capacity:
            message = f"{len(late)} wake-ups are not answered, the oldest for {span_text(max(late))}"
            message += f"; the last runner there failed: {node.failure}" if node.failure else ""
            fix = f"celery -A APP worker -n {quote(node.name)}  # again, once it reaches the broker"
            yield Finding("warning", "wakes.overdue", f"node {node.name}", message, fix)


def _of_results(snapshot: Snapshot) -> Iterator[Finding]:
    """Find ended jobs whose results and links the maintenance process could not send, or has not tried to send.

    The sorted set `unsent:<app>` has the time of the next try for each job: 30 s after the first try, and more after
    the second. For a time within these 30 s, only the field `offers` of the job's record says how often it was tried.
    """
    now = snapshot.clock.now
    early, late = now - milliseconds(_UNTRIED), now + milliseconds(_TRIED_AGAIN)
    apps = sorted({node.app for node in snapshot.living})
    commands = list[Sequence[Arg]]()
    for owed in (snapshot.store.key("unsent", app) for app in apps):
        commands += [("ZCOUNT", owed, "-inf", f"({early}"), ("ZCOUNT", owed, f"({late}", "+inf")]
        commands += [("ZRANGEBYSCORE", owed, early, late, "LIMIT", 0, _MOST)]
    replies = snapshot.store.read_many(commands)
    between = [[raw.decode() for raw in members] for members in replies[2::3]]
    offered = iter(snapshot.fields([job_id for ids in between for job_id in ids], "offers"))
    for app, untried, failed, ids in zip(apps, replies[::3], replies[1::3], between, strict=True):
        tries = [number_in(next(offered)[0]) for _ in ids]
        if count := untried + failed + sum((number or 0) > 1 for number in tries):
            message = f"the results, links and canvases of {count} ended jobs cannot be sent"
            fix = f"celery -A {quote(app)} report  # names its result backend; the nodes' logs say what it answers"
            yield Finding("error", "results.overdue", f"app {app}", message, fix)


def _of_clocks(living: Sequence[Node]) -> Iterator[Finding]:
    for node in living:
        if abs(node.skew) >= _SKEW:
            side = "ahead of" if node.skew > 0 else "behind"
            message = f"the clock of its host {node.host} is {abs(node.skew):.0f} s {side} the installation's"
            fix = f"timedatectl set-ntp true  # on {node.host}; dates in results, logs and eta go by its clock"
            yield Finding("warning", "node.clock", f"node {node.name}", message, fix)


def _of_versions(living: Sequence[Node]) -> Iterator[Finding]:
    versions: defaultdict[str, list[str]] = defaultdict(list)
    for node in living:
        versions[node.version or "unknown"].append(node.name)
    if len(versions) > 1:
        each = "; ".join(f"{version} on {', '.join(names)}" for version, names in sorted(versions.items()))
        message, fix = f"nodes run several versions: {each}", "coordinator nodes  # end the upgrade of the older ones"
        yield Finding("warning", "version.mixed", "nodes", message, fix)


def _of_apps(living: Sequence[Node]) -> Iterator[Finding]:
    """Find nodes of the same app and queue that have different tasks of one module. If one node has all these tasks,
    the others are probably not upgraded yet; if none has, the nodes may belong to two projects with the same app name,
    which run each other's jobs.
    """
    having: defaultdict[tuple[str, str, str], defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for node in living:
        for task in node.tasks:
            for queue in () if task.startswith(_NOT_OWN) else node.queues:
                having[node.app, queue, task.rpartition(".")[0]][node.name].add(task)
    for (app, queue, module), tasks in sorted(having.items()):
        every = set[str]().union(*tasks.values())
        lacking = [f"{name} lacks {', '.join(sorted(every - own)[:3])}" for name, own in tasks.items() if own != every]
        message = f"nodes of the queue {queue} have different tasks of the module {module}: {'; '.join(lacking[:5])}"
        if len(lacking) == len(tasks):
            message += "; if they are of two projects, each runs jobs of the other"
            fix = "coordinator nodes  # give each project a name, Celery('shop', …), or a prefix; or end an upgrade"
            yield Finding("warning", "app.mixed", f"app {app}", message, fix)
        elif lacking:
            fix = "coordinator nodes  # end the upgrade of the others"
            yield Finding("info", "app.mixed", f"app {app}", message, fix)


def _of_queues(living: Sequence[Node]) -> Iterator[Finding]:
    """Find queues to which an app routes the tasks that its nodes have, but that none of these nodes serves."""
    served = {(node.app, queue) for node in living for queue in node.queues}
    tasks: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for node in living:
        for task, queue in node.routes.items():
            tasks[node.app, queue].add(task)
        if rest := {task for task in node.tasks if not task.startswith(_NOT_OWN)} - node.routes.keys():
            tasks[node.app, node.queue] |= rest
    for (app, queue), names in sorted(tasks.items()):
        if queue and (app, queue) not in served:
            message = f"no node of the app {app} serves it, and these go there: {', '.join(sorted(names)[:5])}"
            fix = f"celery -A {quote(app)} worker -Q {quote(queue)}"
            yield Finding("warning", "queue.no-consumer", f"queue {queue}", message, fix)


def _waits(snapshot: Snapshot, lacking: Sequence[Sequence[ReadyKind]]) -> Iterator[str]:
    """Yield how many jobs wait, as text, for each group of ready jobs in `lacking`: the ready jobs, and the jobs behind
    them in their lanes.
    """
    all_ = [kind for kinds in lacking for kind in kinds]
    ids = iter(ready_of(snapshot.store, all_, max(10, _MOST // max(1, len(all_)))))
    known = [[job_id for _ in kinds for job_id in next(ids)] for kinds in lacking]
    keys = iter(snapshot.fields([job_id for some in known for job_id in some], "keys"))
    lanes = [{next(keys)[0].partition("\n")[0] for _ in some} for some in known]
    behind = {lane.key: lane.waiting for lane in view.lanes_at(snapshot.store, sorted(set().union(*lanes)), 1)}
    for kinds, some, own in zip(lacking, known, lanes, strict=True):
        count = sum(kind.count for kind in kinds)
        if count > len(some):
            yield f"{count} jobs, and those behind them, wait"
        else:
            count += sum(behind[key] for key in own)
            yield f"{count} jobs wait" if count > 1 else "1 job waits"


def unserved(snapshot: Snapshot) -> Iterator[tuple[str, Finding]]:
    """Yield (task, finding) for ready jobs that no living node can run: none has the task, or none with the task has
    the queue or label. The finding also counts the jobs that wait behind them in their lanes.
    """
    known = {task for node in snapshot.living for task in node.tasks}
    lacking: defaultdict[tuple[str, str, str], list[ReadyKind]] = defaultdict(list)
    for ready in snapshot.ready:
        parts, task = ready.kind.split("\n"), ready.task
        if not fit(snapshot.living, parts, task).unserved:
            continue
        lack = ("queue", parts[1]) if fit(snapshot.living, parts[:2], task).unserved else ("label", ",".join(parts[2:]))
        lacking[*(lack if task in known else ("task", task)), task].append(ready)
    lacks = sorted(lacking)
    waits = _waits(snapshot, [lacking[lack] for lack in lacks])
    for (kind, name, task), wait in zip(lacks, waits, strict=True):
        if kind == "task":
            message, fix = f"{wait} for a task that no node has", command("retarget", {"old": task})
            yield task, Finding("error", "task.unknown", f"task {task}", message, fix, "retarget", {"old": task})
        elif kind == "queue":
            message = f"{wait} for {task} there, and no node with that task serves it"
            fix = f"celery -A APP worker -Q {quote(name)}"
            yield task, Finding("error", "queue.unserved", f"queue {name}", message, fix)
        else:
            message = f"{wait} for a node that has it and the task {task}"
            fix = f"COORDINATOR_LABELS={quote(name)} celery -A APP worker"
            yield task, Finding("error", "label.unserved", f"label {name}", message, fix)
