"""Finds quotas that stand still, are used beyond their units, or that nobody declared.

Reads the first thousand names, never all users or queues. A scan does not see one moment, so `doctor` scans twice.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from coordinator.core.finding import Finding
from coordinator.core.jobs import record
from coordinator.core.jobs.options import Units
from coordinator.core.quotas.client import Quota, QuotaClient
from coordinator.core.store.client import Store
from coordinator.core.store.steps import quota_queue
from coordinator.core.store.wire import Arg
from coordinator.ops.diagnosis.codes import command
from coordinator.ops.diagnosis.quotas import wanted
from coordinator.ops.search.quotas import is_short, places_in, units_in

MOST = 1000  # how many quotas are read at most


def of_quotas(store: Store) -> Iterator[Finding]:
    """Yield the findings about quotas."""
    count, names = store.read_many(
        [("ZCARD", store.key("quotas")), ("ZRANGE", store.key("quotas"), 0, MOST - 1)],
    )
    quotas = QuotaClient(store).read_many([name.decode() for name in names])
    for quota in quotas:
        yield from _of_one(quota)
    yield from _of_queues(store, [quota for quota in quotas if quota.waiting])
    if count > MOST:
        yield Finding("info", "doctor.part", "quotas", f"only the first {MOST} of {count} were examined", "")


def _of_one(quota: Quota) -> Iterator[Finding]:
    thing = f"quota {quota.name}"
    if quota.concurrency is not None and quota.used > quota.concurrency:
        message = (
            f"{quota.used} units are used, and it has {quota.concurrency}: it was lowered, or a process that was taken "
            "for lost still works"
        )
        yield Finding("warning", "quota.over", thing, message, f"coordinator quotas show {shlex.quote(quota.name)}")
    if quota.declared is None and quota.default is None and (quota.used or quota.waiting):
        message = f"nobody declared it, so nothing bounds the {quota.used} units that are used"
        yield Finding("info", "quota.undeclared", thing, message, _declare(quota, "…"))


def _of_queues(store: Store, quotas: Sequence[Quota]) -> Iterator[Finding]:
    """Yield the findings about heads of queues: one that nothing holds back, or that wants more than there is."""
    commands: list[Sequence[Arg]] = [quota_queue.looking(store, one.name, 1) for one in quotas]
    commands += [("ZCARD", store.key("quota-offers", one.name)) for one in quotas]
    replies = store.read_many(commands) if commands else []
    heads = {quota.name: places_in(first)[0][1] for quota, first in zip(quotas, replies, strict=False) if first}
    offers = dict(zip((quota.name for quota in quotas), replies[len(quotas) :], strict=True))
    uses = record.fields_of_many(store, [*heads.values()], "uses")
    wants = {name: units_in(text, name) for name, (text,) in zip(heads, uses, strict=True)}
    for quota in quotas:
        if quota.name in heads:
            yield from _of_head(quota, heads[quota.name], wants[quota.name], offers[quota.name])


def _of_head(quota: Quota, job_id: str, wants: Units, offers: int) -> Iterator[Finding]:
    thing = f"quota {quota.name}"
    if quota.concurrency is not None and (quota.concurrency == 0 or (wants != "all" and wants > quota.concurrency)):
        message = f"job {job_id} waits for {wanted(wants)}, and it has {quota.concurrency}: nothing that uses it starts"
        yield Finding(
            "warning", "quota.too-few", thing, message, _declare(quota, "1" if wants == "all" else str(wants))
        )
    elif not (is_short(quota, wants) or quota.cools_for or quota.next_start or quota.used or offers):
        message = f"job {job_id} waits in front of its queue, and nobody uses it"
        values = {"id": job_id, "to": "front"}
        yield Finding("error", "quota.stuck", thing, message, command("move", values), "move", values)


def _declare(quota: Quota, units: str) -> str:
    rate = f" --rate {quota.rate} --burst {quota.burst}" if quota.rate else ""
    return f"coordinator quota {shlex.quote(quota.name)} --concurrency {units}{rate} --why …"
