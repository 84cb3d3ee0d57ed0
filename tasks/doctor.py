"""What the command `doctor` reports about the service: documents, members' proposals and schedules, late events."""

from collections.abc import Iterator
from datetime import timedelta
from shlex import quote

from coordinator import Finding
from tasks import instants
from tasks.app import NODELIST, coordinator, documents
from tasks.member_node.member import Member, scheduled
from tasks.member_node.subjects import Subject, of_text
from tasks.nodelist.entries import KEPT, MEMBER, Kept
from tasks.nodelist.store_notes import pending_members
from tasks.settings import Settings


def findings() -> Iterator[Finding]:
    if not documents[NODELIST].pointer()[0]:
        message = "there is no nodelist, so no member is synchronized, and requests wait: coordinator nodelist show"
        fix = "coordinator nodelist import FILE --why …"
        yield Finding("error", "document.none", f"document {NODELIST}", message, fix)
    yield from documents.findings()
    yield from _pending()
    yield from _proposals()
    yield from _subjects()
    yield from _schedules()
    if task := Settings.from_environment().on_object:
        yield from _events(task)


def _pending() -> Iterator[Finding]:
    """A finding for each reason why members' newest versions are not in the permanent store (LDAP or XML).

    Members that a node is about to write have no reason, and so no finding.
    """
    members: dict[str, list[str]] = {}
    for member_id, pending in pending_members(documents[NODELIST]).items():
        members.setdefault(pending.why, []).append(member_id)
    for why, names in members.items():
        if why:
            count = f"{len(names)} members, such as {names[0]}" if len(names) > 1 else names[0]
            message = f"the permanent store lacks the newest version of {count}: {why}"
            fix = "fix that: the next refresh writes it  # coordinator nodelist refresh"
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


def _subjects() -> Iterator[Finding]:
    """A finding for each certificate subject that two members have, since the HTTP API then admits neither member.

    Only an imported nodelist, or a change in the permanent store, can give one subject to two members.
    """
    named: dict[Subject, dict[str, str]] = {}
    for entry, value in sorted(documents[NODELIST].read().entries(MEMBER).items()):
        for text in value["member"]["subjects"]:
            named.setdefault(of_text(text), {})[entry.removeprefix(MEMBER)] = text
    for subject, texts in named.items():
        (member, text), *others = texts.items()
        if subject and others:
            names = ", ".join(name for name, _ in others)
            message = f"the certificate subject {text} admits no member, since {names} has the same subject"
            yield Finding("warning", "member.subject", f"member {member}", message, "coordinator nodelist export FILE")


def _schedules() -> Iterator[Finding]:
    """A finding for each approved member whose schedule is invalid or never fires again."""
    zone = Settings.from_environment().zone
    for entry, value in documents[NODELIST].read().entries(MEMBER).items():
        member = Member.model_validate(value["member"])
        if not (value["approved"] and member.schedule and member.synchronizable):
            continue
        if isinstance(why := scheduled(member, zone), str):
            fix = "fix it in the nodelist; until then: coordinator refresh " + quote(member.identifier)
            yield Finding("warning", "member.unscheduled", f"member {entry.removeprefix(MEMBER)}", why, fix)


def _events(task: str) -> Iterator[Finding]:
    """A finding where the task that TASKS_ON_OBJECT names has not received events for long.

    None while the catalog's database is away: the commands that read the catalog report that.
    """
    from sqlalchemy.exc import SQLAlchemyError  # imported here: `status` starts faster where no task is declared

    from tasks import events
    from tasks.database import UnusableDatabase

    try:
        count, since = events.waiting()
    except (SQLAlchemyError, UnusableDatabase, OSError):
        return
    if since and instants.now() - since > timedelta(seconds=coordinator.settings.long_wait):
        message = f"the task has not received {count} events of objects, the first of {instants.shown(since)}"
        yield Finding("warning", "events.late", f"task {task}", message, "coordinator jobs --key object/")
