"""An ordinary Celery app of the tests; the lines marked (*) are all that gives it ordered keys."""

import os
import signal
import time

from celery import Celery
from celery.app.task import Task
from celery.exceptions import SoftTimeLimitExceeded
from pydantic import BaseModel, ConfigDict

from coordinator import Call, Coordinator, Refused, current_job, wait_for  # (*)
from coordinator.core.store.library import assemble
from tests.harness.apps.stamps import opened, stamps_in

time.sleep(float(os.environ.get("TEST_IMPORT", 0)))
app = Celery("shop", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
if os.environ.get("TEST_MASTER"):
    _options["master_name"] = os.environ["TEST_MASTER"]
if os.environ["TEST_BROKER"].startswith(("redis", "sentinel")):
    app.conf.broker_transport_options = _options
app.conf.result_backend_transport_options = _options
app.conf.worker_hijack_root_logger = False
if os.environ.get("TEST_PREFETCH"):
    app.conf.worker_disable_prefetch = False
if os.environ.get("TEST_PRIORITIES"):
    app.conf.task_queue_max_priority = int(os.environ["TEST_PRIORITIES"])
if os.environ.get("TEST_QUORUM"):
    app.conf.task_default_queue_type = "quorum"

coordinator = Coordinator(app)  # (*)
if os.environ.get("TEST_VERSION"):
    coordinator.store.library = assemble(before=f"-- {os.environ['TEST_VERSION']}\n")

_log = opened()
stamp = stamps_in(_log)


@app.task
def work(name: str, seconds: float = 0.0) -> str:
    """Note begin and end; take so long."""
    stamp(name, "begin")
    if seconds:
        time.sleep(seconds)
    stamp(name, "end")
    return name


@app.task
def of_instant(seconds: float) -> str:
    """Work on the instant of the own tick."""
    job = current_job()
    assert job
    assert job.instant
    return work.run(str(job.instant.year), seconds)  # type: ignore[no-any-return]


@app.task
def held(name: str) -> str:
    """Works until the test says that it may end."""
    stamp(name, "begin")
    _log.blpop([f"{os.environ['TEST_PREFIX']}.go.{name}"], 110)
    stamp(name, "end")
    return name


@app.task
def gather(calls: list[Call]) -> list[str]:
    """Gets a list of calls, each with a name; with one that is to be held, it works until the test lets it go."""
    names = [str(call.args[0]) for call in calls]
    stamp(" ".join(names), "begin")
    if any(call.kwargs.get("hold") for call in calls):
        _log.blpop([f"{os.environ['TEST_PREFIX']}.go.{names[0]}"], 110)
    stamp(" ".join(names), "end")
    return names


@app.task
def toil(name: str, times: int) -> int:
    """So many short sleeps: a process that is stopped again and again does fewer of them. Returns who did it."""
    stamp(name, "begin")
    for _ in range(times):
        time.sleep(0.01)
    stamp(name, "end")
    return os.getpid()


@app.task
def ask(name: str, deadly: bool = False) -> object:
    """Wait for the event of this name, and go on with its value."""
    stamp(name, "begin")
    return wait_for(name, timeout=60, then=decided.s(name, deadly), otherwise=work.s(name))


@app.task
def decided(value: object, name: str, deadly: bool) -> object:
    """Note the value. `deadly`: the first process that does so dies by it."""
    stamp(name, f"got {value}")
    if deadly and _log.incr(f"{os.environ['TEST_PREFIX']}.deaths.{name}") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def fail(text: str = "no") -> None:
    stamp(text, "begin")
    raise ValueError(text)


@app.task
def unite(name: str, pids: list[str] | None = None) -> list[str] | None:
    stamp(f"{name}:{','.join(pids) if pids else '*'}", "begin")
    return pids


@app.task(bind=True, max_retries=5)
def again(self: Task, name: str, until: int) -> int:
    """Retries itself until its attempt `until`."""
    stamp(name, "begin")
    if (job := current_job()) and job.attempt < until:
        raise self.retry(countdown=0)
    return self.request.retries


@app.task(autoretry_for=(OSError,), retry_backoff=False, default_retry_delay=0)
def auto(name: str, until: int) -> int:
    stamp(name, "begin")
    job = current_job()
    assert job
    if job.attempt < until:
        raise OSError("not yet")
    return job.attempt


@app.task
def die(name: str) -> None:
    stamp(name, "begin")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def soft(name: str, seconds: float) -> str:
    """What a body may do about a soft limit."""
    stamp(name, "begin")
    try:
        time.sleep(seconds)
    except SoftTimeLimitExceeded:
        return "soft limit seen"
    return "no limit"


@app.task
def note(name: str) -> None:
    """What links call: ordinary tasks."""
    stamp(str(name), "noted")


@app.task
def note_error(uuid: str) -> None:
    stamp(str(uuid), "error")


@app.task(bind=True)
def whoami(self: Task) -> dict[str, object]:
    job = current_job()
    assert job
    job.progress(1, 2)
    return {"id": self.request.id, "job": job.id, "key": job.key, "retries": self.request.retries, "pid": os.getpid()}


class Request(BaseModel):
    """A message on the broker queue `shop.refresh`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    pid: str | None = None
    id: str | None = None


def take_in(request: Request) -> None:
    if request.name == "nobody":
        raise Refused(f"unknown name {request.name}")
    signature = unite.s(request.name, pids=[request.pid] if request.pid else None)
    coordinator.collect(f"inbox/{request.name}", signature, how="merge", job_id=request.id)


coordinator.inbox("shop.refresh", Request, take_in)


@app.task
def undo(name: str) -> dict[str, object]:
    """A rollback: notes what it was given."""
    stamp(name, "undone")
    job = current_job()
    assert job
    assert job.undoing
    return {
        "args": list(job.undoing.args),
        "error": (job.undoing.error or {}).get("type"),
        "result": job.undoing.result,
    }


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)
