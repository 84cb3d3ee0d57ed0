"""Makes the metrics for Prometheus, read from Redis at each scrape. The names `coordinator_…` follow celery-exporter's.

The counters live in Redis, so all processes show the same values, and a restart loses none. Labels name tasks, states,
outcomes, reasons, kinds and nodes, but never keys, jobs or hosts, whose number has no bound.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector as PrometheusCollector

from coordinator.core.fleet.measures import BOUNDS
from coordinator.core.fleet.nodes import Nodes
from coordinator.core.jobs import record
from coordinator.core.jobs.record import TERMINAL
from coordinator.core.store.client import Store
from coordinator.core.store.reading import number_in, text_in
from coordinator.errors import CoordinatorError
from coordinator.ops.diagnosis.summary import REASONS, Summary
from coordinator.ops.search.quotas import quota_totals

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator

logger = logging.getLogger(__name__)

_TOTALS = {
    "created": ("submitted", "Jobs submitted."),
    "retries": ("retries", "Attempts that are tried again."),
    "losses": ("losses", "Runs whose process was lost."),
    "faults": ("faults", "Rollbacks that failed."),
}
_BEAT = 3.0  # seconds since a beat last read its schedule, after which that schedule counts as late


def register(coordinator: Coordinator, registry: CollectorRegistry = REGISTRY) -> None:
    """Register a collector of the coordinator's metrics in `registry`. A repeated call changes nothing."""
    if getattr(coordinator, "_registered", None) is not registry:
        vars(coordinator)["_registered"] = registry
        registry.register(Collector(coordinator))


def registry_of(coordinator: Coordinator) -> CollectorRegistry:
    """Return a new registry that has only the coordinator's metrics."""
    registry = CollectorRegistry()
    registry.register(Collector(coordinator))
    return registry


