"""`coordinator catalog`: shows the objects harvested from a member."""

from operator import itemgetter

import click

from coordinator.extending import json_option, page_of, paged, print_list
from tasks.catalog.sightings import Sightings
from tasks.members import UnknownMember
from tasks.service import service


@click.command()
@click.argument("member")
@click.option("--failed", is_flag=True, help="Show the objects that could not be harvested, and why.")
@click.option("--gone", is_flag=True, help="Show the objects that the member has deleted.")
@paged(100)
@json_option
def catalog(member: str, failed: bool, gone: bool, after: str, most: int, as_json_: bool) -> None:
    """Show the objects harvested from a member that it still has."""
    here = service()
    summary = here.catalog.summary(member)
    if not (summary.objects or summary.gone) and member not in here.nodelist.listed():
        raise UnknownMember(member)
    if failed and gone:
        raise click.UsageError("--failed and --gone show different objects: give only one of them")
    if failed:
        rows, after = [failure._asdict() for failure in here.catalog.failed(member, limit=most)], ""
        heads = ["pid", "reason", "status", "tries", "failed_at", "next_try"]
    else:
        read = Sightings(here.catalog.engine).gone if gone else here.catalog.objects
        found = [dict(row) for row in read(member, after=after, limit=most + 1)]
        rows, after = page_of(found, most, lambda row: str(row["pid"]))
        heads = ["pid", "modified", "format_id", "size", *(["gone_since"] if gone else ["algorithm", "checksum"])]
    print_list("objects", rows, {head.replace("_", " "): itemgetter(head) for head in heads}, as_json_, after)
