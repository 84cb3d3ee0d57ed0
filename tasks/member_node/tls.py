"""TLS with a member: the context that its TASKS_ACCESS asks for, and why a handshake failed, in words."""

import re
import ssl
from collections.abc import Iterator

from tasks.settings import Access


def context(access: Access) -> ssl.SSLContext:
    """Reads the files anew each time, so that a renewed certificate needs no restart."""
    made = ssl.create_default_context(cafile=access.ca_bundle)
    if access.client_cert is not None:
        made.load_cert_chain(access.client_cert, access.client_key)
    return made


def trouble(error: BaseException, access: Access) -> str | None:
    """Says which certificate is wrong, and how; None where the error tells of none."""
    cause = next((one for one in _causes(error) if isinstance(one, ssl.SSLError)), None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        by = f"ca_bundle {access.ca_bundle}" if access.ca_bundle else "the authorities of this machine"
        return f"its certificate is not accepted: {cause.verify_message.rstrip('.')} (checked with {by})"
    alert = re.search(r"ALERT_(\w*CERTIFICATE\w*|UNKNOWN_CA|ACCESS_DENIED)", (cause and cause.reason) or "")
    if alert is None:
        return None
    said = alert[1].lower().replace("_", " ")
    if access.client_cert is None:
        return f"it wants a client certificate, and TASKS_ACCESS names none for it ({said})"
    return f"it refuses the client certificate {access.client_cert}: {said}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__
