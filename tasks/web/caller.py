"""Finds the member that sends a request: by its token, or by the subject of its TLS client certificate.

The subject comes from the server that terminates TLS: from this process (tasks/web/server.py), or from a proxy, in a
header. The header is ignored if it comes from an address that is not one of the proxies.
"""

import hashlib
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address, ip_network

from starlette.requests import Request

from tasks.member_node.subjects import Subject, of_text
from tasks.nodelist.stores import Listed
from tasks.web.answers import DataoneError

SUBJECT = "subject"
"""The key in the `state` of an ASGI scope under which the server puts the subject of a verified client certificate."""


class Callers:
    """Finds the members that send requests. `header`: the header in which a proxy that terminates TLS sends the
    subject, as text of RFC 2253; empty: this server terminates TLS. `proxies`: such proxies' IP addresses or networks.
    """

    def __init__(self, header: str = "", proxies: Iterable[str] = ()) -> None:
        self._header, self._proxies = header, [ip_network(address) for address in proxies]

    def caller(self, request: Request, listed: Mapping[str, Listed], tokens: Mapping[str, str]) -> str:
        """The id of the member that sends a request. `tokens`: ids of members by the SHA-256 of their tokens.

        Raises DataoneError where neither a token nor a certificate names exactly one member.
        """
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            member_id = tokens.get(hashlib.sha256(token.strip().encode()).hexdigest())
            if member_id is None or member_id not in listed:
                raise DataoneError(401, "InvalidToken", "no member has this token")
            return member_id
        subject = self._subject(request)
        if not subject:
            raise DataoneError(
                401, "NotAuthorized", "show a client certificate that names a member, or a member's token"
            )
        named = [name for name, entry in listed.items() if subject in map(of_text, entry.member.subjects)]
        if len(named) != 1:
            many = "several members name" if named else "no member names"
            raise DataoneError(401, "NotAuthorized", f"{many} the subject of this certificate")
        return named[0]

    def _subject(self, request: Request) -> Subject:
        """The subject of the client certificate; empty: there is none, or its source is not trusted."""
        if not self._header:
            known: Subject = request.scope.get("state", {}).get(SUBJECT, ())
            return known
        texts = request.headers.getlist(self._header)
        return of_text(texts[0]) if self._is_believed(request) and len(texts) == 1 else ()

    def _is_believed(self, request: Request) -> bool:
        if request.client is None:
            return False
        address = ip_address(request.client.host)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in network for network in self._proxies)
