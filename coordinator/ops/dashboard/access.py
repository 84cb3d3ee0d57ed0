"""Authentication, CSRF protection and security headers of the dashboard. Only requests that pass this module's checks
reach the app that makes the pages.

Without an `auth` callable, people log in with the token that is printed at the start, as for Jupyter, and the Host
header must name this machine, so that no other site can read the pages through a DNS name of that site (DNS rebinding).
A POST needs an Origin or Sec-Fetch-Site header of the dashboard itself, and a form token that belongs to a cookie of
the browser; a program sends the dashboard's token as `Authorization: Bearer …` instead. This module lets viewers
through: the function of each verb refuses them (`coordinator.core.author`).
"""

from __future__ import annotations

import hmac
import inspect
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.core.author import Author, acting
from coordinator.core.threads import connections_of_a_loop_closed
from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable
from coordinator.ops.dashboard.extend import values_of
from coordinator.ops.dashboard.login import LASTS, Session, Sessions, TokenLogin, named

Auth = Callable[[Request], "Author | Awaitable[Author | None] | None"]
"""Authenticates a request: returns the Author, or None for an unknown user. For `dashboard(auth=…)`."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
VISIT = "coordinator.visit"  # name of the Visit in the ASGI scope of a request
MOST_BODY = 64 * 1024
_MOST_FIELDS = 100
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send forms with `Origin: null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(slots=True)
class Visit:
    """What the Guard knows of a request: its author, the token for the forms on its page, and the values of the form
    that it sent. `session`: that of a login with the token; None for others. `renewed`: the new value of its cookie, ""
    where it stays.
    """

    author: Author
    token: str
    form: Mapping[str, str] = field(default_factory=dict)
    session: Session | None = None
    renewed: str = ""


def from_proxy(header: str, proxies: Iterable[str], operators: Iterable[str] = ()) -> Auth:
    """Make an `auth` that takes the author's name from an HTTP header, if the request comes from one of the `proxies`.

    `proxies`: IP addresses. `operators`: the names that may act; all others are viewers. Empty: everybody may act.
    """
    trusted, acts = frozenset(proxies), frozenset(operators)

    def auth(request: Request) -> Author | None:
        name = request.headers.get(header, "")
        known = name and request.client is not None and request.client.host in trusted
        return Author(name, "operator" if not acts or name in acts else "viewer") if known else None

    return auth


class Guard:
    """The ASGI app in front of the dashboard: checks each request and passes it on to `app`, which makes the pages.

    `login`: a TokenLogin, or the `auth` of the user. `hosts`: names that the Host header may have; `*` = any. `ask`:
    makes the login page from request, message and status. `mounts`: path -> ASGI app that is served at the path
    without any check of this class. `sessions`: knows which sessions of a TokenLogin were ended.
    """

    def __init__(
        self, app: ASGIApp, login: TokenLogin | Auth, hosts: Iterable[str],
        ask: Callable[[Request, str, int], Response], mounts: Mapping[str, ASGIApp], sessions: Sessions,
    ) -> None:  # fmt: skip
        self._sessions = sessions
        self._app, self._login, self._hosts, self._ask, self._mounts = app, login, frozenset(hosts), ask, mounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            raise RuntimeError(f"the dashboard serves HTTP, not {scope['type']}")
        request = Request(scope, receive)
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        for at, beside in self._mounts.items():
            if path.startswith(f"{at}/"):
                return await beside(scope, receive, send)
        cookie = request.cookies.get("coordinator_form", "")
        is_file = path.startswith("/static/")
        fresh = "" if 20 < len(cookie) < 100 else secrets.token_urlsafe(24)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "max-age=300" if is_file else "no-store")
                if fresh and not is_file:
                    own = _with_cookie(Response(), request, "coordinator_form", fresh)
                    headers.append("Set-Cookie", own.headers["Set-Cookie"])
                visit: Visit | None = scope.get(VISIT)
                if visit and visit.renewed and isinstance(self._login, TokenLogin):
                    own = _with_cookie(Response(), request, self._login.cookie, visit.renewed, LASTS)
                    headers.append("Set-Cookie", own.headers["Set-Cookie"])
            await send(message)

        answer, replay = await self._checked(request, path, is_file, fresh or cookie)
        if answer is not None:
            await answer(scope, receive, guarded)
            return
        with acting(scope[VISIT].author):
            await self._app(scope, replay, guarded)

    async def _checked(
        self, request: Request, path: str, is_file: bool, cookie: str
    ) -> tuple[Response | None, Receive]:  # fmt: skip
        """Check a request. Returns the response that refuses it or logs in, or None if it may pass; and a `receive` for
        the app, which gives the body again if it was read.
        """
        nobody: Receive = request.receive
        name = _host(f"//{request.headers.get('host', '')}")
        if name is None or not self._hosts & {"*", name.hostname}:
            return PlainTextResponse(
                "The Host header is no known name: start the dashboard with --host NAME\n", 421
            ), nobody
        if is_file:
            request.scope[VISIT] = Visit(Author("", "viewer"), "")
            return None, nobody
        if request.method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET, HEAD and POST are allowed\n", 405, {"Allow": "GET, HEAD, POST"}), nobody
        body = await _body(request)
        if body is None:
            return PlainTextResponse(f"The body of a request has at most {MOST_BODY} bytes\n", 413), nobody
        form = _form(request, body)
        if request.method == "POST" and (wrong := _foreign(request)):
            return PlainTextResponse(f"{wrong}\n", 403), nobody
        if isinstance(self._login, TokenLogin) and (answer := await self._logged_in(self._login, request, path, form)):
            return answer, nobody
        if (refusal := await self._admitted(request, form, cookie)) is not None:
            return refusal, nobody
        return None, _replay(body, request.receive)

    async def _admitted(self, request: Request, form: Mapping[str, str], cookie: str) -> Response | None:
        """Find who asks, and keep it as the Visit of the request. Returns the response that refuses the request."""
        author, session = await self._who(request)
        if author is None:
            return self._ask(request, "", 401)
        bearer = request.headers.get("authorization", "").lower().startswith("bearer ")
        visit = Visit(author, _form_token(cookie, author), form, session)
        given = form.get("_token", request.headers.get("x-coordinator-token", ""))
        is_own = hmac.compare_digest(given.encode(), visit.token.encode()) if cookie else False
        if request.method == "POST" and not is_own and not (bearer and isinstance(self._login, TokenLogin)):
            return PlainTextResponse("This form is not the dashboard's, or too old: load its page again\n", 403)
        name = form.get("_name", "")
        if session and not session.name and name.strip() and isinstance(self._login, TokenLogin):
            try:
                session = named(session, name)
            except InvalidJob as error:
                return PlainTextResponse(f"{error}\n", 400)
            author = Author(session.name, author.role)
            visit = Visit(author, _form_token(cookie, author), form, session, self._login.text(session))
        request.scope[VISIT] = visit
        return None

    async def _who(self, request: Request) -> tuple[Author | None, Session | None]:
        """Return the author of a request, None for nobody; and the session, if it is one of a TokenLogin. Where Redis
        cannot say whether the session was ended, its author may not act.
        """
        author = await _author(self._login, request)
        session = self._login.session_of(request) if isinstance(self._login, TokenLogin) else None
        if author and session:
            try:
                with acting(author):
                    ended = await self._sessions.has_ended(session)
            except (StoreUnavailable, StoreRefused, TimeoutError):
                return Author(author.name, "viewer"), session
            return (None, None) if ended else (author, session)
        return author, session

    async def _logged_in(
        self, login: TokenLogin, request: Request, path: str, form: Mapping[str, str]
    ) -> Response | None:  # fmt: skip
        """Return the response to a login or a logout; None for any other request."""
        if request.method == "POST" and path == "/logout":
            return await self._logged_out(login, request)
        sent = request.method == "POST" and path == "/login"
        token = form.get("token") if sent else request.query_params.get("token")
        if token is None:
            return None
        if not login.is_right(token):
            return self._ask(request, "This is not the token.", 401)
        try:
            session = login.begin(form.get("name", "") if sent else "")
        except InvalidJob as error:
            return self._ask(request, f"{error}.", 400)
        answer = RedirectResponse(_after_login(request, form), 303)
        return _with_cookie(answer, request, login.cookie, login.text(session), LASTS)

    async def _logged_out(self, login: TokenLogin, request: Request) -> Response:
        """End the session of a request, at the server and in the browser."""
        answer: Response = RedirectResponse(request.scope.get("root_path", "") + "/", 303)
        if session := login.session_of(request):
            try:
                await self._sessions.end(session)
            except (StoreUnavailable, StoreRefused, TimeoutError) as error:
                text = "This browser is logged out, but a copy of its cookie stays good, since Redis did not note it"
                answer = PlainTextResponse(f"{text}: {error}\n", 503)
        return _with_cookie(answer, request, login.cookie, "", 0)


async def _author(login: TokenLogin | Auth, request: Request) -> Author | None:
    found = login(request)
    if not inspect.isawaitable(found):
        return found
    async with connections_of_a_loop_closed():
        return await found


def _after_login(request: Request, form: Mapping[str, str]) -> str:
    """Return the path of the page that was asked for before the login, without the token; never another site's."""
    root: str = request.scope.get("root_path", "")
    if request.method == "POST":
        to = form.get("to", "")
        return root + (to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/")
    url = request.url.remove_query_params("token")
    return url.path + (f"?{url.query}" if url.query else "")


def _host(url: str) -> SplitResult | None:
    """Split a URL into its parts; None if it is invalid."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if the port is invalid
    except ValueError:
        return None
    return parts


def _foreign(request: Request) -> str:
    """Return what is wrong with the origin of a POST; "" if it comes from a page of the dashboard or from a program."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site != "same-origin":
        return "This request comes from another site"
    if origin is not None and ((place := _host(origin)) is None or place.netloc != request.headers.get("host")):
        return "This request comes from another origin"
    if site is None and origin is None and "authorization" not in request.headers:
        return "A browser must send Origin or Sec-Fetch-Site with a form; a program sends Authorization: Bearer"
    return ""


def _form_token(cookie: str, author: Author) -> str:
    return hmac.new(cookie.encode(), author.name.encode(), "sha256").hexdigest()


async def _body(request: Request) -> bytes | None:
    """Read the body of a POST; b"" for other methods, None if it is too long."""
    body = b""
    if request.method != "POST":
        return body
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY:
            return None
    return body


def _form(request: Request, body: bytes) -> Mapping[str, str]:
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        return {}
    try:
        return values_of(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return {}


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` for ASGI that gives this body again, and after it what the server sends (a disconnect)."""
    parts = [body]

    async def again() -> Message:
        return {"type": "http.request", "body": parts.pop(), "more_body": False} if parts else await receive()

    return again


def _with_cookie(answer: Response, request: Request, name: str, value: str, lasts: int | None = None) -> Response:
    path = (request.scope.get("root_path", "") or "") + "/"
    answer.set_cookie(name, value, lasts, path=path, secure=request.url.scheme == "https", httponly=True)
    return answer
