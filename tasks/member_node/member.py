"""A member node as DataONE's registry describes it: a model that is read from and written as XML (v1, v2) and JSON.

Of such an XML document only the root element has a namespace. v2 adds elements `property` at the end.
"""

from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import Annotated, Literal
from urllib.parse import urlsplit

from lxml import etree
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, JsonValue, StringConstraints

from coordinator import Quartz
from coordinator.extending import REFUSED_CHARACTERS
from tasks import instants
from tasks.member_node import safe_xml

NAMESPACES = {
    "v1": "http://ns.dataone.org/service/types/v1",
    "v2": "http://ns.dataone.org/service/types/v2.0",
}
ATTRIBUTES = ("replicate", "synchronize", "type", "state")
SCHEDULE = ("sec", "min", "hour", "mday", "mon", "wday", "year")

Version = Literal["v1", "v2"]


def _web_address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http or https address with a host")
    return url.rstrip("/")


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Identifier = Annotated[Text, StringConstraints(max_length=256, pattern=rf"^[^\s{REFUSED_CHARACTERS}]+$")]
Address = Annotated[Text, AfterValidator(_web_address)]
Moment = Annotated[
    datetime,
    BeforeValidator(lambda value: instants.parse(value) if isinstance(value, str) else value),
    AfterValidator(instants.utc),
]


class _MemberPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MemberSchedule(_MemberPart):
    """When the member wants to be synchronized: the parts of a Quartz expression, as the member wrote them."""

    sec: Text
    min: Text
    hour: Text
    mday: Text
    mon: Text
    wday: Text
    year: Text

    @property
    def parts(self) -> tuple[str, str, str, str, str, str, str]:
        """The parts in the order of a Quartz expression."""
        return self.sec, self.min, self.hour, self.mday, self.mon, self.wday, self.year


class Restriction(_MemberPart):
    method: Text
    subjects: tuple[Text, ...] = ()


class Service(_MemberPart):
    name: Text
    version: Text
    available: bool = True
    restrictions: tuple[Restriction, ...] = ()


class ReplicationPolicy(_MemberPart):
    max_object_size: int | None = None
    space_allocated: int | None = None
    allowed_nodes: tuple[Text, ...] = ()
    allowed_formats: tuple[Text, ...] = ()


class Ping(_MemberPart):
    success: bool | None = None
    last_success: Moment | None = None


class Property(_MemberPart):
    key: Text
    type: str | None = None
    value: str = ""


class Member(_MemberPart):
    identifier: Identifier
    name: Text
    description: Text
    base_url: Address
    type: Literal["mn", "cn", "Monitor"]
    state: Literal["up", "down", "unknown"]
    replicate: bool
    synchronize: bool
    services: tuple[Service, ...] = ()
    schedule: MemberSchedule | None = None
    last_harvested: Moment | None = None
    last_complete_harvest: Moment | None = None
    replication_policy: ReplicationPolicy | None = None
    ping: Ping | None = None
    subjects: tuple[Text, ...] = ()
    contact_subjects: tuple[Text, ...] = ()
    properties: tuple[Property, ...] = ()

    @property
    def harvested_until(self) -> datetime:
        """The date up to which the service has fetched the member's objects; NEVER: none were fetched."""
        return self.last_harvested or instants.NEVER

    @property
    def api(self) -> Version:
        """The version of the member's REST API to use: v2 if the member offers any service in v2."""
        return "v2" if any(service.version == "v2" and service.available for service in self.services) else "v1"

    @property
    def obstacle(self) -> str | None:
        """Why this member cannot be synchronized; None: it can."""
        if self.type != "mn":
            return f"it is of type {self.type}, not a member node"
        if self.state != "up":
            return f"its state is {self.state}"
        if not self.synchronize:
            return "it asks not to be synchronized"
        offered = {service.name for service in self.services if service.available}
        missing = sorted({"MNCore", "MNRead"} - offered)
        return f"it does not offer {' and '.join(missing)}" if missing else None

    def quartz(self, zone: tzinfo) -> Quartz | None:
        """The member's schedule in the time zone `zone`; None: the member has no schedule. Raises ValueError for an
        invalid one.
        """
        return None if self.schedule is None else Quartz.from_parts(*self.schedule.parts, tz=zone)

    @property
    def synchronizable(self) -> bool:
        return self.obstacle is None

    @classmethod
    def from_xml(cls, node: etree._Element) -> "Member":
        """Read a member from its XML element. Raises pydantic's ValidationError."""
        return cls.model_validate(_read(node))

    def to_xml(self, version: Version = "v2", tag: str = "node") -> etree._Element:
        """The member as an XML element with this tag. Properties are left out in v1, whose schema has none."""
        return _write(self, version, tag)


