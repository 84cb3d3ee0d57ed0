"""Reads the subjects of certificates, to compare them: texts of RFC 2253, and TLS's own form."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

Subject = tuple[frozenset[tuple[str, str]], ...]
"""The parts from the most to the least specific. In each, short names in small letters, and values as they are."""

SHORT = {
    "commonname": "cn", "domaincomponent": "dc", "organizationname": "o", "organizationalunitname": "ou",
    "countryname": "c", "stateorprovincename": "st", "localityname": "l", "streetaddress": "street", "userid": "uid",
    "email": "emailaddress", "e": "emailaddress",
}  # fmt: skip

_PAIR = re.compile(r"\s*([A-Za-z0-9.-]+)\s*=\s*((?:\\.|[^\\,+\s]|\s+(?=[^\s,+]))*)\s*([,+]|$)", re.DOTALL)
_ESCAPED = re.compile(r"((?:\\[0-9A-Fa-f]{2})+)|\\(.)", re.DOTALL)


def of_certificate(names: Iterable[Iterable[tuple[str, str]]]) -> Subject:
    """The subject as Python's `getpeercert` gives it, from the least to the most specific part."""
    return tuple(frozenset((_short(name), value) for name, value in part) for part in reversed([*names]))


@lru_cache(10_000)
def of_text(text: str) -> Subject:
    """Read CN=a,DC=b+DC=c. Blanks around the signs do not count. Empty for a text that is no subject."""
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
    """The first of these subjects that another member names, and that member. `others`: the subjects by member."""
    theirs = {of_text(text): member for member, texts in others.items() for text in texts}
    return next(((text, theirs[named]) for text in subjects if (named := of_text(text)) and named in theirs), None)


def _short(name: str) -> str:
    return SHORT.get(name.lower(), name.lower())


def _plain(value: str) -> str:
    """Without its escapes: \\2C and \\, are both a comma."""

    def plain(escape: re.Match[str]) -> str:
        coded, single = escape.groups()
        return single or bytes.fromhex(coded.replace("\\", "")).decode(errors="replace")

    return _ESCAPED.sub(plain, value)
