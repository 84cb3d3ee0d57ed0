"""Ad-hoc requests: messages on the broker's queue `coordinator.refresh`. All ways to ask end in that message."""

import uuid
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from coordinator.inbox import Refused
from tasks.app import app, coordinator
from tasks.service import service
from tasks.sync import synchronize

QUEUE = "coordinator.refresh"

Text = Annotated[str, StringConstraints(min_length=1, max_length=800)]


class Request(BaseModel):
    """`pid`: just this object, else everything. `id`: under which the job can be found and waited for."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    node: Text
    pid: Text | None = None
    id: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    reason: Annotated[str, Field(max_length=2000)] | None = None


def handle(request: Request) -> None:
    """Put the member's sync in line. Raises Refused for a member that is not there or is not to be synchronized."""
    member = service().nodelist.member(request.node)
    if member is None:
        raise Refused(f"unknown member {request.node}: it is not in the nodelist")
    if member.obstacle is not None:
        raise Refused(f"{request.node}: {member.obstacle}")
    synchronize(request.node, [request.pid] if request.pid else None, job_id=request.id)


def refresh(node_id: str, pid: str | None = None, reason: str | None = None) -> str:
    """Ask for a member's sync now. Returns the id under which to wait for it: `coordinator.wait(id)`.

    The request is a message; the job is there once a node has taken it in.
    """
    request = Request(node=node_id, pid=pid, id=str(uuid.uuid4()), reason=reason)
    with app.producer_pool.acquire(block=True, timeout=5) as producer:
        producer.publish(
            request.model_dump(exclude_none=True),
            serializer="json",
            exchange="",
            routing_key=QUEUE,
            retry=True,
            retry_policy={"max_retries": 2},
        )
    return str(request.id)


coordinator.inbox(QUEUE, Request, handle)
