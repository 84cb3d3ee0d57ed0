"""Parses the subjects of TLS certificates, from texts of RFC 2253 or from Python's `getpeercert`, to compare them."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

Subject = tuple[frozenset[tuple[str, str]], ...]
"""A subject's parts, from the most to the least specific: sets of names and values. Names are short, in lower case."""

SHORT = {
    "commonname": "cn", "domaincomponent": "dc", "organizationname": "o", "organizationalunitname": "ou",
    "countryname": "c", "stateorprovincename": "st", "localityname": "l", "streetaddress": "street", "userid": "uid",
    "email": "emailaddress", "e": "emailaddress",
}  # fmt: skip

_PAIR = re.compile(r"\s*([A-Za-z0-9.-]+)\s*=\s*((?:\\.|[^\\,+\s]|\s+(?=[^\s,+]))*)\s*([,+]|$)", re.DOTALL)
_ESCAPED = re.compile(r"((?:\\[0-9A-Fa-f]{2})+)|\\(.)", re.DOTALL)


def of_certificate(names: Iterable[Iterable[tuple[str, str]]]) -> Subject:
    """Convert a subject from the form of Python's `getpeercert`, whose parts begin with the least specific."""
    return tuple(frozenset((_short(name), value) for name, value in part) for part in reversed([*names]))


@lru_cache(10_000)
def of_text(text: str) -> Subject:
    """Parse a subject such as `CN=a,DC=b+DC=c`. Blanks around `=`, `,` and `+` are ignored.

    Empty for a text that is not a subject.
    """
    parts: list[set[tuple[str, str]]] = [set()]
    at, sign = 0, ","
    while sign:
        pair = _PAIR.match(text, at)
        if pair is None:
            return ()
        name, value, sign = pair.groups()
        parts[-1].add((_short(name), _plain(value)))
        at = pair.end()
        if sign == ",":
            parts.append(set())
    return tuple(frozenset(part) for part in parts)


def of_another(subjects: Iterable[str], others: Mapping[str, Iterable[str]]) -> tuple[str, str] | None:
    """The first of `subjects` that another member has, too, and the id of that member; None: there is none.

    `others`: the subjects of the other members, by id.
    """
    theirs = {of_text(text): member for member, texts in others.items() for text in texts}
    return next(((text, theirs[named]) for text in subjects if (named := of_text(text)) and named in theirs), None)


def _short(name: str) -> str:
    return SHORT.get(name.lower(), name.lower())


def _plain(value: str) -> str:
    """Decode the escapes in a value: \\2C and \\, are both a comma."""

    def plain(escape: re.Match[str]) -> str:
        coded, single = escape.groups()
        return single or bytes.fromhex(coded.replace("\\", "")).decode(errors="replace")

    return _ESCAPED.sub(plain, value)
