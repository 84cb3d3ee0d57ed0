"""Compares the description that a member serves of itself with its entry in the nodelist, and sets single fields.

The fields are those of Member. The flags `available` of the services are a field of their own, since members switch
services off and on.
"""

from typing import cast

from pydantic import JsonValue

from tasks.member_node.member import Member, Service

COORDINATOR = "CN_"
"""The prefix of the keys of properties that belong to the coordinating nodes, not to the member."""
NEVER = ("identifier", "last_harvested", "last_complete_harvest", "ping")
"""Fields that a member cannot change: its identifier, and the results that coordinating nodes have noted."""
FIELDS = (*(name for name in Member.model_fields if name not in NEVER), "available")

Flags = dict[str, bool]


def value(member: Member, field: str) -> JsonValue:
    """The value of a field as JSON. Lists are sorted, so that values with another order are equal."""
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
    """The fields that differ, with the values of `theirs`. `ours`: the entry in the list. `theirs`: the description.

    Properties are left out for a description in v1, which has no place for them.
    """
    differing = {field: value(theirs, field) for field in FIELDS if value(ours, field) != value(theirs, field)}
    if theirs.api == "v1":
        differing.pop("properties", None)
    if "available" in differing:
        new, old = cast(Flags, differing.pop("available")), cast(Flags, value(ours, "available"))
        flags = {key: new[key] for key, available in old.items() if new.get(key, available) != available}
        differing |= {"available": {**flags}} if flags else {}
    return differing


def put(member: Member, field: str, to: JsonValue) -> Member:
    """A copy of the member whose `field` has the value `to`, as `value` gives it. Raises pydantic's ValidationError."""
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
