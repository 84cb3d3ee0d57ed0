"""The app of the laboratory: its tasks note what they do, and guard their writes with their fence."""

import os
import signal
import time
from collections.abc import Collection
from typing import Any

from celery import Celery

from coordinator import Call, Coordinator, current_job, wait_for
from proof.witness import Witness

app = Celery("shop", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
if os.environ.get("TEST_MASTER"):
    _options["master_name"] = os.environ["TEST_MASTER"]
if not os.environ["TEST_BROKER"].startswith("amqp"):
    app.conf.broker_transport_options = _options
else:
    app.conf.broker_heartbeat = 4  # as docs/operations.md advises, to detect a half-open connection
app.conf.result_backend_transport_options = _options
app.conf.task_default_queue = os.environ["COORDINATOR_PREFIX"]
_loads = {"PROOF_ITEMS": "proof.items", "PROOF_OUTBOX": "proof.outbox"}
app.conf.imports = [module for variable, module in _loads.items() if os.environ.get(variable)]  # they need what follows
coordinator = Coordinator(app)
witness = Witness.here()


def cells_of(keys: Collection[str], job: str) -> list[str]:
    """A cell of each key; of the job alone where it stands in no lane, since fences order only its own runs then."""
    return [*keys] or [f"alone {job}"]


@app.task
def work(
    seconds: float = 0.0, step: int = 0, fail: bool = False, until: int = 1, uses: dict[str, int] | None = None,
    first: str = "", second: str = "",
) -> str:  # fmt: skip
    """Change the cell of each key once, within `seconds`. `fail`: raise; each attempt before `until` does, too. `uses`:
    the units of quotas that it has. `first`, `second`: results of jobs after which it runs, or the value of an event.
    """
    job = current_job()
    assert job
    about: dict[str, Any] = {"job": job.id, "fence": job.fence, "step": step}
    cells = cells_of(job.keys, job.id)
    given: dict[str, Any] = {"given": [first, second]} if first else {}
    witness.begin(cells, keys=job.keys, attempt=job.attempt, uses=uses or {}, **given, **about)
    time.sleep(seconds)
    if fail or job.attempt < until:
        witness.note("fail", "run", **about)
        raise ValueError("this one fails")
    instant = {"tick": job.id.rpartition("@")[0], "at": int(job.instant.timestamp())} if job.instant else {}
    for cell in cells:
        witness.write(cell, job.fence, f"{job.id} {step}", **instant)
    time.sleep(seconds / 4)
    witness.note("ok", "run", **about)
    return job.id


@app.task
def gather(calls: list[Call]) -> None:
    """Change the cell of the key once, for a list of calls."""
    job = current_job()
    assert job
    about: dict[str, Any] = {"job": job.id, "fence": job.fence, "step": 0}
    names = [str(call.args[0]) for call in calls]
    witness.begin([*job.keys], keys=job.keys, attempt=job.attempt, uses={}, calls=names, **about)
    time.sleep(max(float(str(call.args[1])) for call in calls))
    for cell in job.keys:
        witness.write(cell, job.fence, f"{job.id} 0")
    witness.note("ok", "run", **about)


@app.task
def undo() -> None:
    """The rollback."""


@app.task
def die() -> None:
    """Kill the own process."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def part(number: int) -> int:
    """An ordinary task, as a sub-task."""
    return number


@app.task
def parts(seconds: float) -> object:
    """Return the handle of three ordinary tasks: the job is parked until they end."""
    from celery import group

    work(seconds)
    return group(part.s(number) for number in range(3)).apply_async()


@app.task
def wait(seconds: float, event: str) -> object:
    """Wait for an event, without a worker; then change the cell of each key once more."""
    work(seconds)
    return wait_for(event, timeout=600, then=go_on.s(seconds, event))


@app.task
def go_on(value: str, seconds: float, event: str) -> str:
    """`value`: of the event."""
    return str(work(seconds, 1, first=value, second=event))


@app.task(coordinate={"key": "keyed/{number}"})
def keyed(number: int, seconds: float) -> str:
    """A keyed task."""
    return str(work(seconds))
