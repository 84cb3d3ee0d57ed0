"""The commands of `coordinator refused`: the requests that inboxes refused."""

from __future__ import annotations

from operator import attrgetter

import click

from coordinator.coordinator import Coordinator
from coordinator.core.cursor import page_of
from coordinator.inbox.queue import LETTERS
from coordinator.ops.cli.format import as_json, as_pairs, columns_of, print_list
from coordinator.ops.cli.group import ShowByName
from coordinator.ops.cli.session import Wrong, json_option, paged, with_coordinator
from coordinator.ops.verbs.requests import gone


@click.group(cls=ShowByName, invoke_without_command=True, subcommand_metavar="[ID | COMMAND]")
@paged(50)
@json_option
@with_coordinator
def refused(coordinator: Coordinator, most: int, after: str, as_json_: bool) -> None:
    """List the requests that inboxes refused, and why; put one into its queue again, or discard it.

    ID: show this request in full.
    """
    found = coordinator.refused(2 * LETTERS if after else most + 1)
    ids = [one.id for one in found]
    if after and after not in ids:
        raise Wrong(gone(after))
    listed, after = page_of(found[ids.index(after) + 1 if after else 0 :], most, attrgetter("id"))
    columns = columns_of(request="id", refused="at") | columns_of("queue", "node", "reason", "original")
    print_list("refused", listed, columns, as_json_, after)


@refused.command("show")
@click.argument("request_id", metavar="ID")
@json_option
@with_coordinator
def show_refused(coordinator: Coordinator, request_id: str, as_json_: bool) -> None:
    """Show a refused request in full: why it was refused, and its text."""
    one = next((one for one in coordinator.refused(2 * LETTERS) if one.id == request_id), None)
    if one is None:
        raise Wrong(gone(request_id))
    if as_json_:
        click.echo(as_json(one))
        return
    original = one.original if one.whole else f"{one.original} … (only its beginning was kept)"
    about = [("request", one.id), ("refused", one.at), ("queue", one.queue), ("node", one.node), ("reason", one.reason)]
    click.echo(
        as_pairs([*about, ("encoding", one.encoding if one.encoding != "utf-8" else None), ("original", original)])
    )
