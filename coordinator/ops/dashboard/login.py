"""The login with the dashboard's token, and the sessions that it begins.

A session is a signed cookie, which names who acts; without a name, the form of the first act asks for it. The names are
what people say they are: whoever has the token may take any. A logout is noted in Redis until the cookie would have
ended, so that all processes of the dashboard refuse the cookie from then on.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection, Request

from coordinator.core.author import Author
from coordinator.errors import InvalidJob, SettingsError

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator

LASTS = 7 * 86400  # seconds of a session
MOST_NAME = 80  # characters of a name
_LEAST = 16  # characters that a login token has at least
_KEPT = LASTS + 86400  # seconds for which a logout is kept: longer than any cookie, also of a host with a slow clock


@dataclass(frozen=True, slots=True)
class Session:
    """What the cookie of a login says. `ends`: seconds since the epoch. `name`: of its person, "" until it is given."""

    id: str
    ends: int
    name: str


class TokenLogin:
    """Authenticates requests by the dashboard's token: in the URL, in the login form, in the cookie that a login sets,
    or as a bearer token.

    Raises SettingsError for a token that is short enough to be guessed. Repeated guesses are not slowed down, since
    legitimate users may share the address (of a proxy) from which they come.
    """

    def __init__(self, token: str) -> None:
        if len(token) < _LEAST:
            raise SettingsError(f"the dashboard's token has {len(token)} characters: give {_LEAST} at least, or none")
        self._key = hashlib.sha256(token.encode()).digest()
        self.cookie = f"coordinator_{self._key.hex()[:8]}"  # by token, since all ports of a host share cookies

    def __call__(self, request: Request) -> Author | None:
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return Author(unknown(request)) if self.is_right(bearer) else None
        session = self.session_of(request)
        return Author(session.name or unknown(request)) if session else None

    def is_right(self, token: str) -> bool:
        return hmac.compare_digest(hashlib.sha256(token.strip().encode()).digest(), self._key)

    def begin(self, name: str) -> Session:
        """Begin a session. Raises InvalidJob for a name that cannot stand in the audit trail."""
        return Session(secrets.token_urlsafe(16), int(time.time()) + LASTS, checked_name(name))

    def text(self, session: Session) -> str:
        """Return the value of the session's cookie."""
        said = f"{session.ends}.{session.id}.{urlsafe_b64encode(session.name.encode()).decode()}"
        return f"{said}.{self._sign(said)}"

    def session_of(self, request: Request) -> Session | None:
        """Return the session of the request's cookie, if this token's login has begun it and its time is not over;
        None for a bearer, which needs none.
        """
        if request.headers.get("authorization", "").lower().startswith("bearer "):
            return None
        said, _, signed = request.cookies.get(self.cookie, "").rpartition(".")
        if not hmac.compare_digest(signed.encode(), self._sign(said).encode()):
            return None
        ends, *more = said.split(".")
        if len(more) != 2 or int(ends) <= time.time():  # fewer parts: of a version whose sessions had no name
            return None
        return Session(more[0], int(ends), urlsafe_b64decode(more[1]).decode())

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode(errors="replace"), "sha256").hexdigest()


class Sessions:
    """Ends sessions for all processes of the dashboard. `read`: calls a function in a thread, with a time limit.

    Both methods raise StoreUnavailable or StoreRefused, or TimeoutError.
    """

    def __init__(self, coordinator: Coordinator, read: Callable[[Callable[[], object]], Awaitable[object]]) -> None:
        self._coordinator, self._read = coordinator, read

    async def has_ended(self, session: Session) -> bool:
        store = self._coordinator.store
        return bool(await self._read(lambda: store.read("EXISTS", store.key("logged-out", session.id))))

    async def end(self, session: Session) -> None:
        store = self._coordinator.store
        await self._read(lambda: store.read("SET", store.key("logged-out", session.id), 1, "EX", _KEPT))


def unknown(request: HTTPConnection) -> str:
    """Return what somebody is called who has given no name."""
    return f"unknown from {address(request)}"


def address(request: HTTPConnection) -> str:
    return request.client.host if request.client else "this machine"


def named(session: Session, name: str) -> Session:
    return replace(session, name=checked_name(name))


def checked_name(name: str) -> str:
    """Return a name without the blanks around it. Raises InvalidJob for one that is too long or not printable."""
    name = name.strip()
    if len(name) > MOST_NAME or not name.isprintable():
        raise InvalidJob(f"a name has at most {MOST_NAME} printable characters")
    return name
