"""The app of the laboratory: its tasks write down what they do, and guard what they change with their fence."""

import os
import select
import signal
import time
from typing import Any

from celery import Celery

from coordinator import Coordinator, current_job
from proof.witness import Witness

if os.environ.get("FAKETIME"):
    # libfaketime leaves the monotonic clock as it is, but not a sleep until an instant of that clock.
    time.sleep = lambda seconds: select.select((), (), (), float(seconds)) and None

app = Celery("shop", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
if os.environ.get("TEST_MASTER"):
    _options["master_name"] = os.environ["TEST_MASTER"]
if not os.environ["TEST_BROKER"].startswith("amqp"):
    app.conf.broker_transport_options = _options
else:
    app.conf.broker_heartbeat = 4  # as docs/operations.md advises: a connection that swallows is seen at last
app.conf.result_backend_transport_options = _options
app.conf.task_default_queue = os.environ["COORDINATOR_PREFIX"]
coordinator = Coordinator(app)
witness = Witness.here()


def cell_of(key: str, job: str, wide: bool) -> str:
    """Where its limit is above 1, a fence orders the runs of a job only."""
    return f"{key} {job}" if wide else key


@app.task
def work(seconds: float = 0.0, step: int = 0, fail: bool = False, until: int = 1) -> str:
    """Change the cell of each key once, and take so long. `fail`: raise, as also each attempt before `until`."""
    job = current_job()
    assert job
    about: dict[str, Any] = {"job": job.id, "fence": job.fence, "step": step}
    cells = {key: cell_of(key, job.id, key.startswith("wide")) for key in job.keys}
    witness.begin([*cells.values()], keys=job.keys, attempt=job.attempt, **about)
    time.sleep(seconds)
    if fail or job.attempt < until:
        witness.note("fail", "run", **about)
        raise ValueError("this one fails")
    instant = {"tick": job.key, "at": int(job.instant.timestamp())} if job.instant else {}
    for cell in cells.values():
        witness.write(cell, job.fence, f"{job.id} {step}", **instant)
    time.sleep(seconds / 4)
    witness.note("ok", "run", **about)
    return job.id


@app.task
def undo() -> None:
    """The rollback."""


@app.task
def die() -> None:
    """Kill the own process."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def part(number: int) -> int:
    """An ordinary task, as sub-tasks are."""
    return number


@app.task
def parts(seconds: float) -> object:
    """Return the handle of three ordinary tasks: the job is parked until they end."""
    from celery import group

    work(seconds)
    return group(part.s(number) for number in range(3)).apply_async()


@app.task(coordinate={"key": "keyed/{number}"})
def keyed(number: int, seconds: float) -> str:
    """A keyed task: `delay` puts it in line."""
    return str(work(seconds))


if os.environ.get("PROOF_ITEMS"):
    import proof.items  # noqa: F401
