"""Finds the member that makes a request: by its token, or by the subject of its certificate.

The server that ended TLS says the subject: this process itself (tasks/web/server.py), or a proxy in a header. Another
address that sends the header is nobody.
"""

import hashlib
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address, ip_network

from starlette.requests import Request

from tasks.nodelist.stores import Listed
from tasks.web.answers import DataoneError
from tasks.web.subjects import Subject, of_text

SUBJECT = "subject"
"""The name in the state of an ASGI scope under which the server gives the subject of a certificate that it checked."""


class Callers:
    """`proxies`: the addresses of proxies that end TLS and say the subject, in the text of RFC 2253, in `header`; or of
    their networks. A name is no address.
    """

    def __init__(self, header: str = "", proxies: Iterable[str] = ()) -> None:
        self._header, self._proxies = header, [ip_network(address) for address in proxies]

    def caller(self, request: Request, listed: Mapping[str, Listed], tokens: Mapping[str, str]) -> str:
        """The id of the member. Raises DataoneError. `tokens`: the members by the SHA-256 of their tokens."""
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
        """Empty where nobody whom we believe says one."""
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
