"""What an operator can mend is told in one line: how the service's commands end with an error."""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from kombu.exceptions import OperationalError
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from coordinator import CoordinatorError
from tasks import documents
from tasks.nodelist import NodelistUnreadable
from tasks.schema import ForeignHost
from tasks.sources import SourceAway


@contextmanager
def one_line() -> Iterator[None]:
    try:
        yield
    except CoordinatorError:  # has its line already, though some are OSErrors too
        raise
    except NodelistUnreadable as error:
        raise click.ClickException(f"{error}: give one with coordinator nodelist import FILE") from error
    except OperationalError as error:
        raise click.ClickException(f"the broker: {error}. Is it running? CELERY_BROKER_URL names it") from error
    except ValidationError as error:
        first = error.errors()[0]
        said = first["msg"].removeprefix("Value error, ")
        raise click.ClickException(f"{'.'.join(map(str, first['loc']))}: {said}") from error
    except SQLAlchemyError as error:
        raise click.ClickException(f"the catalog: {str(error).splitlines()[0]}") from error
    except (ImportError, SourceAway, ForeignHost, documents.Unreadable, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def unknown(member: str) -> click.ClickException:
    return click.ClickException(f"unknown member {member}: coordinator members lists those there are")
