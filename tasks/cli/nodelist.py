"""`coordinator nodelist …`: imports, exports, shows and compares the list of members and its copies."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Unpack

import click

from coordinator import WaitTimeout
from coordinator.extending import Acting, act_options, as_json, as_pairs, as_table, columns_of, json_option, print_list
from tasks import nodelist_refresh as job
from tasks import whereabouts
from tasks.app import NODELIST, app, coordinator, documents
from tasks.documents.document import Commit
from tasks.member_node import safe_xml
from tasks.member_node.member import Member, scheduled
from tasks.nodelist.store_notes import Pending, grouped, pending_lines, pending_members
from tasks.nodelist.stores import Listed, NodelistStore, NodelistStoreAway
from tasks.nodelist.verify import Verdict, not_understood, verify_all
from tasks.nodelist.xml_format import Parsed, parse_nodelist, write_nodelist
from tasks.service import own_store, service
from tasks.settings import Settings

PATIENCE = 60.0  # seconds to wait for the end of a refresh
ON_ITS_WAY = 10.0  # seconds for which `verify` waits until a change in progress has reached all copies
WRITING, LOOK = 10.0, 0.2  # seconds to wait until a node has written to the permanent store, and between two reads
SHOWN = 3  # the most entries of a change that the table of the history shows


@click.group()
def nodelist() -> None:
    """The list of members."""


@nodelist.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--yes", is_flag=True, help="Where members would leave the list: ask nothing.")
@act_options
def import_(file: Path, dry_run: bool, yes: bool, **acting: Unpack[Acting]) -> None:
    """Replace the list by a DataONE node-list document.

    A member that the document does not name leaves the list. A date that it does not name stays as it is.
    """
    try:
        parsed = parse_nodelist(file.read_bytes())
    except safe_xml.Unreadable as error:
        raise click.ClickException(f"{file}: {error}") from error
    here = service().nodelist
    changes = here.would_import(file)
    for line in _wrong(parsed):
        click.echo(line, err=True)
    gone = [name for name, lines in changes.items() if lines == [f"{name} is gone"]]
    if dry_run:
        return click.echo("\n".join(line for lines in changes.values() for line in lines) or "nothing would change")
    if gone and not yes:
        leave = "members leave" if len(gone) > 1 else "member leaves"
        click.confirm(f"{len(gone)} {leave} the list: {_few(tuple(gone))}. Go on?", abort=True, err=True)
    given = {"id": uuid.uuid4().hex, "after": f"{len(parsed.members)} members of {file.name}, {len(gone)} gone"}
    coordinator.acted("import", "nodelist", here.store.name, **given, **acting)
    here.import_file(file, acting["why"])
    able = sum(member.synchronizable for member in parsed.members)
    count = len(parsed.members)
    click.echo(f"{count} member{'' if count == 1 else 's'}, {able} of them can be synchronized")
    for line in _pending(pending_members(here.document), here.store.name):
        click.echo(line, err=True)


def _wrong(parsed: Parsed) -> Iterator[str]:
    """Yield a sentence for each entry that an import leaves out, and for each member whose schedule starts no run."""
    yield from (f"left out: {problem}" for problem in parsed.problems)
    on_time = [member for member in parsed.members if member.schedule and member.synchronizable]
    for member in on_time:
        if isinstance(why := scheduled(member, service().settings.zone), str):
            yield f"{member.identifier}: only on request: {why}"


@nodelist.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--v1", is_flag=True, help="Use version 1 of the format, which has no properties.")
def export(file: Path | None, v1: bool) -> None:
    """Write the list as a DataONE node-list document, to FILE or stdout.

    Members that are not approved are left out.
    """
    here = service().nodelist
    here.document.pointer()  # raises StoreUnavailable while Redis is away, since only Redis knows the committed version
    listed = here.listed()
    for member_id, entry in listed.items():
        if not entry.approved:
            click.echo(f"left out, since it is not approved: {member_id}", err=True)
    body = write_nodelist([entry.member for entry in listed.values() if entry.approved], "v1" if v1 else "v2")
    if file:
        file.write_bytes(body)
    else:
        click.echo(body, nl=False)


@nodelist.command()
@json_option
def show(as_json_: bool) -> None:
    """Show the committed list, the nodes and beats that keep a copy, and the changes that the permanent store lacks."""
    here = service().nodelist
    copy, kept_by, pending = here.document.read(), here.document.members(), pending_members(here.document)
    listed, name, broken = here.listed(), here.store.name, _broken(here.store)
    if as_json_:
        about = {"version": copy.version, "stale": copy.stale, "kept_by": kept_by, "store": name, "broken": broken}
        missing = {member_id: entry._asdict() for member_id, entry in pending.items()}
        members = [
            {"approved": entry.approved, "synchronized": _synchronized(entry)} | entry.member.model_dump(mode="json")
            for entry in listed.values()
        ]
        click.echo(as_json({**about, "pending": missing, "members": members}))
        return
    rows = (
        (
            member_id,
            entry.member.name,
            entry.member.base_url,
            _schedule(entry.member),
            _synchronized(entry),
        )
        for member_id, entry in listed.items()
    )
    click.echo(as_table(("member", "name", "base url", "schedule", "synchronized"), rows))
    version = (
        f"{copy.version}, stale"
        if copy.stale
        else str(copy.version or "none yet: the first node that starts commits one")
    )
    click.echo("\n" + as_pairs([("version", version), ("kept by", kept_by or "no node or beat"), ("store", name)]))
    for problem in [f"{name} is away, so nobody knows"] if broken is None else broken:
        click.echo(f"broken entries: {problem}")
    for line in _pending(pending, name):
        click.echo(line)


def _broken(store: NodelistStore) -> list[str] | None:
    """Return a sentence about each entry in the permanent store that cannot be read. None: the store is away."""
    try:
        return list(store.read().problems)
    except NodelistStoreAway:
        return None


def _schedule(member: Member) -> str | None:
    return " ".join(member.schedule.parts) if member.schedule else None


def _synchronized(entry: Listed) -> str:
    """Return `yes` if a member is harvested on schedule, else why it is not."""
    if not entry.approved:
        return "it is not approved"
    schedule = scheduled(entry.member, service().settings.zone)
    return entry.member.obstacle or (f"only on request: {schedule}" if isinstance(schedule, str) else "yes")


def _pending(pending: dict[str, Pending], name: str) -> Iterable[str]:
    """Return lines about the changes that the permanent store lacks. `name`: the store's address."""
    return (f"pending: {line}" for line in grouped(pending_lines(pending, name), name))


