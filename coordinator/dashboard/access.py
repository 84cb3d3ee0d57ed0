"""Who may come in, and what each request and answer must carry. The app behind it serves only what passes here.

Without an `auth` callable, the token that is printed at the start lets people in, as Jupyter's does, and the Host
header must name this machine, so that no page of another site reads ours through a name of its own (DNS rebinding).
Each POST needs an Origin or Sec-Fetch-Site that is ours, and a token that belongs to a cookie of the browser; a program
sends the dashboard's token as `Authorization: Bearer …` instead. A viewer's acts are refused where they are done
(`coordinator.author`), not here.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.author import Author, acting
from coordinator.errors import SettingsError
from coordinator.threads import connections_of_a_loop_closed

Auth = Callable[[Request], "Author | Awaitable[Author | None] | None"]
"""Who asks: None = nobody whom we know. `coordinator.dashboard.dashboard` takes one."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
VISIT = "coordinator.visit"  # in the ASGI scope
MOST_BODY = 64 * 1024
_MOST_FIELDS = 100
_SESSION = 7 * 86400
_LEAST = 16  # characters of a token
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
    """What is known of a request: its author, the token for its forms, and the values of a form that was sent."""

    author: Author
    token: str
    form: Mapping[str, str] = field(default_factory=dict)


def address(request: HTTPConnection) -> str:
    return request.client.host if request.client else "this machine"


def from_proxy(header: str, proxies: Iterable[str], operators: Iterable[str] = ()) -> Auth:
    """Take the author's name from a header that one of these proxies (addresses) sets, and nobody else.

    `operators`: the names that may act; all others are viewers. Without any, everybody may act.
    """
    trusted, acts = frozenset(proxies), frozenset(operators)

    def auth(request: Request) -> Author | None:
        name = request.headers.get(header, "")
        known = name and request.client is not None and request.client.host in trusted
        return Author(name, "operator" if not acts or name in acts else "viewer") if known else None

    return auth


class TokenLogin:
    """Lets in who has the token: in the URL once, in the form, in the cookie that follows, or as a bearer.

    Raises SettingsError for a token that somebody may guess: nothing slows those who try, since the right one may come
    from behind the same address.
    """

    def __init__(self, token: str) -> None:
        if len(token) < _LEAST:
            raise SettingsError(f"the dashboard's token has {len(token)} characters: give {_LEAST} at least, or none")
        self._key = hashlib.sha256(token.encode()).digest()
        self.cookie = f"coordinator_{self._key.hex()[:8]}"  # a host's cookies are those of all its ports

    def __call__(self, request: Request) -> Author | None:
        who = Author(f"unknown from {address(request)}")
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return who if self.is_right(bearer) else None
        return who if self._is_session(request.cookies.get(self.cookie, "")) else None

    def is_right(self, token: str) -> bool:
        return hmac.compare_digest(hashlib.sha256(token.strip().encode()).digest(), self._key)

    def session(self) -> str:
        ends = str(int(time.time()) + _SESSION)
        return f"{ends}.{self._sign(ends)}"

    def _is_session(self, value: str) -> bool:
        ends, _, signed = value.partition(".")
        is_ours = hmac.compare_digest(signed.encode(), self._sign(ends).encode())
        return is_ours and ends.isdigit() and int(ends) > time.time()

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode(errors="replace"), "sha256").hexdigest()


