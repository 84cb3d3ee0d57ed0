"""What `doctor` says of the service: of its documents, of what members propose, of events that wait."""

from collections.abc import Iterator
from datetime import timedelta
from shlex import quote

from coordinator import Finding
from tasks import instants
from tasks.app import NODELIST, coordinator, documents
from tasks.nodelist.entries import KEPT, Kept
from tasks.nodelist.store_notes import lacking
from tasks.settings import Settings


def findings() -> Iterator[Finding]:
    if not documents[NODELIST].pointer()[0]:
        message = "there is no nodelist, so no member is synchronized, and requests wait: coordinator nodelist show"
        fix = "coordinator nodelist import FILE --why …"
        yield Finding("error", "document.none", f"document {NODELIST}", message, fix)
    yield from documents.findings()
    yield from _pending()
    yield from _proposals()
    if task := Settings.from_environment().on_object:
        yield from _events(task)


def _pending() -> Iterator[Finding]:
    """One for each reason why the permanent store lacks something; none for what is about to be written."""
    members: dict[str, list[str]] = {}
    for member_id, pending in lacking(documents[NODELIST]).items():
        members.setdefault(pending.why, []).append(member_id)
    for why, names in members.items():
        if why:
            count = f"{len(names)} members, such as {names[0]}" if len(names) > 1 else names[0]
            message = f"the permanent store lacks the newest of {count}: {why}"
            fix = "mend that: the next refresh writes it  # coordinator nodelist refresh"
            yield Finding("warning", "document.pending", f"document {NODELIST}", message, fix)


def _proposals() -> Iterator[Finding]:
    kept: dict[str, Kept] = documents[NODELIST].read().entries(KEPT)
    for entry, of_member in kept.items():
        fields = [field for field, proposal in of_member.get("proposals", {}).items() if "refused" not in proposal]
        if fields:
            member = entry.removeprefix(KEPT)
            wait = f"changes wait for an operator: {len(fields)}, of {', '.join(fields)}"
            fix = f"coordinator members accept {quote(member)} --why …  # or refuse"
            yield Finding("warning", "member.proposes", f"member {member}", wait, fix)


def _events(task: str) -> Iterator[Finding]:
    """Nothing where the catalog is away: that is none of Redis' faults."""
    from sqlalchemy.exc import SQLAlchemyError  # most services declare no task, and `status` starts sooner without

    from tasks import events
    from tasks.database import UnusableDatabase

    try:
        count, since = events.waiting()
    except (SQLAlchemyError, UnusableDatabase, OSError):
        return
    if since and instants.now() - since > timedelta(seconds=coordinator.settings.long_wait):
        message = f"it has not heard of {count} events of objects, the first of {instants.shown(since)}"
        yield Finding("warning", "events.late", f"task {task}", message, "coordinator jobs --key object/")
