"""Ends the service's commands with an error in one line, which tells the operator what to mend."""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from kombu.exceptions import OperationalError
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from coordinator import CoordinatorError
from tasks.batches import ItemConflict, UnknownItem
from tasks.components import UnknownComponent
from tasks.database import UnusableDatabase
from tasks.member_node import safe_xml
from tasks.nodelist.stores import NodelistStoreAway
from tasks.nodelist.xml_store import NodelistUnreadable


@contextmanager
def one_line() -> Iterator[None]:
    try:
        yield
    except (CoordinatorError, BrokenPipeError):  # the library prints these itself; some are OSErrors, too
        raise
    except NodelistUnreadable as error:
        raise click.ClickException(f"{error}. To give one: coordinator nodelist import FILE") from error
    except OperationalError as error:
        raise click.ClickException(
            f"the broker: {error}. Is it running? CELERY_BROKER_URL holds its address"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].removeprefix("Value error, ")
        where = ".".join(map(str, first["loc"]))
        raise click.ClickException(f"{where} {str(first['input'])[:80]!r}: {reason}") from error
    except SQLAlchemyError as error:
        raise click.ClickException(f"the catalog: {str(error).splitlines()[0]}") from error
    except (
        ImportError,
        ItemConflict,
        UnknownItem,
        UnknownComponent,
        NodelistStoreAway,
        UnusableDatabase,
        safe_xml.Unreadable,
        OSError,
        OverflowError,
        ValueError,
    ) as error:
        raise click.ClickException(str(error)) from error


class OneLine(click.Group):
    """A group whose commands end with an error in one line."""

    def invoke(self, ctx: click.Context) -> object:
        with one_line():
            return super().invoke(ctx)