class Collector(PrometheusCollector):
    """Collects the metrics of one installation, and those of its extensions."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def describe(self) -> Iterable[Metric]:
        """Return nothing. Without this method, a registry would call `collect`, which reads Redis, already when the
        collector is registered.
        """
        return ()

    def collect(self) -> Iterator[Metric]:
        began, figures, up = time.perf_counter(), list[Metric](), 1
        try:
            figures += _figures(self._coordinator)
            figures += _refused(self._coordinator)
            for extension in self._coordinator.extensions:
                figures += extension.metrics() if extension.metrics else ()
        except CoordinatorError as error:
            logger.warning("Metrics could not be read: %s", error)
            up = 0
        yield from figures
        yield _gauge("redis_up", "1 where Redis answered.", {"": up})
        yield _gauge("scrape_seconds", "Seconds that these figures took to read.", {"": time.perf_counter() - began})


def _figures(coordinator: Coordinator) -> Iterator[Metric]:
    store = coordinator.store
    yield from _counters(store)
    yield from _histograms(store)
    summary = coordinator.why_summary()
    yield from _of_jobs(store, summary)
    yield from _of_quotas(store, summary)
    yield from _of_nodes(store)
    late = "Seconds for which no beat has read the schedule, or an instant is taken and not sent."
    yield _gauge("schedule_late_seconds", late, {"": _lateness(store)})


def _counters(store: Store) -> Iterator[Metric]:
    """Make the counters from the hashes `counts` and `tallies`.

    An operator's retry subtracts the job's first end from `counts`. Since a Prometheus counter must never fall,
    `tallies` counts these ends, and they are added again.
    """
    commands = [("HGETALL", store.key("counts")), ("HGETALL", store.key("tallies"))]
    counted, tallied = store.read_many(commands, atomic=True)  # a retry changes both hashes in one step
    fleet = {text_in(name): number_in(number) or 0 for name, number in tallied.items()}
    ends, totals = defaultdict[str, int](int), defaultdict[str, dict[str, int]](dict)
    for (event, task), number in record.totals(counted).items():
        if event in TERMINAL:
            ends[f"{task}\n{event}"] += number
        else:
            totals[event][task] = number
    for name in [name for name in fleet if name.startswith("revived\n")]:
        _, outcome, task = name.split("\n")
        ends[f"{task}\n{outcome}"] += fleet.pop(name)
    yield _counter("jobs", "Jobs that ended.", ends, "name", "outcome")
    for event, (name, text) in _TOTALS.items():  # 0 at first, so that PromQL's `increase` sees the first event
        yield _counter(name, text, dict.fromkeys(totals["created"], 0) | totals[event], "name")
    rescues = {name.partition("\n")[2]: number for name, number in fleet.items() if name.startswith("rescues\n")}
    yield _counter("rescues", "Attempts that ended without their process.", rescues, "kind")
    yield _counter("leases_lost", "Leases that ended without renewal.", {"": fleet.get("leases_lost", 0)})
    lost = "Nodes that were killed or cut off."
    yield _counter("nodes_lost", lost, {"": fleet.get("nodes_lost", 0)})
    exceeded = "Units taken beyond a quota, by a process that was taken for lost."
    yield _counter("quotas_exceeded", exceeded, {"": fleet.get("quotas_exceeded", 0)})
    refused = {"": fleet.get("fences_refused", 0)}
    yield _counter("fences_refused", "Outcomes refused, since another had the job.", refused)


def _histograms(store: Store) -> Iterator[Metric]:
    measures: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for field, number in store.read("HGETALL", store.key("measures")).items():
        kind, task, bucket = field.decode().split("\n")
        measures[kind, task][bucket] = number_in(number) or 0
    run = HistogramMetricFamily("coordinator_job_run_seconds", "How long attempts ran.", labels=["name"])
    text = "How long jobs waited, by reason; all but a retry before their first claim."
    wait = HistogramMetricFamily("coordinator_job_wait_seconds", text, labels=["name", "reason"])
    for (kind, task), counts in sorted(measures.items()):
        family, labels = (run, [task]) if kind == "run" else (wait, [task, kind])
        family.add_metric(labels, _buckets(counts), counts.get("sum", 0) / 1000)
    yield from (run, wait)


def _buckets(counts: Mapping[str, int]) -> list[tuple[str, float]]:
    """Return cumulative buckets, as Prometheus wants them. `counts`: bucket number -> count of that bucket alone."""
    passed, buckets = 0, []
    for place, bound in enumerate([*map(str, BOUNDS), "+Inf"]):
        passed += counts.get(str(place), 0)
        buckets.append((bound, float(passed)))
    return buckets


def _of_jobs(store: Store, summary: Summary) -> Iterator[Metric]:
    states = {state: number for state, number in record.counts(store).items() if state not in {*TERMINAL, *_TOTALS}}
    yield _gauge("jobs", "Jobs that are not over.", states, "state")
    named = {"used": ("ZCARD", "lanes"), "paused": ("HLEN", "paused")}
    commands = [(command, store.key(name)) for command, name in (*named.values(), ("ZCARD", "locks"))]
    *lanes, locks = store.read_many(commands)
    yield _gauge("lanes", "Lanes.", dict(zip(named, lanes, strict=True)), "state")
    yield _gauge("locks_held", "Lanes that plain code holds.", {"": locks})
    waits = dict.fromkeys(REASONS.values(), 0.0)
    for row in summary.rows:
        if reason := REASONS.get(row.code):
            waits[reason] = max(waits[reason], row.longest or 0.0)
    yield _gauge("oldest_wait_seconds", "The longest wait of a job that waits now, by its reason.", waits, "reason")


def _of_quotas(store: Store, summary: Summary) -> Iterator[Metric]:
    """Never by name: a quota may be that of a tenant."""
    quotas = quota_totals(store)
    states = {"known": quotas.known, "declared": quotas.declared, "cooling": quotas.cooling}
    yield _gauge("quotas", "Quotas.", states, "state")
    yield _gauge("quota_units_used", "Units of all quotas that are in use.", {"": quotas.used})
    waiting = dict.fromkeys(("quota", "rate", "cooldown"), 0)
    waiting |= {what: row.count for row in summary.rows if (what := row.code.removeprefix("waiting.")) in waiting}
    yield _gauge("quota_waiting", "Jobs that lack a quota, by what it lacks.", waiting, "reason")


def _of_nodes(store: Store) -> Iterator[Metric]:
    nodes = Nodes(store).all()
    slots = {node.name: node.capacity for node in nodes}
    yield _gauge("node_slots", "Jobs and tasks that a node runs at once.", slots, "node")
    busy = {node.name: node.running + node.ordinary for node in nodes}
    yield _gauge("node_busy", "Jobs and tasks that a node runs.", busy, "node")
    yield _gauge("node_up", "1 where the node lives.", {node.name: int(node.alive) for node in nodes}, "node")


def _refused(coordinator: Coordinator) -> Iterator[Metric]:
    """Count the refused requests by queue. While the broker does not answer, only this metric is missing."""
    if coordinator.app is not None:
        with suppress(CoordinatorError):
            text = "Requests that inboxes refused, and that were not requeued."
            yield _gauge("refused_requests", text, coordinator.refused_counts(), "queue_name")


def _lateness(store: Store) -> float:
    now = store.now()
    sources = [name.decode() for name in store.read("SMEMBERS", store.key("schedule-sources"))]
    commands: list[tuple[str, ...]] = [("HGET", store.key("schedule", source), "seen") for source in sources]
    commands += [("SCARD", store.key("schedule-entries", source)) for source in sources]
    replies = store.read_many(commands) if commands else []
    seen = [int(at) for at, entries in zip(replies, replies[len(sources) :], strict=False) if at and entries]
    silent = [late for at in seen if (late := (now - at) / 1000) > _BEAT]
    first = store.read("ZRANGE", store.key("schedule-unsent"), 0, 0, "WITHSCORES")
    return max([0.0, *silent, *((now - float(at)) / 1000 for _, at in first)])


def _counter(name: str, text: str, numbers: Mapping[str, float], *labels: str) -> Metric:
    """Make a counter. `numbers`: values of the labels, joined by newlines -> number."""
    family = CounterMetricFamily(f"coordinator_{name}", text, labels=labels)
    for values, number in sorted(numbers.items()):
        family.add_metric(values.split("\n") if labels else (), number)
    return family


def _gauge(name: str, text: str, numbers: Mapping[str, float], *labels: str) -> Metric:
    family = GaugeMetricFamily(f"coordinator_{name}", text, labels=labels)
    for value, number in sorted(numbers.items()):
        family.add_metric([value] if labels else (), number)
    return family
