"""`coordinator catalog`: the objects harvested from a member."""

import click

from coordinator.cli.format import listing, more, table
from coordinator.cli.session import json_option, paged
from tasks.catalog.sightings import Sightings
from tasks.errors import plainly
from tasks.members import UnknownMember
from tasks.service import service


@click.command()
@click.argument("member")
@click.option("--failed", is_flag=True, help="Show the objects that could not be harvested, and why.")
@click.option("--gone", is_flag=True, help="Show the objects that the member has deleted.")
@paged(100)
@json_option
@plainly()
def catalog(member: str, failed: bool, gone: bool, after: str, most: int, as_json_: bool) -> None:
    """Show the objects harvested from a member that it still has."""
    here = service()
    summary = here.catalog.summary(member)
    if not (summary.objects or summary.gone) and member not in here.nodelist.listed():
        raise UnknownMember(member)
    if failed and gone:
        raise click.UsageError("--failed and --gone show different objects: take one of them")
    heads: tuple[str, ...]
    if failed:
        rows = [failure._asdict() for failure in here.catalog.failed(member, limit=most)]
        heads = ("pid", "reason", "status", "tries", "failed_at", "next_try")
    elif gone:
        rows = [dict(row) for row in Sightings(here.catalog.engine).gone(member, after=after, limit=most)]
        heads = ("pid", "gone_since", "modified", "format_id", "size")
    else:
        rows = [dict(row) for row in here.catalog.objects(member, after=after, limit=most)]
        heads = ("pid", "modified", "format_id", "size", "algorithm", "checksum")
    names = [head.replace("_", " ") for head in heads]
    after = "" if failed or len(rows) < most else str(rows[-1]["pid"])
    more(after)
    click.echo(
        listing("objects", rows, after) if as_json_ else table(names, ([row[head] for head in heads] for row in rows))
    )
