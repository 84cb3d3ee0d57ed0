"""Searches and writes entries on an LDAP server, over one connection with TLS and time-outs, opened at the first call.

Errors of python-ldap become an LdapError. After an error the next call opens a new connection. If the server has closed
the connection while it was idle, the call is repeated once on a new connection. That is safe: a search may be repeated,
and a write is conditional, so a repeated write can at most raise LdapConflict.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

try:
    import ldap
    from ldap.controls import ResponseControl
    from ldap.controls.libldap import AssertionControl, SimplePagedResultsControl
    from ldap.controls.readentry import PostReadControl
    from ldap.dn import dn2str, str2dn
    from ldap.filter import filter_format
    from ldap.ldapobject import LDAPObject
except ImportError as error:
    raise ImportError(
        "the nodelist in LDAP needs python-ldap: pip install 'celery-coordinator[ldap]'. pip compiles it; on Debian or "
        "Ubuntu that needs: apt-get install gcc libc6-dev python3-dev libldap2-dev libsasl2-dev; on Fedora or RHEL: "
        f"dnf install gcc python3-devel openldap-devel cyrus-sasl-devel ({error})"
    ) from error

from tasks.nodelist.ldap.errors import LdapConflict, LdapError, LdapRefused, LdapUnreachable
from tasks.nodelist.ldap.schema import Attributes, Path
from tasks.settings import Settings

Answer = TypeVar("Answer")
Entries = list[tuple[str | None, dict[str, list[bytes]]]]
Result = tuple[int, Entries, int, list[ResponseControl]]

SILENT: tuple[type[ldap.LDAPError], ...] = (
    *(ldap.SERVER_DOWN, ldap.CONNECT_ERROR, ldap.TIMEOUT, ldap.TIMELIMIT_EXCEEDED, ldap.BUSY, ldap.UNAVAILABLE),
    *(ldap.OPERATIONS_ERROR, ldap.OTHER, ldap.DECODING_ERROR, ldap.ENCODING_ERROR, ldap.LOCAL_ERROR),
)
DENIED = (ldap.INVALID_CREDENTIALS, ldap.INAPPROPRIATE_AUTH, ldap.STRONG_AUTH_REQUIRED, ldap.AUTH_UNKNOWN)
CHANGED = {
    ldap.ASSERTION_FAILED: "was changed since it was read",
    ldap.NO_SUCH_OBJECT: "is gone",
    ldap.ALREADY_EXISTS: "exists already",
    ldap.NOT_ALLOWED_ON_NONLEAF: "has new entries below it",
}


HIDDEN = "the server does not show it; this account needs the right to read it"
_POST_READ = PostReadControl(criticality=True, attrList=["entryCSN"])


class Connection:
    """A connection for one thread. A forked process opens a connection of its own, and does not close its parent's."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._live: LDAPObject | None = None
        self._pid = 0
        self._idle = False

    def begin(self) -> None:
        """Call this before a series of calls. Their first is repeated if it finds the idle connection closed."""
        self._idle = True

    def search(self, dn: str, classes: Iterable[str], attributes: Iterable[str]) -> Iterator[tuple[str, Attributes]]:
        """Search `dn` and all below, page by page: yield DN and attributes of each entry of one of the object classes.

        Raises LdapError.
        """
        condition = "(|" + "".join(filter_format("(objectClass=%s)", [name]) for name in classes) + ")"
        cookie = b""
        while True:
            page = SimplePagedResultsControl(True, size=self._settings.ldap_page, cookie=cookie)
            ask = partial(_search, dn, condition, list(attributes), page, self._settings.ldap_timeout)
            _, entries, _, controls = self._call(ask, dn)
            yield from ((name, _decoded(entry)) for name, entry in entries if name is not None)
            cookie = next((control.cookie for control in controls if control.controlType == page.controlType), b"")
            if not cookie:
                return

    def unique(self, dn: str) -> str:
        """Read the entryUUID of an entry. Raises LdapError; LdapConflict where there is no such entry."""
        timeout = self._settings.ldap_timeout

        def ask(live: LDAPObject) -> Result:
            search = live.search_ext(dn, ldap.SCOPE_BASE, "(objectClass=*)", ["entryUUID"], timeout=timeout)
            result: Result = live.result3(search, timeout=timeout)
            return result

        _, entries, *_ = self._call(ask, dn)
        values = next((_decoded(entry) for name, entry in entries if name is not None), {}).get("entryUUID")
        if not values:
            raise LdapRefused(dn, ("entryUUID",), HIDDEN)
        return values[0]

    def add(self, dn: str, attributes: Attributes) -> str:
        """Add an entry, and return its entryCSN. Raises LdapError; LdapConflict where the entry exists already."""
        entry = [(name, _encoded(values)) for name, values in attributes.items()]
        return self._changed(lambda live: live.add_ext(dn, entry, [_POST_READ]), dn, attributes)

    def modify(self, dn: str, attributes: Attributes, csn: str) -> str:
        """Replace the values of attributes, if the entry still has the entryCSN `csn`. Returns the new entryCSN."""
        replaced = [(ldap.MOD_REPLACE, name, _encoded(values) or None) for name, values in attributes.items()]
        controls = [_assert_csn(csn), _POST_READ]
        return self._changed(lambda live: live.modify_ext(dn, replaced, controls), dn, attributes)

    def delete(self, dn: str, csn: str) -> None:
        timeout = self._settings.ldap_timeout
        self._call(lambda live: live.result3(live.delete_ext(dn, [_assert_csn(csn)]), timeout=timeout), dn)

    def _changed(self, ask: Callable[[LDAPObject], int], dn: str, attributes: Iterable[str]) -> str:
        timeout = self._settings.ldap_timeout
        *_, controls = self._call(lambda live: live.result3(ask(live), timeout=timeout), dn, tuple(attributes))
        entry: dict[str, list[bytes]] = next(
            (control.entry for control in controls if control.controlType == _POST_READ.controlType), {}
        )
        if not entry.get("entryCSN"):
            raise LdapRefused(dn, ("entryCSN",), HIDDEN)
        return str(entry["entryCSN"][0], "ascii")

    def _call(self, ask: Callable[[LDAPObject], Answer], dn: str, attributes: tuple[str, ...] = ()) -> Answer:
        """Call `ask` with a connected and bound LDAPObject. Raises LdapError, which names `dn` and `attributes`."""
        self._drop_inherited()
        reused, self._idle = self._live is not None and self._idle, False
        try:
            return ask(self._bound())
        except ldap.SERVER_DOWN as error:
            self.close()
            if not reused:
                raise self._unreachable(error) from error
        except ldap.LDAPError as error:
            meaning = self._meaning(error, dn, attributes)
            if isinstance(meaning, LdapUnreachable):
                self.close()
            raise meaning from error
        return self._call(ask, dn, attributes)

    def close(self) -> None:
        self._drop_inherited()
        live, self._live = self._live, None
        if live is not None:
            with suppress(ldap.LDAPError):
                live.unbind_ext_s()

    def _drop_inherited(self) -> None:
        """Drop a connection that this process has inherited from its parent by a fork.

        To close it, libldap would send an unbind, which ends the parent's session; so its socket becomes /dev/null.
        """
        if self._live is not None and self._pid != os.getpid():
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, self._live.fileno())
            os.close(nowhere)
            self._live = None

    def _bound(self) -> LDAPObject:
        """The connection, opened and bound if there is none, within `ldap_timeout` seconds.

        A thread opens the connection, since libldap has no time-out for the TLS handshake.
        """
        if self._live is None:
            opened: Future[LDAPObject] = Future()
            Thread(target=_fulfil, args=(opened, self._open), daemon=True).start()
            try:
                self._live = opened.result(self._settings.ldap_timeout)
            except TimeoutError:
                raise self._unreachable(ldap.TIMEOUT()) from None
            except ldap.LDAPError as error:
                raise self._unreachable(error) from error
            self._pid = os.getpid()
        return self._live

    def _open(self) -> LDAPObject:
        live = self._prepared()
        if self._settings.ldap_starttls:
            live.start_tls_s()
        live.simple_bind_s(self._settings.ldap_bind_dn, self._password())
        return live

    def _prepared(self) -> LDAPObject:
        """Make an LDAPObject with all options, not connected yet.

        libldap applies the TLS options when OPT_X_TLS_NEWCTX is set, so that option comes last.
        """
        settings = self._settings
        live = ldap.initialize(settings.ldap_url)
        options: list[tuple[int, float | str]] = [
            (ldap.OPT_PROTOCOL_VERSION, ldap.VERSION3),
            (ldap.OPT_REFERRALS, 0),
            (ldap.OPT_NETWORK_TIMEOUT, settings.ldap_timeout),
            (ldap.OPT_TIMEOUT, settings.ldap_timeout),
            (ldap.OPT_X_TLS_REQUIRE_CERT, ldap.OPT_X_TLS_DEMAND),
        ]
        if settings.ldap_ca_bundle is not None:
            options.append((ldap.OPT_X_TLS_CACERTFILE, str(settings.ldap_ca_bundle)))
        try:
            for option, value in [*options, (ldap.OPT_X_TLS_NEWCTX, 0)]:
                live.set_option(option, value)
        except (ldap.LDAPError, ValueError) as error:
            way_out = f"see ldap_ca_bundle ({settings.ldap_ca_bundle})"
            raise LdapUnreachable(settings.ldap_url, "TLS cannot be set up", way_out) from error
        return live

    def _password(self) -> str:
        path = self._settings.ldap_password_file
        if path is None:
            return self._settings.ldap_password.get_secret_value()
        try:
            password = path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise LdapUnreachable(self._settings.ldap_url, f"no password: {error}", "see ldap_password_file") from error
        if not password:
            raise LdapUnreachable(self._settings.ldap_url, f"no password: {path} is empty", "see ldap_password_file")
        return password

    def _meaning(self, error: ldap.LDAPError, dn: str, attributes: tuple[str, ...]) -> LdapError:
        for kind, cause in CHANGED.items():
            if isinstance(error, kind):
                return LdapConflict(dn, cause)
        if isinstance(error, (*SILENT, *DENIED, ldap.CONFIDENTIALITY_REQUIRED)):
            return self._unreachable(error)
        cause = _message(error)
        if isinstance(error, ldap.REFERRAL):
            cause = f"{self._settings.ldap_url} is a read-only copy; set ldap_url to the one writable server ({cause})"
        elif isinstance(error, ldap.SIZELIMIT_EXCEEDED | ldap.ADMINLIMIT_EXCEEDED):
            cause += "; the server must allow this account paged searches of any size, see deploy/ldap"
        return LdapRefused(dn, attributes, cause)

    def _unreachable(self, error: ldap.LDAPError) -> LdapUnreachable:
        settings, cause = self._settings, _message(error)
        if isinstance(error, DENIED):
            way_out = f"see ldap_bind_dn ({settings.ldap_bind_dn or 'anonymous'}) and its password"
        elif isinstance(error, ldap.CONFIDENTIALITY_REQUIRED):
            way_out = "use ldaps:// or set ldap_starttls"
        elif isinstance(error, ldap.TIMEOUT | ldap.TIMELIMIT_EXCEEDED):
            way_out = f"it did not answer within ldap_timeout ({settings.ldap_timeout:g} s)"
        elif isinstance(error, ldap.OTHER | ldap.OPERATIONS_ERROR):
            way_out = "see the server's log"
        elif settings.ldap_starttls or settings.ldap_url.startswith("ldaps:"):
            way_out = "is it up, and does its certificate have that name and come from ldap_ca_bundle or a system's CA?"
        else:
            way_out = "is it up, and is that its address?"
        return LdapUnreachable(settings.ldap_url, cause, way_out)


