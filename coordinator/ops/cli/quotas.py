"""The command `coordinator quotas`, which lists quotas and the weights of groups, or shows one quota."""

from __future__ import annotations

from collections.abc import Callable

import click

from coordinator.coordinator import Coordinator
from coordinator.core.quotas.client import Quota
from coordinator.core.store.times import span_text
from coordinator.ops.cli.format import as_json, as_pairs, as_table, as_text, print_list
from coordinator.ops.cli.group import ShowByName
from coordinator.ops.cli.options import option_of
from coordinator.ops.cli.session import json_option, paged, with_coordinator
from coordinator.ops.cli.show import act_text
from coordinator.ops.readings import QUOTAS
from coordinator.ops.search.quotas import QuotaStatus

MOST = click.option(
    "--most", type=click.IntRange(1), default=50, show_default=True, help="At most so many users, and as many waiters."
)


@click.group(cls=ShowByName, invoke_without_command=True, subcommand_metavar="[NAME | COMMAND]")
@option_of(QUOTAS)
@paged(50)
@json_option
@with_coordinator
def quotas(coordinator: Coordinator, prefix: str, most: int, after: str, as_json_: bool) -> None:
    """List the quotas that are declared or in use, and the defaults of names.

    NAME: this one, with who uses it and who waits for it.
    """
    found = coordinator.quotas(prefix, most, after)
    columns: dict[str, Callable[[Quota], object]] = {
        "quota": lambda quota: quota.name,
        "used": lambda quota: quota.used,
        "of": lambda quota: quota.concurrency,
        "rate": rate_text,
        "waiting": lambda quota: quota.waiting,
        "next by rate": lambda quota: _span(quota.next_start),
        "cools down": lambda quota: _span(quota.cools_for),
        "declared": lambda quota: quota.default or act_text(quota.declared) or "by nobody",
    }
    if as_json_:
        return print_list("quotas", found.quotas, columns, True, found.after, defaults=found.defaults)
    print_list("quotas", found.quotas, columns, False, found.after)
    if found.defaults:
        rows = ((one.name, str(one), act_text(one.declared)) for one in found.defaults)
        click.echo("\ndefaults\n" + as_table(("names", "have", "declared"), rows))


@quotas.command("show")
@click.argument("name")
@MOST
@json_option
@with_coordinator
def show_quota(coordinator: Coordinator, name: str, most: int, as_json_: bool) -> None:
    """Show a quota: its bounds, who uses it, and who waits for it."""
    status = coordinator.quota_status(name, most)
    click.echo(as_json(status) if as_json_ else quota_text(status))


@quotas.command("weights")
@json_option
@with_coordinator
def weights(coordinator: Coordinator, as_json_: bool) -> None:
    """List the groups of keys that have another weight than 1."""
    rows = [*coordinator.weights().items()]
    columns: dict[str, Callable[[tuple[str, float]], object]] = {
        "group": lambda row: row[0] or "(keys without a slash)",
        "weight": lambda row: row[1],
    }
    print_list("weights", rows, columns, as_json_, value=lambda row: {"group": row[0], "weight": row[1]})


def quota_text(status: QuotaStatus) -> str:
    """Write a quota, its users and its queue."""
    quota = status.quota
    values = [
        ("quota", quota.name),
        ("bounds", str(quota)),
        ("declared", act_text(quota.declared) or (f"as {quota.default}" if quota.default else "by nobody")),
        ("used", as_text(quota.used)),
        ("free", None if quota.free is None else as_text(quota.free)),
        ("waiting", as_text(quota.waiting)),
        ("next by rate", _span(quota.next_start)),
        ("cools down", f"for {_span(quota.cools_for)}, {act_text(quota.cooled)}" if quota.cools_for else None),
    ]
    users = [(one.job_id, one.units, one.state, one.node, one.since) for one in status.users]
    queue = [(n, one.job_id, one.units, one.priority or None, one.since) for n, one in enumerate(status.queue, 1)]
    parts = [as_pairs(values)]
    if users:
        parts.append("used by\n" + as_table(("id", "units", "state", "node", "since"), users))
    if queue:
        parts.append("its queue\n" + as_table(("place", "id", "units", "priority", "waits since"), queue))
    return "\n\n".join(parts)


def rate_text(quota: Quota) -> str | None:
    return None if quota.rate is None else f"{quota.rate}, burst {quota.burst}"


def _span(seconds: float) -> str | None:
    return f"in {span_text(seconds)}" if seconds else None
