"""Stores a success and its result in one step of Redis, if the result backend is a database of the same server.

So no thread sends the result, and it is there when the job is over. Everything else goes through the outbox: other
backends, failures, links, the rest of a canvas, submits that melted into the job.
"""

from __future__ import annotations

import logging

from celery import Celery, states
from celery.backends.redis import RedisBackend, SentinelBackend

from coordinator.runner.attempt import Outcome
from coordinator.runner.canvas import Caller, Ended, request_of
from coordinator.runner.claim import Claim
from coordinator.runner.results import Packed, goes_on, is_ignored, packed, says_more
from coordinator.store.client import Store
from coordinator.store.database import database_from, database_of
from coordinator.store.wire import Arg

logger = logging.getLogger(__name__)


class ResultsInStep:
    """Adds results to the outcomes of one process and node."""

    def __init__(self, app: Celery, store: Store, node: str) -> None:
        self._app = app
        self._node = node
        self._databases: tuple[int, int] | None = None  # the backend's and the coordinator's, on one server
        if type(app.backend) in (RedisBackend, SentinelBackend):
            is_one = type(app.backend) is RedisBackend
            there = database_from(app.backend.connparams) if is_one else database_of(app.backend.client)
            home = store.database
            if there.is_beside(home):
                self._databases = there.database, home.database

    def of(self, claim: Claim, outcome: Outcome) -> tuple[Arg, ...]:
        """The last arguments of job_finish for a job that has succeeded; none where its result goes another way."""
        if self._databases is None or not claim.tell or claim.undoing or claim.following is not None:
            return ()
        if goes_on(claim.spec) or outcome.ignored or is_ignored(self._app, claim.task, claim.spec):
            return ()
        try:
            return (*self._packed(claim, outcome), *self._databases)
        except Exception:  # the job is done all the same; the outbox and the errands try again
            logger.exception("job %s: its result cannot be stored with its outcome", claim.id)
            return ()

    def _packed(self, claim: Claim, outcome: Outcome) -> Packed:
        request = None
        if says_more(self._app.backend, claim.spec, outcome.children):
            own = Caller(claim.id, claim.task, claim.spec)
            request = request_of(claim.args, claim.kwargs, self._node, own, True, outcome.children)
        return packed(self._app.backend, Ended(states.SUCCESS, outcome.value, None), request, claim.id)
