"""DataONE's LDAP schema: the attribute for each field of Member, which values are equal, what a write may change."""

import unicodedata
from collections.abc import Iterable, Mapping

from tasks import instants
from tasks.member_node.member import SCHEDULE

Attributes = Mapping[str, tuple[str, ...]]
Rdn = tuple[tuple[str, str], ...]
Path = tuple[Rdn, ...]

NODE, SERVICE, RESTRICTION, PROPERTY = "d1Node", "d1NodeService", "d1ServiceMethodRestriction", "d1NodeProperty"
CLASSES = (NODE, SERVICE, RESTRICTION, PROPERTY)
APPROVED = "d1NodeApproved"
LONGEST = 480

PLAIN = {
    "identifier": "d1NodeId",
    "name": "d1NodeName",
    "description": "d1NodeDescription",
    "base_url": "d1NodeBaseURL",
    "type": "d1NodeType",
    "state": "d1NodeState",
    "replicate": "d1NodeReplicate",
    "synchronize": "d1NodeSynchronize",
    "last_harvested": "d1NodeLastHarvested",
    "last_complete_harvest": "d1NodeLastCompleteHarvest",
}
TIMES = {name: f"d1NodeSynSchd{name.capitalize()}" for name in SCHEDULE}
PING = {"success": "d1NodePingSuccess", "last_success": "d1NodePingDateChecked"}
SUBJECTS = {"subjects": "subject", "contact_subjects": "d1NodeContactSubject"}
LIMITS = {"max_object_size": "d1ReplicationPolicyMaxObjectSize", "space_allocated": "d1ReplicationPolicySpaceAllocated"}
ALLOWED = {
    "allowed_nodes": "d1ReplicationPolicyAllowedNode",
    "allowed_formats": "d1ReplicationPolicyAllowedObjectFormat",
}
SERVED = {"name": "d1NodeServiceName", "version": "d1NodeServiceVersion", "available": "d1NodeServiceAvailable"}
METHOD, ADMITTED = "d1ServiceMethodName", "d1AllowedSubject"
KEYED = {"key": "d1NodePropertyKey", "type": "d1NodePropertyType", "value": "d1NodePropertyValue"}

MANY = {*SUBJECTS.values(), *ALLOWED.values(), ADMITTED, "description"}
FOLDED = {*SUBJECTS.values(), ADMITTED}
"""The attributes whose values the server compares without case: values that differ in case only are one value."""
DATES = {PLAIN["last_harvested"], PLAIN["last_complete_harvest"], PING["last_success"]}
CHANGEABLE = {
    NODE: {*PLAIN.values(), *TIMES.values(), *PING.values(), *SUBJECTS.values(), *LIMITS.values(), *ALLOWED.values()}
    - {PLAIN["identifier"]}
    | {APPROVED, "description"},
    SERVICE: {SERVED["available"]},
    RESTRICTION: {ADMITTED},
    PROPERTY: {KEYED["type"], KEYED["value"]},
}


def kind(path: Path, attributes: Attributes) -> str | None:
    """The entry's object class in DataONE's schema; None: another class, or the wrong depth in the tree: ignore it."""
    classes = {name.lower() for name in attributes.get("objectClass", ())}
    places = {NODE: 0, SERVICE: 1, PROPERTY: 1, RESTRICTION: 2}
    return next((name for name, depth in places.items() if name.lower() in classes and depth == len(path)), None)


def meaning(name: str, values: Iterable[str]) -> object:
    """A key for values of the attribute `name`. Values with equal keys mean the same, and need no write."""
    if name in (KEYED["type"], KEYED["value"]):
        return tuple(values)
    texts = [text.strip() for text in values]
    if name in DATES:
        try:
            return [instants.parse(text) for text in texts]
        except ValueError:
            return texts
    if name == PLAIN["base_url"]:
        return [text.rstrip("/") for text in texts]
    return sorted(texts) if name in MANY else texts


def folded(text: str) -> str:
    """The text in the form in which the server compares names: compatible characters become equal, as do blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def size_of(name: str) -> int:
    """The bytes of an entry's name in slapd's database, LMDB, which stores it twice: as given, and normalized.

    LONGEST is the most that fits.
    """
    return sum(
        3 if character in ',+"\\<>;=#' else len(character.encode())
        for form in (name, folded(name))
        for character in form
    )


def rdn(attribute: str, value: str) -> Rdn:
    return ((attribute, value),)
