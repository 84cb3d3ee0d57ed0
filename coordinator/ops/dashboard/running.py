"""Runs the dashboard's acts in threads. An act goes on after the response was sent; a page shows its progress.

If the process ends, its acts stop between two changes; an act that is done again does the rest.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from uuid import uuid4

from coordinator.core.threads import connections_closed
from coordinator.errors import InvalidJob
from coordinator.ops.dashboard.acts import Act
from coordinator.ops.dashboard.error_page import ErrorPage, TooManyActs, error_page_of
from coordinator.ops.dashboard.extend import Page, Query

MOST = 8  # acts that run at the same time
_KEPT = 200


@dataclass(slots=True)
class RunningAct:
    """An act that was begun: `done` of `total` things are changed. `message`: what the act did, or `error`: why it
    failed; both are empty while it runs. `back`: address of the page that is shown afterwards.
    """

    id: str
    act: Act
    back: str
    done: int = 0
    total: int = 0
    message: str = ""
    error: ErrorPage | None = None
    future: Future[None] = field(default_factory=Future)

    @property
    def over(self) -> bool:
        return self.future.done()

    def page(self) -> Page:
        if self.error:
            return failure_page(self.error, self.back)
        return Page("doing.html", self.act.title, {"doing": self, "back": self.back})


class RunningActs:
    """The acts that one dashboard has begun, by id; those that ended long ago are dropped."""

    def __init__(self) -> None:
        self._known: dict[str, RunningAct] = {}

    async def begin(self, act: Act, query: Query, patience: float) -> RunningAct:
        """Begin an act in a thread, and wait for its end for at most `patience` seconds.

        Raises InvalidJob where no reason is given, TooManyActs where eight acts run already.
        """
        if not query.text("why"):
            raise InvalidJob("give a reason (why): it is kept in the audit trail")
        if sum(not one.over for one in self._known.values()) >= MOST:
            raise TooManyActs(f"{MOST} acts are running: wait until one of them has ended")
        running = RunningAct(uuid4().hex, act, act.address(query))
        self._known = dict([*self._known.items()][-_KEPT:]) | {running.id: running}
        context = copy_context()
        threading.Thread(target=context.run, args=(_do, running, query), daemon=True).start()
        await asyncio.wait([asyncio.wrap_future(running.future)], timeout=patience)
        return running

    def of(self, query: Query) -> RunningAct:
        """Return the act whose id the request has. Raises LookupError if another process began the act, or if it ended
        long ago.
        """
        if found := self._known.get(query.text("id")):
            return found
        raise LookupError("this act has ended, or goes on in another process: the page Actions lists it")

    def page(self, query: Query) -> Page:
        return self.of(query).page()


def failure_page(error: ErrorPage, back: str, title: str = "") -> Page:
    """Make the page for an act or view that failed. `back`: address of the page to which it links, `title`: the title
    of that page.
    """
    return Page("failure.html", error.title, {"error": error, "back": back, "to": title}, error.status)


def _do(running: RunningAct, query: Query) -> None:
    try:
        with connections_closed():
            for step in running.act.do(query):
                if isinstance(step, str):
                    running.message = step
                else:
                    running.done, running.total = step.done, step.total
    except Exception as error:
        running.error = error_page_of(error, query.coordinator.extensions)
    finally:
        running.future.set_result(None)
