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
        own = [property_ for property_ in member.properties if not property_.key.startswith(COORDINATOR)]
        return _sorted([property_.model_dump(mode="json") for property_ in own])
    if field == "services":
        return _sorted([service.model_dump(mode="json", exclude={"available"}) for service in member.services])
    whole = member.model_dump(mode="json", include={field})[field]
    return _sorted(whole) if isinstance(whole, list) else whole


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
        available = [(service, flags.get(_key(service), service.available)) for service in member.services]
        switched = tuple(service.model_copy(update={"available": flag}) for service, flag in available)
        return member.model_copy(update={"services": switched})
    new = Member.model_validate(member.model_dump(mode="json") | {field: to})
    if field == "properties":
        kept = [property_ for property_ in member.properties if property_.key.startswith(COORDINATOR)]
        return new.model_copy(update={"properties": (*new.properties, *kept)})
    return put(new, "available", value(member, "available")) if field == "services" else new


def _key(service: Service) -> str:
    return f"{service.name} {service.version}"


def _sorted(values: list[JsonValue]) -> list[JsonValue]:
    return sorted(values, key=str)
