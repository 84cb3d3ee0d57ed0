"""Whether a member can be synchronized, before it is in any nodelist: each thing that a harvest needs, tried once."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from coordinator.quartz import QuartzError
from tasks import documents, instants
from tasks.member import Member, Service
from tasks.membernode import MemberNode, MemberNodeError
from tasks.members import schedule_of
from tasks.settings import Settings


class Check(NamedTuple):
    what: str
    fine: bool
    says: str
    member: Member | None = None
    """Of the description: who was found."""


def look(url: str, settings: Settings) -> Iterator[Check]:
    """Ends at the first thing without which the rest cannot be tried. ValidationError: not the address of a member."""
    base = url.rstrip("/").removesuffix("/v1").removesuffix("/v2")
    try:
        member = describe(base, settings)
    except (MemberNodeError, documents.Unreadable) as error:
        yield Check("description", False, str(error))
        return
    yield Check("description", True, f"{member.identifier}, {member.name}, API {member.api}", member)
    if member.base_url != base:
        yield Check("base URL", False, f"it calls itself {member.base_url}")
    yield Check("services", member.obstacle is None, member.obstacle or "what a synchronization needs is offered")
    yield schedule(member, settings)
    # Where it was found, not where it says that it is.
    with MemberNode(member.model_copy(update={"base_url": base}), settings) as client:
        yield from serve(client, settings)


def describe(base: str, settings: Settings) -> Member:
    """As it describes itself, in the newest API that it speaks."""
    guess = Member(
        identifier="urn:node:unknown",
        name="unknown",
        description="unknown",
        base_url=base,
        type="mn",
        state="up",
        replicate=False,
        synchronize=True,
    )
    newest = guess.model_copy(update={"services": (Service(name="MNCore", version="v2"),)})
    with MemberNode(newest, settings) as v2, MemberNode(guess, settings) as v1:
        try:
            return v2.describe()
        except MemberNodeError as error:
            if error.status is None:
                raise
        return v1.describe()


def schedule(member: Member, settings: Settings) -> Check:
    try:
        found = schedule_of(member, settings.zone)
    except QuartzError as error:
        return Check("schedule", False, str(error))
    if found is None:
        return Check("schedule", False, "it names none: it would be synchronized on request only")
    return Check("schedule", True, f"{found}; next at {found.next(instants.now())}")


def serve(client: MemberNode, settings: Settings) -> Iterator[Check]:
    try:
        client.ping()
        yield Check("ping", True, "it answers")
        until = instants.floor(instants.now() - timedelta(seconds=settings.margin))
        listing = client.objects(instants.NEVER, until, start=0, count=1)
        yield Check("listing", True, f"{listing.total} objects")
        if listing.entries:
            pid = listing.entries[0].pid
            client.system_metadata(pid)
            yield Check("system metadata", True, pid)
    except MemberNodeError as error:
        yield Check("answers", False, str(error))
