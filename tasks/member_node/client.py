"""Client of a member node's REST API: it trusts no answer, and bounds its size, its time and its redirects.

Each error is a MemberNodeError that names the member, the address and the status. One client is one bounded set of
connections; several threads may call its methods.
"""

import email.utils
import logging
import re
import ssl
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from threading import Event
from typing import Self
from urllib.parse import quote

import httpx
from lxml import etree
from pydantic import ValidationError

from coordinator.extending import split_url
from tasks import instants
from tasks.member_node import safe_xml, tls
from tasks.member_node.member import Member
from tasks.member_node.objects import Listing, SpoiltListing, SystemMetadata, read_listing, read_system_metadata
from tasks.member_node.safe_xml import Unreadable
from tasks.settings import Access, Settings

Files = Mapping[str, tuple[str, bytes, str]]

SMALL = 64 * 1024
BUSY_TRIES = 3
NOT_THERE = (404, 410)
"""The statuses of an object that the member does not have: there is no use in another try."""


class MemberNodeError(Exception):
    """Something is wrong with a member. `status` is that of HTTP; None where there was no answer."""

    def __init__(self, message: str, member: str, url: str, status: int | None = None) -> None:
        super().__init__(message, member, url, status)
        self.message, self.member, self.url, self.status = message, member, url, status

    def __str__(self) -> str:
        return f"{self.member}: {self.message} ({self.url})"


class MemberUnreachable(MemberNodeError):
    """There is no connection, it broke, or a redirect led nowhere."""


class MemberTimedOut(MemberNodeError):
    """The member took too long."""


class MemberRefused(MemberNodeError):
    """An answer of 4xx: the service may not read this, or it is not there."""


class Failing(MemberNodeError):
    """An answer of 5xx, or of a status that HTTP does not define."""


class Busy(MemberNodeError):
    """An answer of 429 or 503, whose pause is too long or did not help."""


class TooLarge(MemberNodeError):
    """The answer is longer than allowed."""


class Malformed(MemberNodeError):
    """The answer does not fit the question. `total`: of a listing that an entry has spoilt, as it says it."""

    total: int | None = None


