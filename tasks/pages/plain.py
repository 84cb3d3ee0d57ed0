"""Has pages and acts speak to people as the command line does."""

from collections.abc import Callable
from functools import wraps
from typing import TypedDict, TypeVar

from kombu.exceptions import OperationalError as BrokerAway
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError

from coordinator import CoordinatorError
from coordinator.dashboard.extend import Asked
from tasks.errors import sentence
from tasks.nodelist.stores import NodelistStoreAway

T = TypeVar("T")
AWAY = (BrokerAway, InterfaceError, InternalError, NodelistStoreAway, OperationalError)


def plainly(answer: Callable[[Asked], T]) -> Callable[[Asked], T]:
    """Have a view or an act say an error to people, where the command line would; a page of what is away asks again."""

    @wraps(answer)
    def call(asked: Asked) -> T:
        try:
            return answer(asked)
        except (CoordinatorError, TimeoutError):
            raise
        except Exception as error:
            if (text := sentence(error)) is None:
                raise
            raise (ConnectionError if isinstance(error, AWAY) else CoordinatorError)(text) from error

    return call


class Said(TypedDict):
    by: str
    why: str
    ticket: str


def said(asked: Asked) -> Said:
    """Who acts, and why, as acts take it."""
    return {"by": asked.author.name, "why": asked.text("why"), "ticket": asked.text("ticket")}
