"""Checks whether a member can be synchronized: tries each thing that a harvest needs, without any nodelist."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

from tasks import instants
from tasks.member_node.client import NOT_THERE, MemberNode, MemberNodeError, MemberUnreachable
from tasks.member_node.member import Member, Service
from tasks.settings import Access, Settings

NOBODY = "urn:node:unknown"
"""The id of a member that has not named itself yet."""


class Check(NamedTuple):
    name: str
    ok: bool
    detail: str
    member: Member | None = None
    """Only in the check of the description: the member found there."""


def look(url: str, settings: Settings, expected: str = NOBODY) -> Iterator[Check]:
    """Yield the checks; stop where the rest cannot be tried. ValidationError: this cannot be a member's address.

    `expected`: the id of the member, so that already the first question has its row of TASKS_ACCESS.
    """
    base = url.rstrip("/").removesuffix("/v1").removesuffix("/v2")
    try:
        member = describe(base, settings, expected)
    except MemberNodeError as error:  # it may name a member that nobody knows yet
        yield Check("description", False, f"{error.message} ({error.url}){asked_with(error, expected, settings)}")
        return
    if expected not in (NOBODY, member.identifier):
        yield Check("description", False, f"it is {member.identifier}, and not {expected}")
        return
    yield Check("description", True, f"{member.identifier}, {member.name}, API {member.api}", member)
    if differing := differences(base, member.base_url):
        yield address(member, differing, settings)
    yield Check("services", member.obstacle is None, member.obstacle or "it offers all that a synchronization needs")
    yield schedule(member, settings)
    # Ask at the address given, even where the member names another one.
    with MemberNode(member.model_copy(update={"base_url": base}), settings) as client:
        yield from serve(client, settings)


def describe(base: str, settings: Settings, expected: str) -> Member:
    """The member as it describes itself, in the newest API that it speaks.

    Raises the error of v2 where the description in v1 says that it speaks v2, or where v1 has none either.
    """
    guess = Member(
        identifier=expected,
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
            truth = error
        try:
            described = v1.describe()
        except MemberNodeError as error:
            raise error if truth.status in NOT_THERE else truth from None
        if described.api == "v2":
            raise truth
        return described


def differences(address: str, named: str) -> list[str]:
    """The parts in which two addresses differ. Case, a usual port and a slash at the end do not count."""
    (here, there) = (urlsplit(url.lower() if url.count("/") < 3 else url) for url in (address, named))
    ports = [parts.port or {"http": 80, "https": 443}.get(parts.scheme) for parts in (here, there)]
    differing = {
        "scheme": here.scheme != there.scheme,
        "host": here.hostname != there.hostname,
        "port": ports[0] != ports[1] and here.scheme == there.scheme,
        "path": here.path.rstrip("/") != there.path.rstrip("/"),
    }
    return [part for part, differs in differing.items() if differs]


def address(member: Member, differing: list[str], settings: Settings) -> Check:
    """The member names another address than the one that was given, and syncs ask where it says."""
    named = f"the member names {member.base_url}, another {' and '.join(differing)}"
    try:
        there = describe(member.base_url, settings, member.identifier)
    except MemberNodeError as error:
        mend = "Have the member name the address that you gave, as a proxy or a prefix before it shows it"
        return Check("base URL", False, f"{named}. Syncs would ask there, and it {error.message}. {mend}")
    if there.identifier != member.identifier:
        return Check("base URL", False, f"{named}, and there answers {there.identifier}")
    return Check("base URL", True, f"{named}. It answers there too, and syncs will ask there")


def schedule(member: Member, settings: Settings) -> Check:
    try:
        times = member.quartz(settings.zone)
    except ValueError as error:
        return Check("schedule", False, str(error))
    if times is None:
        return Check("schedule", False, "it names none: it would be synchronized only on request")
    if (following := times.next(instants.now())) is None:
        return Check("schedule", False, f"{times.expression} comes never again: such as 30 February, or a past year")
    return Check("schedule", True, f"{times.expression}, next at {following}")


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
        yield Check("answers", False, f"{error}{asked_with(error, client.member.identifier, settings)}")


def asked_with(error: MemberNodeError, member_id: str, settings: Settings) -> str:
    """The row of TASKS_ACCESS that the question had, and what to set, where that may be the cause of the error."""
    if error.status not in (401, 403) and not isinstance(error, MemberUnreachable):
        return ""
    row, names = settings.access_row(member_id), ", ".join(Access.model_fields)
    if row == member_id:
        has = ", ".join(settings.access[row].model_dump(exclude_none=True)) or "nothing"
        return f"; asked with its row of TASKS_ACCESS, which has {has}, and may have {names}"
    used = "without a row of TASKS_ACCESS" if row is None else f"with the row {row!r} of TASKS_ACCESS"
    mend = "if it has a row of its own, name its id with --as" if member_id == NOBODY else f"its own may have {names}"
    return f"; asked {used}; {mend}"