def scheduled(member: Member, zone: tzinfo) -> Quartz | str:
    """The member's schedule in the time zone `zone`, or the reason why no beat will synchronize the member."""
    try:
        schedule = member.quartz(zone)
    except ValueError as error:
        return str(error)
    if schedule is None:
        return "the nodelist has no schedule for it"
    return schedule if schedule.next(instants.now()) else f"its schedule {schedule.expression} never fires again"


def _texts(element: etree._Element, tag: str) -> list[JsonValue]:
    texts = map(safe_xml.value, element.findall(tag))
    return [None if text is None else text.strip() for text in texts]


def _read(node: etree._Element) -> dict[str, JsonValue]:
    times = node.find("synchronization")
    schedule = None if times is None else times.find("schedule")
    policy, ping = node.find("nodeReplicationPolicy"), node.find("ping")
    return {
        **{name: node.get(name) for name in ATTRIBUTES},
        **{name: safe_xml.value(node, name) for name in ("identifier", "name", "description")},
        "base_url": safe_xml.value(node, "baseURL"),
        "services": [_read_service(service) for service in node.findall("services/service")],
        "schedule": None if schedule is None else {name: schedule.get(name) for name in SCHEDULE},
        "last_harvested": safe_xml.value(node, "synchronization/lastHarvested"),
        "last_complete_harvest": safe_xml.value(node, "synchronization/lastCompleteHarvest"),
        "replication_policy": None if policy is None else _read_policy(policy),
        "ping": None if ping is None else {"success": ping.get("success"), "last_success": ping.get("lastSuccess")},
        "subjects": _texts(node, "subject"),
        "contact_subjects": _texts(node, "contactSubject"),
        "properties": [
            {"key": child.get("key"), "type": child.get("type"), "value": safe_xml.value(child)}
            for child in node.findall("property")
        ],
    }


def _read_service(service: etree._Element) -> dict[str, JsonValue]:
    return {
        "name": service.get("name"),
        "version": service.get("version"),
        "available": service.get("available", "true"),
        "restrictions": [
            {"method": child.get("methodName"), "subjects": _texts(child, "subject")}
            for child in service.findall("restriction")
        ],
    }


def _read_policy(policy: etree._Element) -> dict[str, JsonValue]:
    return {
        "max_object_size": safe_xml.value(policy, "maxObjectSize"),
        "space_allocated": safe_xml.value(policy, "spaceAllocated"),
        "allowed_nodes": _texts(policy, "allowedNode"),
        "allowed_formats": _texts(policy, "allowedObjectFormat"),
    }


def _attributes(**attributes: object) -> dict[str, str]:
    return {name: _plain(value) for name, value in attributes.items() if value is not None}


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return instants.full(value) if isinstance(value, datetime) else str(value)


def _add(parent: etree._Element, tag: str, values: Iterable[object]) -> None:
    for value in values:
        if value is not None:
            etree.SubElement(parent, tag).text = _plain(value)


def _write(member: Member, version: Version, tag: str) -> etree._Element:
    node = etree.Element(tag, _attributes(**{name: getattr(member, name) for name in ATTRIBUTES}))
    _add(node, "identifier", [member.identifier])
    _add(node, "name", [member.name])
    _add(node, "description", [member.description])
    _add(node, "baseURL", [member.base_url])
    _write_services(node, member.services)
    if member.schedule or member.last_harvested or member.last_complete_harvest:
        times = etree.SubElement(node, "synchronization")
        if member.schedule is not None:
            etree.SubElement(times, "schedule", member.schedule.model_dump())
        _add(times, "lastHarvested", [member.last_harvested])
        _add(times, "lastCompleteHarvest", [member.last_complete_harvest])
    if (policy := member.replication_policy) is not None:
        element = etree.SubElement(node, "nodeReplicationPolicy")
        _add(element, "maxObjectSize", [policy.max_object_size])
        _add(element, "spaceAllocated", [policy.space_allocated])
        _add(element, "allowedNode", policy.allowed_nodes)
        _add(element, "allowedObjectFormat", policy.allowed_formats)
    if (ping := member.ping) is not None:
        etree.SubElement(node, "ping", _attributes(success=ping.success, lastSuccess=ping.last_success))
    _add(node, "subject", member.subjects)
    _add(node, "contactSubject", member.contact_subjects)
    for property_ in member.properties if version == "v2" else ():
        etree.SubElement(node, "property", _attributes(key=property_.key, type=property_.type)).text = property_.value
    return node


def _write_services(node: etree._Element, services: tuple[Service, ...]) -> None:
    if not services:
        return
    parent = etree.SubElement(node, "services")
    for service in services:
        attributes = _attributes(name=service.name, version=service.version, available=service.available)
        element = etree.SubElement(parent, "service", attributes)
        for restriction in service.restrictions:
            child = etree.SubElement(element, "restriction", methodName=restriction.method)
            _add(child, "subject", restriction.subjects)
