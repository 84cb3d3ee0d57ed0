"""Makes the TLS context for a member from its row in TASKS_ACCESS, and explains a handshake that failed."""

import re
import ssl
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tasks.settings import Access


def context(access: Access) -> ssl.SSLContext:
    """The TLS context for a member. Clients with the same files share one, since reading the authorities is slow.

    If one of the files changes, the next call makes a new context.
    """
    system = ssl.get_default_verify_paths()
    named = [access.ca_bundle or system.cafile or system.openssl_cafile, access.client_cert, access.client_key]
    stamps = tuple(_changed_at(Path(path)) for path in named if path is not None)
    return _context(access, stamps)


def _changed_at(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


@lru_cache(maxsize=64)
def _context(access: Access, stamps: tuple[int, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=access.ca_bundle)
    if access.client_cert is not None:
        context.load_cert_chain(access.client_cert, access.client_key)
    return context


def trouble(error: BaseException, access: Access) -> str | None:
    """A sentence that says which certificate made the connection fail; None: `error` is not about certificates."""
    cause = next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLError)), None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        by = f"ca_bundle {access.ca_bundle}" if access.ca_bundle else "the authorities of this machine"
        return f"its certificate is not accepted: {cause.verify_message.rstrip('.')} (checked with {by})"
    alert = re.search(r"ALERT_(\w*CERTIFICATE\w*|UNKNOWN_CA|ACCESS_DENIED)", (cause and cause.reason) or "")
    if alert is None:
        return None
    words = alert[1].lower().replace("_", " ")
    if access.client_cert is None:
        return f"it wants a client certificate, and TASKS_ACCESS names none for it ({words})"
    return f"it refuses the client certificate {access.client_cert}: {words}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
