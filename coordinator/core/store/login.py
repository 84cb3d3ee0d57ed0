"""The login of connections to Redis, where it is not in the URL: the settings `password_file` and
`credential_provider`.

Each new connection asks for user and password again. Redis keeps the open connections of a user whose password has
changed, so no process needs a restart after a rotation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import redis
from redis.connection import parse_url
from redis.credentials import CredentialProvider

from coordinator.core.address import through
from coordinator.errors import SettingsError

if TYPE_CHECKING:
    from coordinator.core.settings import Settings


class NoLogin(redis.ConnectionError):
    """Raised where the login cannot be had; no server was asked."""


class Login(CredentialProvider):
    """Asks `ask` for user and password, or a password alone. Where that fails, the connection fails with a
    ConnectionError of redis-py, so that callers try again as after any lost connection. `setting`: names the setting,
    and the user where the URL does, for errors.
    """

    def __init__(self, ask: Callable[[], tuple[str] | tuple[str, str]], setting: str) -> None:
        self._ask, self.setting = ask, setting

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            return self._ask()
        except Exception as error:
            raise NoLogin(f"no login, by the {self.setting}: {type(error).__name__}: {error}") from error


def login_of(settings: Settings) -> Login | None:
    """Return the login that the settings name; None if it is in the URL alone. Raises SettingsError for a password that
    is named twice, and for a callable that makes no CredentialProvider.
    """
    file, path = settings.password_file, settings.credential_provider
    name = "password_file" if file else "credential_provider"
    setting = f"setting {name} ({settings.source(name)})"
    if file and path:
        raise SettingsError(f"{setting}: credential_provider names another login; take one of both out")
    if file:
        parts = through(settings.url)
        in_url = parse_url(parts.servers if parts else settings.url)
        if "password" in in_url:
            raise SettingsError(f"{setting}: the URL has a password, too; take one of both out")
        user = (str(in_url["username"]),) if "username" in in_url else ()
        named = "".join(f", user {name!r}" for name in user)
        return Login(lambda: (*user, _password_in(file)), setting + named)
    return Login(_provider(path, setting).get_credentials, setting) if path else None


def _password_in(file: str) -> str:
    password = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    if not password:
        raise ValueError(f"{file} is empty")
    return password


def _provider(path: str, setting: str) -> CredentialProvider:
    """Call the callable with the dotted name `path`, and return the CredentialProvider that it makes."""
    try:
        make = resolve_name(path)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        why += "; install it, or name its folder in PYTHONPATH" if isinstance(error, ModuleNotFoundError) else ""
        raise SettingsError(f"{setting}: {path!r} cannot be imported: {why}") from error
    try:
        provider = make()
    except Exception as error:
        raise SettingsError(f"{setting}: {path!r} cannot be called: {type(error).__name__}: {error}") from error
    if not isinstance(provider, CredentialProvider):
        kind = type(provider).__name__
        raise SettingsError(f"{setting}: {path!r} makes {kind}, and not a CredentialProvider of redis-py")
    return provider
