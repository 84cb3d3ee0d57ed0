"""Sends the events of objects to the task that TASKS_ON_OBJECT names, and gives them to whoever asks from a number on.

An event is a job in the lane of its pid: the declared task, then the note that it is delivered. Each step may come
again, whoever dies: the sender submits an event under its own id until it is delivered, one for each pid. Where Redis
has forgotten a job, the sender submits it again. A repeat has the number that it had.
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
AHEAD = 5000  # jobs: the others wait in the database, not in Redis
AGAIN = 60.0  # seconds after which an event that is not delivered is submitted again
ATTEMPTS = 20  # an hour, with pauses that double up to five minutes; then the job is held
ASK_EACH = 100  # deliveries

logger = logging.getLogger(__name__)


def lane_of(pid: str) -> str:
    """The key of the lane of a pid, which may be longer than a key, and have control characters."""
    key = f"object/{pid}"
    return key if validation.is_id(key) else f"object/sha256:{hashlib.sha256(pid.encode()).hexdigest()}"


def after(number: int | None = None, most: int = AT_ONCE) -> list[ObjectEvent]:
    """The events behind this number, in their order; without a number, from the first that is kept.

    Raises EventsForgotten where some of them are not kept.
    """
    return _events().after(number, most)


def last() -> int:
    """The number of the newest event; 0 where there is none."""
    return _events().last()


def waiting() -> tuple[int, datetime | None]:
    """How many events the declared task has not had, and since when the first waits."""
    return _events().waiting()


def ask() -> None:
    """Have events sent. Nothing happens where no task is declared."""
    if service().settings.on_object:
        coordinator.submit(LANE, send_events.s(), when_busy="defer")


@app.task(name="tasks.events.send_events")
def send_events() -> int:
    """Submit the events that are due. Returns how many."""
    events, count = _events(), 0
    while due := events.due(instants.now() - timedelta(seconds=AGAIN), AHEAD):
        submissions = coordinator.submit_many(
            (lane_of(event.pid), _delivery(event), {
                "job_id": event.id, "max_attempts": ATTEMPTS, "on_failure": "hold",
            }) for event in due
        )  # fmt: skip
        events.sent([event.number for event in due], instants.now())
        _look_after([event for event in due if event.sent], submissions)
        count += len(due)
    return count


def _delivery(event: ObjectEvent) -> chain:
    """Both steps in the task's queue, where one runner does them."""
    task = app.tasks[service().settings.on_object]
    fields = {name: value for name, value in event._asdict().items() if name not in ("sent", "delivered")}
    fields["at"] = instants.full(event.at)
    noted, queue = note_delivered.si(event.number, event.id), getattr(task, "queue", None)
    return chain(task.si(fields), noted.set(queue=queue) if queue else noted)


def _look_after(again: Sequence[ObjectEvent], submissions: Sequence[Submission]) -> None:
    """Events whose jobs ended, and that are not delivered: try again those that failed. An operator's cancel leaves
    one out.
    """
    over = {answer.id for answer in submissions if answer.outcome == "duplicate" and answer.position < 0}
    for event in (event for event in again if event.id in over):
        try:
            state = coordinator.job(event.id).state
            if state == "cancelled":
                logger.warning("event %s of %s is left out: its job was cancelled", event.number, event.pid)
                note_delivered(event.number, event.id)
            elif state != "succeeded":
                coordinator.retry(event.id, why=f"event {event.number} is not delivered", by=LANE)
        except UnknownJob:  # its time was over; the next time it is submitted
            continue


@app.task(name="tasks.events.note_delivered")
def note_delivered(number: int, event_id: str) -> None:
    """Note that the declared task has had the event."""
    if _events().delivered(number, event_id, instants.now()) or number % ASK_EACH == 0:
        ask()


@app.task(name="tasks.events.forget_events")
def forget_events() -> int:
    """Delete old events, but for those that wait for the declared task. Returns how many."""
    settings = service().settings
    before = instants.now() - timedelta(seconds=settings.keep_events)
    return _events().forget(before, undelivered=not settings.on_object)


def _events() -> ObjectEvents:
    return ObjectEvents(service().catalog.engine)