class MemberNode:
    """Raises MemberUnreachable at once where the member's own settings cannot be used."""

    def __init__(self, member: Member, settings: Settings) -> None:
        self.member = member
        self._settings = settings
        self._base = f"{member.base_url}/{member.api}"
        self._closed = Event()
        self._reach = settings.access_to(member.identifier)
        context, proxy = self._access(self._reach)
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each request
        self._http = httpx.Client(
            verify=context,
            proxy=proxy,
            trust_env=False,
            follow_redirects=True,
            max_redirects=settings.redirects,
            event_hooks={"response": [_check_redirect]},
            limits=httpx.Limits(max_connections=settings.connections, max_keepalive_connections=settings.connections),
            timeout=httpx.Timeout(
                settings.read_timeout, connect=settings.connect_timeout, pool=settings.request_timeout
            ),
            # A compressed answer could be small on the wire and enormous here.
            headers={"Accept": "text/xml, application/xml", "Accept-Encoding": "identity"},
        )

    def _access(self, access: Access) -> tuple[ssl.SSLContext, httpx.Proxy | None]:
        """Raises MemberUnreachable where the member's proxy, or a file in its TASKS_ACCESS, cannot be used."""
        try:
            return tls.context(access), None if access.proxy is None else _proxy(access.proxy)
        except (OSError, ValueError) as error:
            files = access.model_dump(include={"ca_bundle", "client_cert", "client_key"}, exclude_none=True)
            named = ", ".join(f"{name} {path}" for name, path in files.items()) or "its proxy"
            message = f"its settings in TASKS_ACCESS cannot be used: {error} ({named})"
            raise MemberUnreachable(message, self.member.identifier, self._base) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Threads that wait for this member stop waiting."""
        self._closed.set()
        self._http.close()

    def pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise MemberUnreachable("the client was closed", self.member.identifier, self._base)

    def objects(
        self, since: datetime, until: datetime | None = None, start: int | None = None, count: int | None = None
    ) -> Listing:
        """Objects changed at or after `since` and before `until`, in the member's own order."""
        query = {
            "fromDate": instants.brief(since),
            "toDate": None if until is None else instants.brief(until),
            "start": start,
            "count": count,
        }
        params = {name: str(value) for name, value in query.items() if value is not None}
        with (
            self._naming(url := self._url("/object", params)),
            closing(self._chunks(url, self._settings.listing_limit)) as chunks,
        ):
            return read_listing(chunks)

    def system_metadata(self, pid: str) -> SystemMetadata:
        url = self._url(f"/meta/{_segment(pid)}")
        with self._naming(url):
            return read_system_metadata(b"".join(self._chunks(url, self._settings.metadata_limit)), pid)

    def ping(self, within: float | None = None) -> None:
        """Ping the member. `within`: seconds for the answer; then a busy member gets no second try."""
        self._body("/monitor/ping", within=within)

    def describe(self) -> Member:
        """The member as it describes itself."""
        url = self._url("/node")
        with self._naming(url):
            try:
                return Member.from_xml(safe_xml.parse(self._body("/node", self._settings.metadata_limit)))
            except ValidationError as error:
                raise Unreadable(f"not the description of a node: {error.error_count()} errors") from error

    def report_error(self, pid: str, description: str) -> None:
        """Tell the member that one of its objects could not be synchronized. It gets as long as for a ping."""
        error = etree.Element(
            "error",
            name="SynchronizationFailed",
            errorCode="0",
            detailCode="6001",
            identifier=pid,
            nodeId=self._settings.node_id,
        )
        etree.SubElement(error, "description").text = re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd]", "?", description)
        body = etree.tostring(error, xml_declaration=True, encoding="UTF-8")
        url = self._url("/error")
        with self._naming(url):
            files = {"message": ("message", body, "text/xml")}
            self._let_go(self._send("POST", url, files=files, within=self._settings.connect_timeout))

    def _url(self, path: str, params: Mapping[str, str] | None = None) -> str:
        return str(httpx.URL(self._base + path, params=params)) if params else self._base + path

    def _body(self, path: str, limit: int = SMALL, within: float | None = None) -> bytes:
        url = self._url(path)
        with self._naming(url):
            return b"".join(self._chunks(url, limit, within))

    def _chunks(self, url: str, limit: int, within: float | None = None) -> Generator[bytes, None, None]:
        most = within or self._settings.request_timeout
        deadline = time.monotonic() + most
        response = self._send("GET", url, within=within)
        try:
            # Raw headers: a look-up by name would decode all of them, for each of a hundred thousand answers.
            if any(
                name.lower() == b"content-encoding" and value != b"identity" for name, value in response.headers.raw
            ):
                raise Unreadable("it is compressed, though the client asked for no compression")
            size = 0
            for chunk in response.iter_raw():
                size += len(chunk)
                if size > limit:
                    raise TooLarge(f"answers with more than {limit} bytes", self.member.identifier, url, 200)
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"the answer was not complete after {most:g} s")
                yield chunk
        finally:
            self._let_go(response)

    def _send(self, method: str, url: str, files: Files | None = None, within: float | None = None) -> httpx.Response:
        """An answer of 2xx, to be read and closed. Where a member is busy and says for how long, ask it again."""
        timeout = httpx.USE_CLIENT_DEFAULT if within is None else httpx.Timeout(within)
        for tries_left in reversed(range(BUSY_TRIES if within is None else 1)):
            request = self._http.build_request(method, url, files=files, timeout=timeout)
            response = self._http.send(request, stream=True)
            if response.is_success:
                return response
            try:
                pause = _retry_after(response)
                if pause is None or pause > self._settings.retry_after_limit or not tries_left:
                    raise self._refusal(response, url)
            finally:
                self._let_go(response)
            self.pause(pause)
        raise AssertionError("the last try returned or raised")

    def _let_go(self, response: httpx.Response) -> None:
        response.close()
        if self._closed.is_set():
            # The pool does not know a connection that was still being made when the pool was closed.
            response.extensions["network_stream"].close()

    def _refusal(self, response: httpx.Response, url: str) -> MemberNodeError:
        status = response.status_code
        kind = Busy if status in (429, 503) else MemberRefused if 400 <= status < 500 else Failing
        return kind(f"answers {status}{_complaint(response)}", self.member.identifier, url, status)

    @contextmanager
    def _naming(self, url: str) -> Iterator[None]:
        """Turn any error into one that names the member."""
        member_id = self.member.identifier
        try:
            yield
        except httpx.TimeoutException as error:
            raise MemberTimedOut(f"took too long: {str(error) or type(error).__name__}", member_id, url) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = tls.trouble(error, self._reach) or str(error) or type(error).__name__
            raise MemberUnreachable(f"cannot be reached: {why}", member_id, url) from error
        except Unreadable as error:
            malformed = Malformed(f"answers with something unreadable: {error}", member_id, url, 200)
            malformed.total = error.total if isinstance(error, SpoiltListing) else None
            raise malformed from error


def _check_redirect(response: httpx.Response) -> None:
    """Refuse a redirect to another host, which would see the client certificate, and one out of TLS."""
    if not response.has_redirect_location:
        return
    here = response.request.url
    there = here.join(response.headers["location"])
    if there.host != here.host:
        raise httpx.RemoteProtocolError(f"it redirects to another host, {there.host!r}; name that one as its address")
    if here.scheme == "https" and there.scheme != "https":
        raise httpx.RemoteProtocolError(f"it redirects out of TLS, to {there}")


def _segment(pid: str) -> str:
    """A pid as one segment of a path. A server would take a pid of dots alone for a step up."""
    return quote(pid, safe="") if pid.strip(".") else pid.replace(".", "%2E")


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds, from either form of the header. None where the answer does not ask for a pause."""
    text = response.headers.get("retry-after", "").strip()
    if response.status_code not in (429, 503) or not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        then = instants.utc(email.utils.parsedate_to_datetime(text))
    except ValueError:
        return None
    return max(0.0, (then - instants.now()).total_seconds())


def _complaint(response: httpx.Response) -> str:
    """The message in DataONE's error document, if the answer is one."""
    body = b""
    try:
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > SMALL:
                return ""
        root = safe_xml.parse(body)
    except (httpx.HTTPError, Unreadable):
        return ""
    description = " ".join((safe_xml.value(root, "description") or "").split())[:500]
    return f" {root.get('name', '')}: {description}" if root.tag == "error" else ""


def _proxy(address: str) -> httpx.Proxy:
    """Raises ValueError, which tells nothing of the address: it may have a password."""
    try:
        return httpx.Proxy(split_url(address).geturl())
    except (ValueError, httpx.InvalidURL):
        raise ValueError("the proxy is no address such as http://user:password@host:port, percent-encoded") from None
