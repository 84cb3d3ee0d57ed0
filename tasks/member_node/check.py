"""Checks whether a member can be synchronized, before it is in the nodelist: tries each kind of request of a sync."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

from tasks import instants
from tasks.member_node.client import NOT_THERE, AsksToWait, MemberNode, MemberNodeError, MemberUnreachable
from tasks.member_node.member import Member, Service
from tasks.settings import Access, Settings

NOBODY = "urn:node:unknown"
"""The id that stands for a member whose own id is not known yet."""


class Check(NamedTuple):
    name: str
    ok: bool
    detail: str
    member: Member | None = None
    """The member that the description describes; None in all checks but that of the description."""


def look(url: str, settings: Settings, expected: str = NOBODY) -> Iterator[Check]:
    """Check the member at the address `url`: yield each check, and stop after a failure that makes the rest pointless.

    `expected`: the id of the member, for its row in TASKS_ACCESS. Raises ValidationError for an invalid address.
    """
    base = url.rstrip("/").removesuffix("/v1").removesuffix("/v2")
    try:
        member = describe(base, settings, expected)
    except MemberNodeError as error:  # no str(error), which would begin with an id that may be NOBODY
        yield Check("description", False, f"{error.message} ({error.url}){access_used(error, expected, settings)}")
        return
    if expected not in (NOBODY, member.identifier):
        yield Check("description", False, f"the member there is {member.identifier}, not {expected}")
        return
    yield Check("description", True, f"{member.identifier}, {member.name}, API {member.api}", member)
    if differing := differences(base, member.base_url):
        yield address(member, differing, settings)
    yield Check("services", member.obstacle is None, member.obstacle or "it offers all that a synchronization needs")
    yield schedule(member, settings)
    # The next requests use the address `url` that the operator gave, even if the description names another address.
    with MemberNode(member.model_copy(update={"base_url": base}), settings) as client:
        yield from serve(client, settings)


def describe(base: str, settings: Settings, expected: str) -> Member:
    """Request the member's own description: in API v2, and where that fails in v1. `base`: the address without version.

    Where v2 fails, raises its error if the description in v1 says that the member offers v2, or if v1 fails as well.
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
            if error.status is None or isinstance(error, AsksToWait):
                raise
            error_of_v2 = error
        try:
            described = v1.describe()
        except MemberNodeError as error:
            raise error if error_of_v2.status in NOT_THERE else error_of_v2 from None
        if described.api == "v2":
            raise error_of_v2
        return described


def differences(address: str, named: str) -> list[str]:
    """The parts, such as `host`, in which two addresses differ. A default port and a slash at the end do not count."""
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
    """Check the address that the member's description names, since syncs will use it instead of the address given.

    `differing`: the parts in which the two addresses differ.
    """
    named = f"the member names {member.base_url}, another {' and '.join(differing)}"
    try:
        there = describe(member.base_url, settings, member.identifier)
    except MemberNodeError as error:
        mend = "Have the member name the address that you gave, as a proxy or a prefix before it shows it"
        return Check("base URL", False, f"{named}. Syncs would use that, and there it {error.message}. {mend}")
    if there.identifier != member.identifier:
        return Check("base URL", False, f"{named}, where {there.identifier} answers")
    return Check("base URL", True, f"{named}. It answers there too, and syncs will use that")


def schedule(member: Member, settings: Settings) -> Check:
    try:
        times = member.quartz(settings.zone)
    except ValueError as error:
        return Check("schedule", False, str(error))
    if times is None:
        return Check("schedule", False, "the member names no schedule: it would be synchronized only on request")
    if (following := times.next(instants.now())) is None:
        return Check(
            "schedule", False, f"{times.expression} never fires again: it means 30 February, say, or a past year"
        )
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
        yield Check("answers", False, f"{error}{access_used(error, client.member.identifier, settings)}")


def access_used(error: MemberNodeError, member_id: str, settings: Settings) -> str:
    """The end of a message: which row of TASKS_ACCESS the failed request used, and what that row may set.

    Empty where the error cannot come from certificates or a proxy.
    """
    if error.status not in (401, 403) and not isinstance(error, MemberUnreachable):
        return ""
    row, names = settings.access_row(member_id), ", ".join(Access.model_fields)
    if row == member_id:
        has = ", ".join(settings.access[row].model_dump(exclude_none=True)) or "nothing"
        return f"; its row of TASKS_ACCESS was used, which has {has}, and may have {names}"
    used = "no row of TASKS_ACCESS" if row is None else f"the row {row!r} of TASKS_ACCESS"
    mend = "if it has a row of its own, name its id with --as" if member_id == NOBODY else f"its own may have {names}"
    return f"; {used} was used; {mend}"
