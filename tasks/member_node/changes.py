"""Compares a member as it describes itself with the member in the list, field by field, and puts a field on it.

A field is one of Member's; `available` stands apart from `services`, since a member switches its services off and on.
"""

from typing import cast

from pydantic import JsonValue

from tasks.member_node.member import Member, Service

COORDINATOR = "CN_"
"""The keys of a member's properties that begin so are the coordinating node's."""
NEVER = ("identifier", "last_harvested", "last_complete_harvest", "ping")
"""What a member does not say: its name in the federation, and what the coordinating nodes noted."""
FIELDS = (*(name for name in Member.model_fields if name not in NEVER), "available")

Flags = dict[str, bool]


def value(member: Member, field: str) -> JsonValue:
    """A field as JSON, in which the order of lists does not count."""
    if field == "available":
        return {_key(service): service.available for service in member.services}
    if field == "properties":
        own = [one for one in member.properties if not one.key.startswith(COORDINATOR)]
        return _sorted([one.model_dump(mode="json") for one in own])
    if field == "services":
        return _sorted([one.model_dump(mode="json", exclude={"available"}) for one in member.services])
    found = member.model_dump(mode="json", include={field})[field]
    return _sorted(found) if isinstance(found, list) else found


def changes(ours: Member, theirs: Member) -> dict[str, JsonValue]:
    """The fields that differ, with their values as the member describes itself. A v1 description has no properties."""
    differing = {field: value(theirs, field) for field in FIELDS if value(ours, field) != value(theirs, field)}
    if theirs.api == "v1":
        differing.pop("properties", None)
    if "available" in differing:
        said, known = cast(Flags, differing.pop("available")), cast(Flags, value(ours, "available"))
        flags = {key: available for key, available in known.items() if said.get(key, available) != available}
        differing |= {"available": {key: said[key] for key in flags}} if flags else {}
    return differing


def put(member: Member, field: str, to: JsonValue) -> Member:
    """The member with this value of a field. Raises pydantic's ValidationError."""
    if field == "available":
        flags = cast(Flags, to)
        switched = [
            one.model_copy(update={"available": flags.get(_key(one), one.available)}) for one in member.services
        ]
        return member.model_copy(update={"services": tuple(switched)})
    new = Member.model_validate(member.model_dump(mode="json") | {field: to})
    if field == "properties":
        kept = [one for one in member.properties if one.key.startswith(COORDINATOR)]
        return new.model_copy(update={"properties": (*new.properties, *kept)})
    return put(new, "available", value(member, "available")) if field == "services" else new


def _key(service: Service) -> str:
    return f"{service.name} {service.version}"


def _sorted(values: list[JsonValue]) -> list[JsonValue]:
    return sorted(values, key=str)
