"""What an operator reads of an error: one sentence, which says what to mend."""

from collections.abc import Iterator
from contextlib import contextmanager

from kombu.exceptions import OperationalError
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from coordinator import CoordinatorError
from tasks.database import UnusableDatabase
from tasks.nodelist.stores import NodelistStoreAway

# Errors with a sentence of their own; a document of XML that cannot be read is a ValueError.
_PLAIN = (ImportError, NodelistStoreAway, OSError, OverflowError, UnusableDatabase, ValueError)


def sentence(error: Exception) -> str | None:
    """None for an error that is a fault of ours: its traceback says more."""
    if isinstance(error, OperationalError):
        return f"the broker: {error}. Is it running? CELERY_BROKER_URL holds its address"
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where} {str(first['input'])[:80]!r}: {first['msg'].removeprefix('Value error, ')}"
    if isinstance(error, SQLAlchemyError):
        return f"the database: {str(getattr(error, 'orig', None) or error).splitlines()[0]}"
    return str(error) if isinstance(error, _PLAIN) else None


@contextmanager
def plainly() -> Iterator[None]:
    """Turn an error that is meant for people into a CoordinatorError, which the command prints in one line."""
    try:
        yield
    except (CoordinatorError, BrokenPipeError):
        raise
    except Exception as error:
        if (text := sentence(error)) is None:
            raise
        raise CoordinatorError(text) from error