def still_lacking(member_id: str) -> str | None:
    """Wait up to 10 seconds until a node has written the member's newest version to the permanent store.

    Returns None once it has, else the reason why the store lacks that version.
    """
    deadline = time.monotonic() + WRITING
    while pending := pending_members(service().nodelist.document).get(member_id):
        if pending.why or time.monotonic() > deadline:
            return pending.reason
        time.sleep(LOOK)
    return None


@nodelist.command()
@click.option(
    "--known",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Ids of members, a line each, whose entries in the permanent store are known to be broken.",
)
@click.option(
    "--wait",
    "patience",
    metavar="SECONDS",
    default=ON_ITS_WAY,
    show_default=True,
    type=click.FloatRange(0),
    help="Wait at most so long for changes on their way.",
)
@json_option
def verify(known: Path | None, patience: float, as_json_: bool) -> None:
    """Compare the list on the disks of all nodes and beats, in Redis and in the permanent store.

    If they differ, shows for each living node and beat whether its copy is the same, behind, out (and why) or unknown,
    and the exit status is 1.
    """
    nodes, here = frozenset(node.name for node in coordinator.nodes() if node.app == app.main), service().nodelist

    def waiting(differences: list[str]) -> None:
        for line in grouped(differences, here.store.name):
            click.echo(f"waits at most {patience:g} s: {line}", err=True)

    verdict = verify_all(here, nodes, patience, waiting)
    excused, differences, mended = _excused(verdict, _named(known) if known else set())
    if as_json_:
        about = verdict._replace(differences=differences)._asdict()
        click.echo(as_json({"agreed": not differences, **about, "known": excused, "mended": mended}))
    elif not differences:
        click.echo(
            f"version {verdict.version} is the same on {', '.join(verdict.copies)}, in Redis and in {verdict.store}"
        )
    few = grouped(differences, verdict.store)
    for line in () if as_json_ else (*few, *(f"known: {line}" for line in excused), *mended):
        click.echo(line, err=True)
    if differences and verdict.replicas and not as_json_:
        click.echo(as_table(("node or beat", "its copy"), verdict.replicas.items()))
    if differences:
        raise click.exceptions.Exit(1)


