"""The command `coordinator tenants`, which counts jobs by the beginnings of their keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import click

from coordinator.coordinator import Coordinator
from coordinator.core.jobs.validation import shown_lane
from coordinator.core.quotas.client import Quota
from coordinator.core.store.times import moment
from coordinator.ops.cli.format import print_list
from coordinator.ops.cli.session import json_option, with_coordinator
from coordinator.ops.readings import TENANT_SORTS
from coordinator.ops.search.tenants import Tenant, Tenants, TenantSort
from coordinator.ops.verbs.jobs import counted


@click.command()
@click.argument("prefix", default="", metavar="[PREFIX]")
@click.option(
    "--sort", type=click.Choice([*TENANT_SORTS]), default="waiting", show_default=True,
    help="The order: a number, the greatest first, or the prefix.",
)  # fmt: skip
@click.option("--most", type=click.IntRange(1), default=50, show_default=True, help="At most so many rows.")
@click.option("--seconds", type=click.FloatRange(0), help="Look for about so long; without it, until all is counted.")
@json_option
@with_coordinator
def tenants(
    coordinator: Coordinator, prefix: str, sort: TenantSort, most: int, seconds: float | None, as_json_: bool
) -> None:  # fmt: skip
    """Show which tenant floods: what waits, runs and failed, by the beginnings of keys.

    PREFIX: what is below it, such as 'tenant/'. WAITING counts jobs in line that do not run, once for each of their
    lanes; FAILED those that ended by a fault within the last hour, or since the time that the last line says; SLOTS the
    share of all slots. QUOTAS are those that the jobs use.
    """
    found = coordinator.tenants(prefix, sort, most, seconds)
    columns: dict[str, Callable[[Tenant], object]] = {
        "keys": lambda one: shown_lane(one.prefix) or "(without a key)",
        "waiting": lambda one: one.waiting,
        "running": lambda one: one.running,
        "failed": lambda one: one.failed,
        "slots": lambda one: None if not one.share else f"{100 * one.share:.0f} %",
        "lanes": lambda one: one.lanes,
        "paused": lambda one: one.paused or None,
        "weight": lambda one: one.weight,
        "quotas": lambda one: tuple(map(_quota_text, one.quotas)),
    }
    more = {part.name: getattr(found, part.name) for part in fields(found) if part.name != "tenants"}
    print_list("tenants", found.tenants, columns, as_json_, **more)
    for line in () if as_json_ else _ends(found):
        click.echo(line, err=True)


def _quota_text(quota: Quota) -> str:
    return f"{quota.name} {quota.used}" + ("" if quota.concurrency is None else f" of {quota.concurrency}")


def _ends(found: Tenants) -> list[str]:
    """Write what stands below the table."""
    least = "" if found.complete else "at least "
    lines = [f"and {found.more}{'' if found.complete else ' or'} more: --most, or a PREFIX"] if found.more else []
    if not found.complete:
        lines.append("the time was too short to count all: each number is at least that; without --seconds it is exact")
    in_all = f"in all {least}{found.waiting} waiting in {counted(found.lanes, 'lane')}, {found.running} running"
    failed = f"{least}{found.failed} failed since {moment(found.failed_since)}"
    return [*lines, f"{in_all}, {failed}"]
