"""Followers also: three nodes see every change and submit its job, and the job runs once.

There is no leader. The job's id is the id of the change: the first submit puts the job in line, all others are
duplicates. So no change is missed when a node dies, whichever node that is.

Run it: python examples/follower_also.py
"""

import os
import signal

from celery import Celery
from celery.app.task import Task
from kombu import Queue
from kombu.common import Broadcast
from onemachine import Machine, say, until

from coordinator import Coordinator

NODES = ("one", "two", "three")

app = Celery("follower_also")
CHANGES = Broadcast("changes")  # every node has its own queue for these
app.conf.task_queues = [Queue("celery"), CHANGES]
app.conf.task_routes = {"follower_also.hear": {"queue": "changes"}}
coordinator = Coordinator(app)


@app.task(bind=True, ignore_result=True)
def hear(self: Task, change: str, first_dies: bool) -> None:
    """Runs on every node."""
    made = coordinator.submit("link/7", apply.s(change), job_id=change)
    dies = first_dies and made.outcome != "duplicate"
    say(f"{self.request.hostname} heard of {change}: {made.outcome}{', and is killed' if dies else ''}")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task
def apply(change: str) -> str:
    say(f"{change} is applied")
    return change


def main() -> None:
    with Machine() as machine:
        machine.workers("follower_also", coordinator, *NODES, pool="solo")
        for change, first_dies in (("link-7-down", False), ("link-7-up", True)):
            hear.apply_async((change, first_dies), declare=[CHANGES.exchange])
            until(lambda change=change: sum(f"heard of {change}" in line for line in machine.lines) == len(NODES))
            job = coordinator.wait(change, 60)
            until(lambda change=change: f"{change} is applied" in machine.lines)
            ran = machine.lines.count(f"{change} is applied")
            machine.say(f"{change}: {job.state}, applied {ran} time, in attempt {job.attempt}")


if __name__ == "__main__":
    main()
