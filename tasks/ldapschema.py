"""DataONE's LDAP schema as `Member` knows it: where each field is, which values are alike, and what a write changes."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tasks import instants
from tasks.member import SCHEDULE

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
"""Compared without case: two values that differ in nothing else are one to the server."""
DATES = {PLAIN["last_harvested"], PLAIN["last_complete_harvest"], PING["last_success"]}
CHANGEABLE = {
    NODE: {*PLAIN.values(), *TIMES.values(), *PING.values(), *SUBJECTS.values(), *LIMITS.values(), *ALLOWED.values()}
    - {PLAIN["identifier"]}
    | {APPROVED, "description"},
    SERVICE: {SERVED["available"]},
    RESTRICTION: {ADMITTED},
    PROPERTY: {KEYED["type"], KEYED["value"]},
}


class Changes(NamedTuple):
    """What makes one set of entries of another, in an order that leaves a member after each step.

    `changed`: attributes and their new values, empty = none left; the member's own entry comes first. `added`: parents
    first. `vanished`: children first.
    """

    changed: dict[Path, Attributes]
    added: dict[Path, Attributes]
    vanished: list[Path]


def kind(path: Path, attributes: Attributes) -> str | None:
    """Which of the four classes, where it stands in the place of its class; else None: it is left alone."""
    classes = {name.lower() for name in attributes.get("objectClass", ())}
    places = {NODE: 0, SERVICE: 1, PROPERTY: 1, RESTRICTION: 2}
    return next((name for name, depth in places.items() if name.lower() in classes and depth == len(path)), None)


def meaning(name: str, values: Iterable[str]) -> object:
    """Equal for values that are read alike: they are not worth a write."""
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
    """As the server compares names: compatible characters are one, so is any number of blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def weight(name: str) -> int:
    """Bytes of a name in LMDB, which keeps it as given and as compared, escaped, and has room for LONGEST."""
    return sum(3 if one in ',+"\\<>;=#' else len(one.encode()) for form in (name, folded(name)) for one in form)


def rdn(attribute: str, value: str) -> Rdn:
    return ((attribute, value),)


def changes(known: Mapping[Path, Attributes], wanted: Mapping[Path, Attributes], whole: bool = False) -> Changes:
    """`whole`: what is to stay as it is too."""
    changed: dict[Path, Attributes] = {}
    for path in sorted(wanted.keys() & known.keys(), key=lambda path: (len(path), path)):
        old, new = known[path], wanted[path]
        differ = {
            name: tuple(new.get(name, ()))
            for name in sorted(CHANGEABLE[kind(path, new) or NODE])
            if whole or meaning(name, old.get(name, ())) != meaning(name, new.get(name, ()))
        }
        if differ:
            changed[path] = differ
    added = {path: entry for path, entry in wanted.items() if path not in known}
    vanished = [path for path, entry in known.items() if path not in wanted and kind(path, entry)]
    return Changes(changed, added, sorted(vanished, key=lambda path: (-len(path), path)))
