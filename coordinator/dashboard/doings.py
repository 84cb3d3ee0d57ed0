"""Acts in threads of their own: each goes on after its page was answered, and anybody with its page sees how far it is.

A process that ends stops its acts between two steps; done again, an act does the rest.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from uuid import uuid4

from coordinator.dashboard.error_page import ErrorPage, error_page_of
from coordinator.dashboard.extend import Act, Asked, Page
from coordinator.errors import CoordinatorError, InvalidJob
from coordinator.threads import connections_closed

MOST = 8  # acts at a time
_KEPT = 200


@dataclass(slots=True)
class Doing:
    """An act that was begun. `said`: what it did; `trouble`: why it failed; neither while it goes on."""

    id: str
    act: Act
    back: str
    done: int = 0
    total: int = 0
    said: str = ""
    trouble: ErrorPage | None = None
    future: Future[None] = field(default_factory=Future)

    @property
    def over(self) -> bool:
        return self.future.done()

    def page(self) -> Page:
        if self.trouble:
            return trouble_page(self.trouble, self.back)
        return Page("doing.html", self.act.title, {"doing": self, "back": self.back})


class Doings:
    """The acts of one dashboard."""

    def __init__(self) -> None:
        self._known: dict[str, Doing] = {}

    async def begin(self, act: Act, asked: Asked, patience: float) -> Doing:
        """Begin an act, and wait for it for at most so many seconds.

        Raises InvalidJob where no reason is given, CoordinatorError where too many go on.
        """
        if not asked.text("why"):
            raise InvalidJob("say why: others will read it")
        if sum(not one.over for one in self._known.values()) >= MOST:
            raise CoordinatorError(f"{MOST} acts go on: wait until one of them is over")
        doing = Doing(uuid4().hex, act, act.address(asked))
        self._known = dict([*self._known.items()][-_KEPT:]) | {doing.id: doing}
        context = copy_context()
        threading.Thread(target=context.run, args=(_do, doing, asked), daemon=True).start()
        await asyncio.wait([asyncio.wrap_future(doing.future)], timeout=patience)
        return doing

    def of(self, asked: Asked) -> Doing:
        """Raises LookupError for one that another process began, or that is long over."""
        if found := self._known.get(asked.text("id")):
            return found
        raise LookupError("this act is over, or goes on in another process: the page Actions has it")

    def page(self, asked: Asked) -> Page:
        return self.of(asked).page()


def trouble_page(trouble: ErrorPage, back: str, title: str = "") -> Page:
    """`back`: the page to go on with, of this title."""
    return Page("trouble.html", trouble.title, {"trouble": trouble, "back": back, "to": title}, trouble.status)


def _do(doing: Doing, asked: Asked) -> None:
    try:
        with connections_closed():
            answer = doing.act.do(asked)
            for step in (answer,) if isinstance(answer, str) else answer:
                if isinstance(step, str):
                    doing.said = step
                else:
                    doing.done, doing.total = step.done, step.total
    except Exception as error:
        doing.trouble = error_page_of(error, asked.coordinator.extensions)
    finally:
        doing.future.set_result(None)
