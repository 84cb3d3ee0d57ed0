"""TLS needs two things to reach a member: the authorities that may vouch for it, and this node's certificate."""

import ssl
from functools import lru_cache
from pathlib import Path

from tasks.settings import Access


def context(access: Access) -> ssl.SSLContext:
    """One for all clients of the same files. To read the system's authorities takes longer than a quiet harvest."""
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
