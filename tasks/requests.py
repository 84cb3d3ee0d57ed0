"""Ad-hoc requests: messages on the broker's queue `coordinator.refresh`. Every way to ask for a sync sends one."""

import uuid
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints

from coordinator.broker.confirmed import TWICE, confirmed
from coordinator.inbox.as_it_is import request_queue
from coordinator.inbox.inbox import Refused
from tasks.app import app, coordinator
from tasks.service import service
from tasks.sync import synchronize

QUEUE = "coordinator.refresh"

Text = Annotated[str, StringConstraints(min_length=1, max_length=800)]


class Request(BaseModel):
    """`pid`: just this object, else every change. `complete`: everything from the member's beginning.

    `id`: the id of the job, by which it can be found and waited for.

    A message calls the member `node`; it may also say `member`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    member: Annotated[Text, Field(validation_alias=AliasChoices("node", "member"), serialization_alias="node")]
    pid: Text | None = None
    complete: bool = False
    id: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    reason: Annotated[str, Field(max_length=2000)] | None = None


def handle(request: Request) -> None:
    """Submit the member's sync. Raises Refused for a member that is unknown or cannot be synchronized."""
    found = service().nodelist.member(request.member)
    if found is None:
        raise Refused(f"unknown member {request.member}: it is not in the nodelist")
    if found.obstacle is not None:
        raise Refused(f"{request.member}: {found.obstacle}")
    pids = [request.pid] if request.pid else []
    synchronize(request.member, pids, complete=request.complete, job_id=request.id)


def refresh(member_id: str, pid: str | None = None, reason: str | None = None, *, complete: bool = False) -> str:
    """Ask for a member's sync now. Returns the id of its job, for `coordinator.wait(id)`.

    The request is a message. The job exists as soon as a node has taken the message in.
    """
    request = Request(member=member_id, pid=pid, complete=complete, id=str(uuid.uuid4()), reason=reason)
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


coordinator.inbox(QUEUE, Request, handle)
