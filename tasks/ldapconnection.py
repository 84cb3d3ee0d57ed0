"""One connection to an LDAP server: opened when first needed, with TLS verified and every call bounded in time.

After an error the next call opens another. A server that hung up while the connection lay idle is asked once more, on a
new one: searches may be repeated, and writes are conditional, so the worst that a second one meets is a conflict.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, TypeVar

try:
    import ldap
    from ldap.controls.libldap import AssertionControl, SimplePagedResultsControl
    from ldap.controls.readentry import PostReadControl
    from ldap.dn import dn2str, str2dn
    from ldap.filter import filter_format
except ImportError as error:
    raise ImportError(
        "the nodelist in LDAP needs python-ldap: pip install 'celery-coordinator[ldap]'. It is compiled; on Debian or "
        "Ubuntu that needs: apt-get install gcc libc6-dev python3-dev libldap2-dev libsasl2-dev; on Fedora or RHEL: "
        f"dnf install gcc python3-devel openldap-devel cyrus-sasl-devel ({error})"
    ) from error

from tasks.ldaperrors import Conflict, LdapError, Refused, Unreachable
from tasks.ldapschema import Attributes, Path
from tasks.settings import Settings

Answer = TypeVar("Answer")

SILENT: tuple[Any, ...] = (
    *(ldap.SERVER_DOWN, ldap.CONNECT_ERROR, ldap.TIMEOUT, ldap.TIMELIMIT_EXCEEDED, ldap.BUSY, ldap.UNAVAILABLE),
    *(ldap.OPERATIONS_ERROR, ldap.OTHER, ldap.DECODING_ERROR, ldap.ENCODING_ERROR, ldap.LOCAL_ERROR),
)
DENIED = (ldap.INVALID_CREDENTIALS, ldap.INAPPROPRIATE_AUTH, ldap.STRONG_AUTH_REQUIRED, ldap.AUTH_UNKNOWN)
CHANGED = {
    ldap.ASSERTION_FAILED: "was changed since it was read",
    ldap.NO_SUCH_OBJECT: "is gone",
    ldap.ALREADY_EXISTS: "is there already",
    ldap.NOT_ALLOWED_ON_NONLEAF: "has entries below it that were not read",
}


_POST_READ = PostReadControl(criticality=True, attrList=["entryCSN"])


class Connection:
    """For one thread. A process that was forked opens its own and leaves its parent's alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._live: Any = None
        self._pid = 0
        self._idle = False

    def begin(self) -> None:
        """Of something new: until its first answer, the server may have hung up meanwhile."""
        self._idle = True

    def search(self, dn: str, classes: Iterable[str], attributes: Iterable[str]) -> Iterator[tuple[str, Attributes]]:
        """DN and attributes of each entry of these classes, `dn` and below, in pages. Raises LdapError."""
        wanted = "(|" + "".join(filter_format("(objectClass=%s)", [name]) for name in classes) + ")"
        cookie = b""
        while True:
            page = SimplePagedResultsControl(True, size=self._settings.ldap_page, cookie=cookie)
            timeout = self._settings.ldap_timeout
            arguments = (dn, ldap.SCOPE_SUBTREE, wanted, list(attributes), 0, [page], None, timeout)
            _, found, _, controls = self._call(partial(_search, arguments, timeout), dn)
            yield from ((name, _decoded(entry)) for name, entry in found if name is not None)
            cookie = next((told.cookie for told in controls if told.controlType == page.controlType), b"")
            if not cookie:
                return

    def add(self, dn: str, attributes: Attributes) -> str:
        """The entryCSN of the new entry. Raises LdapError; Conflict where there is one."""
        entry = [(name, _encoded(values)) for name, values in attributes.items()]
        return self._changed(lambda live: live.add_ext(dn, entry, [_POST_READ]), dn, attributes)

    def modify(self, dn: str, attributes: Attributes, csn: str) -> str:
        """Replace the values of these attributes, and of no other, if the entry still is as `csn` says; the next."""
        replaced = [(ldap.MOD_REPLACE, name, _encoded(values) or None) for name, values in attributes.items()]
        controls = [_still(csn), _POST_READ]
        return self._changed(lambda live: live.modify_ext(dn, replaced, controls), dn, attributes)

    def delete(self, dn: str, csn: str) -> None:
        timeout = self._settings.ldap_timeout
        self._call(lambda live: live.result3(live.delete_ext(dn, [_still(csn)]), timeout=timeout), dn)

    def _changed(self, ask: Callable[[Any], int], dn: str, attributes: Iterable[str]) -> str:
        timeout = self._settings.ldap_timeout
        *_, controls = self._call(lambda live: live.result3(ask(live), timeout=timeout), dn, tuple(attributes))
        told: dict[str, list[bytes]] = next(
            (one.entry for one in controls if one.controlType == _POST_READ.controlType), {}
        )
        if not told.get("entryCSN"):
            raise Refused(dn, ("entryCSN",), "the server does not tell it; this account must be able to read it")
        return str(told["entryCSN"][0], "ascii")

    def _call(self, ask: Callable[[Any], Answer], dn: str, attributes: tuple[str, ...] = ()) -> Answer:
        """What `ask` gets of a bound LDAPObject. Raises LdapError; `dn` and `attributes` are what it is about."""
        self._leave_to_parent()
        reused, self._idle = self._live is not None and self._idle, False
        try:
            return ask(self._bound())
        except ldap.SERVER_DOWN as error:
            self.close()
            if not reused:
                raise self._unreachable(error) from error
        except ldap.LDAPError as error:
            meaning = self._meaning(error, dn, attributes)
            if isinstance(meaning, Unreachable):
                self.close()
            raise meaning from error
        return self._call(ask, dn, attributes)

    def close(self) -> None:
        self._leave_to_parent()
        live, self._live = self._live, None
        if live is not None:
            with suppress(ldap.LDAPError):
                live.unbind_ext_s()

    def _leave_to_parent(self) -> None:
        """Whatever libldap still says on a connection that was inherited goes nowhere."""
        if self._live is not None and self._pid != os.getpid():
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, self._live.fileno())
            os.close(nowhere)
            self._live = None

    def _bound(self) -> Any:
        """Within ldap_timeout as a whole. libldap bounds no TLS handshake, so a thread waits for it in our stead."""
        if self._live is None:
            opened: Future[Any] = Future()
            Thread(target=_fulfil, args=(opened, self._open), daemon=True).start()
            try:
                self._live = opened.result(self._settings.ldap_timeout)
            except TimeoutError:
                raise self._unreachable(ldap.TIMEOUT()) from None
            except ldap.LDAPError as error:
                raise self._unreachable(error) from error
            self._pid = os.getpid()
        return self._live

    def _open(self) -> Any:
        live = self._prepared()
        if self._settings.ldap_starttls:
            live.start_tls_s()
        live.simple_bind_s(self._settings.ldap_bind_dn, self._password())
        return live

    def _prepared(self) -> Any:
        """Not connected yet. libldap takes TLS options over when the last of them is set."""
        settings = self._settings
        live = ldap.initialize(settings.ldap_url)
        options: list[tuple[int, Any]] = [
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
            raise Unreachable(settings.ldap_url, "TLS cannot be set up", way_out) from error
        return live

    def _password(self) -> str:
        path = self._settings.ldap_password_file
        if path is None:
            return self._settings.ldap_password.get_secret_value()
        try:
            password = path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise Unreachable(self._settings.ldap_url, f"no password: {error}", "see ldap_password_file") from error
        if not password:
            raise Unreachable(self._settings.ldap_url, f"no password: {path} is empty", "see ldap_password_file")
        return password

    def _meaning(self, error: ldap.LDAPError, dn: str, attributes: tuple[str, ...]) -> LdapError:
        for kind, cause in CHANGED.items():
            if isinstance(error, kind):
                return Conflict(dn, cause)
        if isinstance(error, (*SILENT, *DENIED, ldap.CONFIDENTIALITY_REQUIRED)):
            return self._unreachable(error)
        cause = _said(error)
        if isinstance(error, ldap.REFERRAL):
            cause = (
                f"{self._settings.ldap_url} is a read-only copy; ldap_url must name the one writable server ({cause})"
            )
        elif isinstance(error, ldap.SIZELIMIT_EXCEEDED | ldap.ADMINLIMIT_EXCEEDED):
            cause += "; the server's limits for this account must allow paged searches of any size, see deploy/ldap"
        return Refused(dn, attributes, cause)

    def _unreachable(self, error: ldap.LDAPError) -> Unreachable:
        settings, cause = self._settings, _said(error)
        if isinstance(error, DENIED):
            way_out = f"see ldap_bind_dn ({settings.ldap_bind_dn or 'anonymous'}) and its password"
        elif isinstance(error, ldap.CONFIDENTIALITY_REQUIRED):
            way_out = "use ldaps:// or set ldap_starttls"
        elif isinstance(error, ldap.TIMEOUT | ldap.TIMELIMIT_EXCEEDED):
            way_out = f"it did not answer within ldap_timeout ({settings.ldap_timeout:g} s)"
        elif isinstance(error, ldap.OTHER | ldap.OPERATIONS_ERROR):
            way_out = "the server's log says more"
        elif settings.ldap_starttls or settings.ldap_url.startswith("ldaps:"):
            way_out = "is it up, and does its certificate bear that name and come from ldap_ca_bundle or a system's CA?"
        else:
            way_out = "is it up, and is that its address?"
        return Unreachable(settings.ldap_url, cause, way_out)


def _said(error: ldap.LDAPError) -> str:
    """libldap's words, and the server's."""
    told = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    words = [str(told[name]).strip() for name in ("desc", "info") if told.get(name)]
    return ": ".join(words) or type(error).__name__.replace("_", " ").lower()


def dn_of(path: Path, base: str) -> str:
    """`path` starts at the top, a DN at the leaf."""
    below = dn2str([[(name, value, 1) for name, value in rdn] for rdn in reversed(path)])
    return ",".join(part for part in (below, base) if part)


def path_of(dn: str, base: str) -> Path:
    rdns = str2dn(dn)
    return tuple(
        tuple((name, value) for name, value, _ in rdn) for rdn in reversed(rdns[: len(rdns) - len(str2dn(base))])
    )


def _fulfil(promise: Future[Any], make: Callable[[], Any]) -> None:
    try:
        promise.set_result(make())
    except BaseException as error:
        promise.set_exception(error)


def _search(arguments: tuple[Any, ...], timeout: float, live: Any) -> Any:
    return live.result3(live.search_ext(*arguments), timeout=timeout)


def _still(csn: str) -> AssertionControl:
    return AssertionControl(True, filter_format("(entryCSN=%s)", [csn]))


def _encoded(values: Iterable[str]) -> list[bytes]:
    return [value.encode("utf-8", "surrogateescape") for value in values]


def _decoded(entry: dict[str, list[bytes]]) -> Attributes:
    return {name: tuple(value.decode("utf-8", "surrogateescape") for value in given) for name, given in entry.items()}
