"""Client of a member node's REST API. It trusts no answer: it limits the size, the time and the redirects of each.

Each error is a MemberNodeError that names the member, the address and the status. A client has a pool of at most
TASKS_CONNECTIONS connections; several threads may call its methods.
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
NOT_THERE = (404, 410)
"""The HTTP statuses for an object that the member does not have, so that a retry would not help."""


class MemberNodeError(Exception):
    """A request to a member failed. `status`: the HTTP status of the answer; None: there was no answer."""

    def __init__(self, message: str, member: str, url: str, status: int | None = None) -> None:
        super().__init__(message, member, url, status)
        self.message, self.member, self.url, self.status = message, member, url, status

    def __str__(self) -> str:
        return f"{self.member}: {self.message} ({self.url})"


class MemberUnreachable(MemberNodeError):
    """The connection to the member failed or broke, or the client refused a redirect."""


class MemberTimedOut(MemberNodeError):
    """The member did not answer within the time limit of the request."""


class MemberRefused(MemberNodeError):
    """The member answered with status 4xx: the service may not read the resource, or the resource does not exist."""


class Failing(MemberNodeError):
    """The member answered with status 5xx, or with a status that HTTP does not define."""


class Busy(MemberNodeError):
    """An answer of 429 or 503 without a Retry-After, or whose Retry-After is too long."""


class AsksToWait(MemberNodeError):
    """An answer of 429 or 503 with a Retry-After: the member is up, and wants no request for `seconds`."""

    def __init__(self, message: str, member: str, url: str, status: int | None = None, seconds: float = 1.0) -> None:
        super().__init__(message, member, url, status)
        self.args = message, member, url, status, seconds
        self.seconds = seconds


class TooLarge(MemberNodeError):
    """The answer of the member has more bytes than allowed."""


class Malformed(MemberNodeError):
    """The answer does not fit the request. `total`: the number of objects that a listing with invalid XML gives."""

    total: int | None = None


class MemberNode:
    """A client for one member. Raises MemberUnreachable where the member's row of TASKS_ACCESS cannot be used."""

    def __init__(self, member: Member, settings: Settings) -> None:
        self.member = member
        self._settings = settings
        self._base = f"{member.base_url}/{member.api}"
        self._closed = Event()
        self._reach = settings.access_to(member.identifier)
        context, proxy = self._access(self._reach)
        logging.getLogger("httpx").setLevel(logging.WARNING)  # at INFO, httpx logs each request
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
            # Ask for no compression: a small compressed answer could become enormous in memory.
            headers={"Accept": "text/xml, application/xml", "Accept-Encoding": "identity"},
        )

    def _access(self, access: Access) -> tuple[ssl.SSLContext, httpx.Proxy | None]:
        """The TLS context and the proxy of the member's row in TASKS_ACCESS; None: no proxy.

        Raises MemberUnreachable where the proxy, or a file, in that row cannot be used.
        """
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
        """Close the connections. Threads that wait in `pause` raise MemberUnreachable."""
        self._closed.set()
        self._http.close()

    def pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise MemberUnreachable("the client was closed", self.member.identifier, self._base)

    def objects(
        self, since: datetime, until: datetime | None = None, start: int | None = None, count: int | None = None
    ) -> Listing:
        """List the objects that changed at or after `since` and before `until`, in the member's own order.

        `start`, `count`: offset and number of the entries. None leaves a parameter out of the request.
        """
        query = {
            "fromDate": instants.brief(since),
            "toDate": None if until is None else instants.brief(until),
            "start": start,
            "count": count,
        }
        params = {name: str(value) for name, value in query.items() if value is not None}
        with (
            self._naming_member(url := self._url("/object", params)),
            closing(self._chunks(url, self._settings.listing_limit)) as chunks,
        ):
            return read_listing(chunks)

    def system_metadata(self, pid: str) -> SystemMetadata:
        url = self._url(f"/meta/{_segment(pid)}")
        with self._naming_member(url):
            return read_system_metadata(b"".join(self._chunks(url, self._settings.metadata_limit)), pid)

    def ping(self, within: float | None = None) -> None:
        """Ping the member. `within`: seconds for the answer; None: the time limit of all requests."""
        self._body("/monitor/ping", within=within)

    def describe(self) -> Member:
        """Request the description that the member serves of itself."""
        url = self._url("/node")
        with self._naming_member(url):
            try:
                return Member.from_xml(safe_xml.parse(self._body("/node", self._settings.metadata_limit)))
            except ValidationError as error:
                raise Unreadable(f"not the description of a node: {error.error_count()} errors") from error

    def report_error(self, pid: str, description: str) -> None:
        """Report to the member, by its API for errors, that one of its objects could not be synchronized."""
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
        with self._naming_member(url):
            files = {"message": ("message", body, "text/xml")}
            self._close(self._send("POST", url, files=files, within=self._settings.connect_timeout))

    def _url(self, path: str, params: Mapping[str, str] | None = None) -> str:
        return str(httpx.URL(self._base + path, params=params)) if params else self._base + path

    def _body(self, path: str, limit: int = SMALL, within: float | None = None) -> bytes:
        url = self._url(path)
        with self._naming_member(url):
            return b"".join(self._chunks(url, limit, within))

    def _chunks(self, url: str, limit: int, within: float | None = None) -> Generator[bytes, None, None]:
        most = within or self._settings.request_timeout
        deadline = time.monotonic() + most
        response = self._send("GET", url, within=within)
        try:
            # Read the raw headers: a look-up by name would decode all headers, in each of a hundred thousand answers.
            if any(
                name.lower() == b"content-encoding" and value != b"identity" for name, value in response.headers.raw
            ):
                raise Unreadable("the answer is compressed, though the client asked for no compression")
            size = 0
            for chunk in response.iter_raw():
                size += len(chunk)
                if size > limit:
                    raise TooLarge(f"answers with more than {limit} bytes", self.member.identifier, url, 200)
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"the answer was not complete after {most:g} s")
                yield chunk
        finally:
            self._close(response)

    def _send(self, method: str, url: str, files: Files | None = None, within: float | None = None) -> httpx.Response:
        """Send a request. Returns an answer of status 2xx, which the caller must read and close.

        `within`: seconds for the answer; None: the usual timeouts.
        """
        timeout = httpx.USE_CLIENT_DEFAULT if within is None else httpx.Timeout(within)
        request = self._http.build_request(method, url, files=files, timeout=timeout)
        response = self._http.send(request, stream=True)
        if response.is_success:
            return response
        try:
            raise self._error_of(response, url)
        finally:
            self._close(response)

    def _close(self, response: httpx.Response) -> None:
        response.close()
        if self._closed.is_set():
            # The client was closed while this connection was being made, so the pool has not closed it.
            response.extensions["network_stream"].close()

    def _error_of(self, response: httpx.Response, url: str) -> MemberNodeError:
        status, wait = response.status_code, _retry_after(response)
        if wait is not None and wait <= self._settings.retry_after_limit:
            message = f"answers {status}{_error_message(response)}, and asks to wait for {wait:.0f} s"
            return AsksToWait(message, self.member.identifier, url, status, wait)
        kind = Busy if status in (429, 503) else MemberRefused if 400 <= status < 500 else Failing
        return kind(f"answers {status}{_error_message(response)}", self.member.identifier, url, status)

    @contextmanager
    def _naming_member(self, url: str) -> Iterator[None]:
        """Turn any error in the `with` block into a MemberNodeError that names the member and `url`."""
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
    """Refuse a redirect to another host, which would get the client certificate, or from https to http."""
    if not response.has_redirect_location:
        return
    here = response.request.url
    there = here.join(response.headers["location"])
    if there.host != here.host:
        raise httpx.RemoteProtocolError(f"it redirects to another host, {there.host!r}; name that one as its address")
    if here.scheme == "https" and there.scheme != "https":
        raise httpx.RemoteProtocolError(f"it redirects from https to http, to {there}")


def _segment(pid: str) -> str:
    """Encode a pid as one segment of a URL path. Dots alone are encoded, too, since servers resolve `.` and `..`."""
    return quote(pid, safe="") if pid.strip(".") else pid.replace(".", "%2E")


def _retry_after(response: httpx.Response) -> float | None:
    """The seconds to wait, from either form of the header Retry-After; None: the answer does not ask for a pause."""
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


def _error_message(response: httpx.Response) -> str:
    """The name and the message in the answer, if that is an error document of DataONE; else empty."""
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
    """The proxy at an address. Raises ValueError, whose message hides the address, since it may contain a password."""
    try:
        return httpx.Proxy(split_url(address).geturl())
    except (ValueError, httpx.InvalidURL):
        raise ValueError("the proxy is not a percent-encoded address like http://user:password@host:port") from None