def _message(error: ldap.LDAPError) -> str:
    """The messages of libldap and of the server in an error, or the name of the error."""
    about = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    words = [str(about[name]).strip() for name in ("desc", "info") if about.get(name)]
    return ": ".join(words) or type(error).__name__.replace("_", " ").lower()


def dn_of(path: Path, base: str) -> str:
    """Convert a path of entries to a DN: the path starts at the top, below `base`, and the DN at the leaf."""
    below = dn2str([[(name, value, 1) for name, value in rdn] for rdn in reversed(path)])
    return ",".join(part for part in (below, base) if part)


def path_of(dn: str, base: str) -> Path:
    rdns = str2dn(dn)
    return tuple(
        tuple((name, value) for name, value, _ in rdn) for rdn in reversed(rdns[: len(rdns) - len(str2dn(base))])
    )


def _fulfil(promise: Future[LDAPObject], make: Callable[[], LDAPObject]) -> None:
    try:
        promise.set_result(make())
    except BaseException as error:
        promise.set_exception(error)


def _search(
    dn: str, condition: str, attributes: list[str], page: SimplePagedResultsControl, timeout: float, live: LDAPObject
) -> Result:
    search = live.search_ext(dn, ldap.SCOPE_SUBTREE, condition, attributes, 0, [page], None, timeout)
    result: Result = live.result3(search, timeout=timeout)
    return result


def _assert_csn(csn: str) -> AssertionControl:
    return AssertionControl(True, filter_format("(entryCSN=%s)", [csn]))


def _encoded(values: Iterable[str]) -> list[bytes]:
    return [value.encode("utf-8", "surrogateescape") for value in values]


def _decoded(entry: dict[str, list[bytes]]) -> Attributes:
    return {name: tuple(value.decode("utf-8", "surrogateescape") for value in values) for name, values in entry.items()}