def _named(file: Path) -> set[str]:
    """Read a file with one name a line. A # begins a comment."""
    lines = (line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines())
    return {line for line in lines if line}


def _excused(verdict: Verdict, known: set[str]) -> tuple[list[str], list[str], list[str]]:
    """Split the differences of a comparison into the known ones and the others. Returns both, and a sentence about each
    id in `known` whose entry is no longer broken.

    `known`: ids of members whose entries in the permanent store are known to be broken.
    """
    store = verdict.store
    broken = {name for name in known if not_understood(name, store) in verdict.differences}
    excused = [
        line
        for line in verdict.differences
        if any(line.startswith((not_understood(name, store), f"{name}: {store} lacks ")) for name in broken)
    ]
    others = [line for line in verdict.differences if line not in excused]
    compared = not any("cannot be compared" in line or line.startswith("Redis: ") for line in others)
    mended = [f"{name} is not broken any more: take it out of the file" for name in sorted(known - broken) if compared]
    return excused, others, mended


@nodelist.command()
@act_options
def moved(**acting: Unpack[Acting]) -> None:
    """Tell the installation that its permanent store has moved to the one that the settings name.

    All nodes and beats must have ended. The next node that starts takes over the members that the new store has, and
    writes the others to that store.
    """
    store, anew = own_store(coordinator.store, Settings.from_environment()), documents[NODELIST].unseen()
    before = whereabouts.move(coordinator, whereabouts.NODELIST, store.identity(), store.name, anew, **acting)
    click.echo(f"the permanent store is {store.name}, before: {before}")


@nodelist.command()
@json_option
def history(as_json_: bool) -> None:
    """Show the last 100 changes of the list, the newest first."""
    columns: dict[str, Callable[[Commit], object]] = {
        **columns_of("version", when="at"),
        **columns_of("who", "why"),
        "entries": lambda commit: _few(commit.entries),
    }
    print_list("history", service().nodelist.document.history(), columns, as_json_)


def _few(entries: tuple[str, ...]) -> str:
    more = f" and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return ", ".join(entries[:SHOWN]) + more


@nodelist.command()
def refresh() -> None:
    """Have a node take over what others have changed in the permanent store, and write back what the store lacks."""
    if not any(node.app == app.main for node in coordinator.nodes()):
        raise click.ClickException(
            "no node is alive to refresh the list (coordinator nodes). The next node that starts will do it"
        )
    job_id = job.refresh()
    try:
        done = coordinator.wait(job_id, PATIENCE)
    except WaitTimeout:
        raise click.ClickException(
            f"the refresh did not end within {PATIENCE:g} s. To wait longer: coordinator wait {job_id}"
        ) from None
    if done.state != "succeeded":
        raise click.ClickException(f"{done.state}: {(done.error or {}).get('message', 'no reason was kept')}")
    if done.result["outcome"] != "refreshed":
        raise click.ClickException(done.result["reason"])
    here = service().nodelist
    for line in done.result["changes"] or [f"nobody else has changed {here.store.name}"]:
        click.echo(line)
    for line in _pending(pending_members(here.document), here.store.name):
        click.echo(line, err=True)