class Guard:
    """The door of the dashboard: an ASGI app around the one that shows pages.

    `login`: the token's, or the user's own. `hosts`: names that the Host header may have; `*` = any. `ask`: shows the
    page that wants a token. `mounts`: apps that stand beside it, by their paths: they have a door of their own.
    """

    def __init__(
        self, app: ASGIApp, login: TokenLogin | Auth, hosts: Iterable[str],
        ask: Callable[[Request, str, int], Response], mounts: Mapping[str, ASGIApp],
    ) -> None:  # fmt: skip
        self._app, self._login, self._hosts, self._ask, self._mounts = app, login, frozenset(hosts), ask, mounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            raise RuntimeError(f"the dashboard has no {scope['type']}")
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
        """Check a request. Returns the answer that refuses it, or None, and the body that was sent."""
        nobody: Receive = request.receive
        name = _host(f"//{request.headers.get('host', '')}")
        if name is None or not self._hosts & {"*", name.hostname}:
            return PlainTextResponse("This Host is not the dashboard's: start it with --host NAME\n", 421), nobody
        if is_file:
            request.scope[VISIT] = Visit(Author("", "viewer"), "")
            return None, nobody
        if request.method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("GET and POST\n", 405, {"Allow": "GET, HEAD, POST"}), nobody
        body = await _body(request)
        if body is None:
            return PlainTextResponse(f"A request has at most {MOST_BODY} bytes\n", 413), nobody
        form = _form(request, body)
        if request.method == "POST" and (wrong := _foreign(request)):
            return PlainTextResponse(f"{wrong}\n", 403), nobody
        if isinstance(self._login, TokenLogin) and (answer := self._logged_in(self._login, request, path, form)):
            return answer, nobody
        if (author := await _author(self._login, request)) is None:
            return self._ask(request, "", 401), nobody
        bearer = request.headers.get("authorization", "").lower().startswith("bearer ")
        visit = Visit(author, _form_token(cookie, author), form)
        given = form.get("_token", request.headers.get("x-coordinator-token", ""))
        is_own = hmac.compare_digest(given.encode(), visit.token.encode()) if cookie else False
        if request.method == "POST" and not is_own and not (bearer and isinstance(self._login, TokenLogin)):
            return PlainTextResponse("This form is not the dashboard's, or too old: load its page again\n", 403), nobody
        request.scope[VISIT] = visit
        return None, _replay(body, request.receive)

    def _logged_in(
        self, login: TokenLogin, request: Request, path: str, form: Mapping[str, str]
    ) -> Response | None:  # fmt: skip
        """The answer to a login or a logout, else None."""
        if request.method == "POST" and path == "/logout":
            answer: Response = RedirectResponse(request.scope.get("root_path", "") + "/", 303)
            return _with_cookie(answer, request, login.cookie, "", 0)
        sent = request.method == "POST" and path == "/login"
        token = form.get("token") if sent else request.query_params.get("token")
        if token is None:
            return None
        if not login.is_right(token):
            return self._ask(request, "This is not the token.", 401)
        answer = RedirectResponse(_after_login(request, form), 303)
        return _with_cookie(answer, request, login.cookie, login.session(), _SESSION)


async def _author(login: TokenLogin | Auth, request: Request) -> Author | None:
    found = login(request)
    if not inspect.isawaitable(found):
        return found
    async with connections_of_a_loop_closed():
        return await found


def _after_login(request: Request, form: Mapping[str, str]) -> str:
    """The page that was asked for, without the token; always one of ours."""
    root: str = request.scope.get("root_path", "")
    if request.method == "POST":
        to = form.get("to", "")
        return root + (to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/")
    url = request.url.remove_query_params("token")
    return url.path + (f"?{url.query}" if url.query else "")


def _host(url: str) -> SplitResult | None:
    """The parts of a URL; None of one that is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises, too
    except ValueError:
        return None
    return parts


def _foreign(request: Request) -> str:
    """What is wrong with where a POST comes from; "" where it comes from our own page, or from a program."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site != "same-origin":
        return "This request comes from another site"
    if origin is not None and ((place := _host(origin)) is None or place.netloc != request.headers.get("host")):
        return "This request comes from another origin"
    if site is None and origin is None and "authorization" not in request.headers:
        return "A form needs a browser that says Origin or Sec-Fetch-Site; a program sends Authorization: Bearer"
    return ""


def _form_token(cookie: str, author: Author) -> str:
    return hmac.new(cookie.encode(), author.name.encode(), "sha256").hexdigest()


async def _body(request: Request) -> bytes | None:
    """The body; None where it is too long."""
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
        return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return {}


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body again, then wait for the end of the connection."""
    parts = [body]

    async def again() -> Message:
        return {"type": "http.request", "body": parts.pop(), "more_body": False} if parts else await receive()

    return again


def _with_cookie(answer: Response, request: Request, name: str, value: str, lasts: int | None = None) -> Response:
    path = (request.scope.get("root_path", "") or "") + "/"
    answer.set_cookie(name, value, lasts, path=path, secure=request.url.scheme == "https", httponly=True)
    return answer
