"""The readings and verbs for requests that inboxes refused: list, count, requeue and discard."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from coordinator.core.author import Acting, act_of
from coordinator.core.client.client import Client
from coordinator.core.jobs.validation import checks_arguments
from coordinator.core.verbs import MOST, NOTHING, REQUEST, Answer, Given, Option, reading, verb

if TYPE_CHECKING:
    from coordinator.inbox.refused import RefusedRequest, RefusedRequests

EDITED = Option(
    "edited", "Put this JSON into the queue instead of the request. Empty: the request as it was.", "In its place",
    metavar="JSON",
)  # fmt: skip


def gone(request_id: str) -> str:
    return (
        f"no refused request has the id {request_id} any more; "
        "on RabbitMQ, another process may be reading the request just now"
    )


def _requeued(_: object, given: Given, done: bool) -> Answer:
    name = given["request_id"]
    return {"request": name, "requeued": done}, f"{name} is in its queue" if done else gone(name)


def _discarded(_: object, given: Given, done: bool) -> Answer:
    name = given["request_id"]
    return {"request": name, "discarded": done}, f"{name} is discarded" if done else gone(name)


@checks_arguments
class RequestVerbs(Client):
    @reading(NOTHING, replace(MOST, default=1000), blocks=True)
    def refused(self, most: int = 100) -> list[RefusedRequest]:
        """Read the requests that the app's inboxes refused, the newest first. Of each inbox, the broker keeps 1,000
        readable and 1,000 unreadable requests.

        Raises SettingsError for a coordinator without an app, and StoreUnavailable where the broker does not answer.
        """
        return self._refused.all(most)

    @reading(blocks=True)
    def refused_counts(self) -> dict[str, int]:
        """Count the refused requests by queue, for each inbox of the app that ever refused a request."""
        return self._refused.counts()

    @verb(REQUEST, EDITED, tell=_requeued, command="refused requeue", blocks=True)
    def requeue(self, request_id: str, edited: str | None = None, **acting: Unpack[Acting]) -> bool:
        """Put a refused request into its queue again, without its priority.

        `edited`: a JSON text that replaces the request. Returns False where the request is gone. If several authors act
        on the request at once, one of them succeeds. Raises InvalidJob for a text that no inbox can read, or while
        another author acts on the request.
        """
        return self._take_out("requeue", request_id, edited, act_of(**acting))

    @verb(REQUEST, tell=_discarded, command="refused discard", grave=True, blocks=True)
    def discard(self, request_id: str, **acting: Unpack[Acting]) -> bool:
        """Delete a refused request.

        Returns False where the request is gone. Raises InvalidJob while another author acts on the request.
        """
        return self._take_out("discard", request_id, None, act_of(**acting))

    def _take_out(self, act: str, request_id: str, edited: str | None, author: str) -> bool:
        """Write the act into the audit trail, which only one author may do for a request at a time, then requeue or
        discard the request. If the process was killed in between, a repeated call does the rest.
        """
        from coordinator.inbox.refused import content_of
        from coordinator.ops.verbs.trail import note_act

        request = self._refused.find(request_id)
        if request is None:
            return False
        content = content_of(request, edited) if act == "requeue" else None
        about = (f"{request.queue}: {request.reason}", "" if edited is None else "edited")
        note_act(self._core.store, act, "request", request_id, f"refused {request_id}", author, *about, seconds=60)
        return self._refused.take_out(request, content)

    @property
    def _refused(self) -> RefusedRequests:
        from coordinator.inbox.refused import RefusedRequests

        queues = self._core.store.read("SMEMBERS", self._core.store.key("inboxes", self._bound.main or ""))
        return RefusedRequests(self._bound, sorted(queue.decode() for queue in queues))
