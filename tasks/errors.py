"""Turns exceptions of the service into one sentence for the user, which says what to fix."""

from kombu.exceptions import OperationalError as BrokerAway
from pydantic import ValidationError
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError, SQLAlchemyError

from coordinator import CoordinatorError
from tasks.database import UnusableDatabase
from tasks.nodelist.stores import NodelistStoreAway

# Errors whose message is already a sentence for the user. ValueError includes that of an unreadable XML document.
_PLAIN = (ImportError, NodelistStoreAway, OSError, OverflowError, UnusableDatabase, ValueError)
_AWAY = (BrokerAway, InterfaceError, InternalError, NodelistStoreAway, OperationalError)


def plain(error: Exception) -> Exception | None:
    """Turn an exception into one for the user: a ConnectionError where a server is away, else a CoordinatorError.

    None: show the exception as it is: it is a CoordinatorError already, or a bug, for which a traceback says more.
    """
    if isinstance(error, CoordinatorError | BrokenPipeError) or (text := _sentence(error)) is None:
        return None
    return ConnectionError(text) if isinstance(error, _AWAY) else CoordinatorError(text)


def _sentence(error: Exception) -> str | None:
    if isinstance(error, BrokerAway):
        return f"the broker: {error}. Is it running? CELERY_BROKER_URL holds its address"
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where} {str(first['input'])[:80]!r}: {first['msg'].removeprefix('Value error, ')}"
    if isinstance(error, SQLAlchemyError):
        return f"the database: {str(getattr(error, 'orig', None) or error).splitlines()[0]}"
    return str(error) if isinstance(error, _PLAIN) else None
