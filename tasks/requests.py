"""Sends and handles requests to sync a member now: messages on the broker's queue `coordinator.refresh`.

Every node consumes that queue; the node that gets a message submits the job of the sync.
"""

import uuid
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints

from coordinator import Refused
from coordinator.extending import TWICE, confirmed, request_queue
from tasks.app import app, coordinator
from tasks.service import service
from tasks.sync import synchronize

QUEUE = "coordinator.refresh"

Text = Annotated[str, StringConstraints(min_length=1, max_length=800)]


class RefreshRequest(BaseModel):
    """A request to sync one member, whose id is the field `node` or `member` of the message.

    `pid`: sync only this object; None: all changes. `complete`: list the member's objects from the beginning. `id`: the
    id of the job; None: a new one. `reason`: a text for whoever reads the message.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    member: Annotated[Text, Field(validation_alias=AliasChoices("node", "member"), serialization_alias="node")]
    pid: Text | None = None
    complete: bool = False
    id: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    reason: Annotated[str, Field(max_length=2000)] | None = None


def handle(request: RefreshRequest) -> None:
    """Submit the requested sync. Raises Refused for a member that is unknown or that cannot be synchronized."""
    member = service().nodelist.member(request.member)
    if member is None:
        raise Refused(f"unknown member {request.member}: it is not in the nodelist")
    if member.obstacle is not None:
        raise Refused(f"{request.member}: {member.obstacle}")
    pids = [request.pid] if request.pid else []
    synchronize(request.member, pids, complete=request.complete, job_id=request.id)


def refresh(
    member_id: str, pid: str | None = None, reason: str | None = None, *, complete: bool = False, job_id: str = ""
) -> str:
    """Publish a request for a member's sync. Returns the id that the job will have, for `coordinator.wait(id)`.

    The job exists once a node has read the message. `pid`, `reason`, `complete`: as in RefreshRequest. `job_id`: the id
    of the job; empty: a new one. Repeated calls with the same id lead to one sync.
    """
    request_id = job_id or str(uuid.uuid4())
    request = RefreshRequest(member=member_id, pid=pid, complete=complete, id=request_id, reason=reason)
    with confirmed(app) as producer:
        producer.publish(
            request.model_dump(by_alias=True, exclude_defaults=True),
            serializer="json",
            exchange="",
            routing_key=QUEUE,
            declare=[request_queue(QUEUE)],
            retry=True,
            retry_policy=TWICE,
        )
    return str(request.id)


coordinator.inbox(QUEUE, RefreshRequest, handle)
