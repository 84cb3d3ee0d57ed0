"""Sends the events of objects (new, changed, …) to the task that TASKS_ON_OBJECT names, and lists events by number.

The database stores the events. Each is delivered by one job in the lane of its object: the declared task, then
`note_delivered`. Delivery is at least once, and one event at a time for each object: `send_events` submits an event
again until it is noted as delivered, even if Redis has lost the job. A repeated event has the same number.
"""

import hashlib
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from celery import chain

from coordinator import Submission, UnknownJob
from coordinator.extending import validation
from tasks import instants
from tasks.app import app, coordinator
from tasks.catalog.events import AT_ONCE, ObjectEvent, ObjectEvents
from tasks.service import service

LANE = "events"
AHEAD = 5000  # most events that have a job in Redis at the same time; the others wait in the database
AGAIN = 60.0  # seconds after which an event that is not delivered is submitted again
ATTEMPTS = 20  # attempts of a delivery, about an hour: pauses double up to five minutes. Then the job is held
ASK_EACH = 100  # `send_events` is submitted at each number that this divides, to replace delivered events in Redis

logger = logging.getLogger(__name__)


def lane_of(pid: str) -> str:
    """The key of the lane of an object's events; the pid is hashed if it is too long or has control characters."""
    key = f"object/{pid}"
    return key if validation.is_id(key) else f"object/sha256:{hashlib.sha256(pid.encode()).hexdigest()}"


def after(number: int | None = None, most: int = AT_ONCE) -> list[ObjectEvent]:
    """Read up to `most` events after the event `number`, in order; None: from the oldest event that is still stored.

    Raises EventsForgotten if events after `number` have been deleted already.
    """
    return _events().after(number, most)


def last() -> int:
    """The number of the newest event; 0: there has been no event."""
    return _events().last()


def waiting() -> tuple[int, datetime | None]:
    """The number of events that the declared task has not received, and the date of the oldest; None: none waits."""
    return _events().waiting()


def ask() -> None:
    """Submit a job of `send_events`, if TASKS_ON_OBJECT names a task."""
    if service().settings.on_object:
        coordinator.submit(LANE, send_events.s(), when_busy="defer")


@app.task(name="tasks.events.send_events")
def send_events() -> int:
    """Submit a job for each event that is due: new, or not delivered within AGAIN seconds. Returns their number."""
    events, count = _events(), 0
    while due := events.due(instants.now() - timedelta(seconds=AGAIN), AHEAD):
        submissions = coordinator.submit_many(
            (lane_of(event.pid), _delivery(event), {
                "job_id": event.id, "max_attempts": ATTEMPTS, "on_failure": "hold",
            }) for event in due
        )  # fmt: skip
        events.sent([event.number for event in due], instants.now())
        _resume_ended([event for event in due if event.sent], submissions)
        count += len(due)
    return count


def _delivery(event: ObjectEvent) -> chain:
    """The chain that delivers an event: the declared task, then `note_delivered`, both in the queue of that task."""
    task = app.tasks[service().settings.on_object]
    fields = {name: value for name, value in event._asdict().items() if name not in ("sent", "delivered")}
    fields["at"] = instants.full(event.at)
    noted, queue = note_delivered.si(event.number, event.id), getattr(task, "queue", None)
    return chain(task.si(fields), noted.set(queue=queue) if queue else noted)


def _resume_ended(again: Sequence[ObjectEvent], submissions: Sequence[Submission]) -> None:
    """Retry the failed jobs of undelivered events. An event whose job was cancelled counts as delivered.

    `again`: events that were submitted before. `submissions`: the answers of Redis, which tell the jobs that ended.
    """
    over = {answer.id for answer in submissions if answer.outcome == "duplicate" and answer.position < 0}
    for event in (event for event in again if event.id in over):
        try:
            state = coordinator.job(event.id).state
            if state == "cancelled":
                logger.warning("event %s of object %s is not sent: its job was cancelled", event.number, event.pid)
                note_delivered(event.number, event.id)
            elif state != "succeeded":
                coordinator.retry(event.id, why=f"event {event.number} is not delivered", by=LANE)
        except UnknownJob:  # the job's record has expired meanwhile; the next `send_events` submits a new job
            continue


@app.task(name="tasks.events.note_delivered")
def note_delivered(number: int, event_id: str) -> None:
    """Note in the database that the declared task has received an event; submit `send_events` if more are due."""
    if _events().delivered(number, event_id, instants.now()) or number % ASK_EACH == 0:
        ask()


@app.task(name="tasks.events.forget_events")
def forget_events() -> int:
    """Delete events older than TASKS_KEEP_EVENTS, unless they wait for the declared task. Returns their number."""
    settings = service().settings
    before = instants.now() - timedelta(seconds=settings.keep_events)
    return _events().forget(before, undelivered=not settings.on_object)


def _events() -> ObjectEvents:
    return ObjectEvents(service().catalog.engine)
