"""Another app over the same coordinator's Redis, and what its jobs hand on: sub-results, orders, guarded writes."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from celery import Celery, group
from celery.result import AsyncResult

from coordinator import Coordinator, LeaseLost, StoreUnavailable, Submission, current_job
from tests.harness.apps.stamps import opened, stamps_in

app = Celery("depot", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
app.conf.broker_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
app.conf.result_backend_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
app.conf.worker_hijack_root_logger = False
app.conf.task_default_queue = "depot"

coordinator = Coordinator(app)

_log = opened()
stamp = stamps_in(_log)
_name = os.environ["TEST_PREFIX"]
# What a store does that is guarded by a fence: it refuses whoever comes after a greater one.
_WRITE = """local seen = tonumber(redis.call('GET', KEYS[1]) or '0')
if seen > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1"""


@app.task
def work(name: str, seconds: float = 0.0) -> str:
    stamp(name, "begin")
    time.sleep(seconds)
    stamp(name, "end")
    return name


@app.task(name="tests.harness.apps.shop.work")
def namesake(name: str, seconds: float = 0.0) -> None:
    """What a job of the shop would run if it came here."""
    stamp(name, "astray")


@app.task
def step(before: list[str], name: str, seconds: float = 0.0) -> list[str]:
    """A step of an order: what the steps before it were called, and its own name."""
    stamp(name, "begin")
    time.sleep(seconds)
    stamp(name, "end")
    return [*before, name]


@app.task
def fail(name: str, seconds: float = 0.0) -> None:
    stamp(name, "begin")
    time.sleep(seconds)
    stamp(name, "end")
    raise ValueError(name)


@app.task
def stumble(before: list[str], name: str, until: int, deadly: bool = False) -> list[str]:
    """A step that raises, or kills its process, before the job's attempt `until`."""
    stamp(name, "begin")
    job = current_job()
    if job and job.attempt < until:
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError(name)
    return [*before, name]


@app.task
def held(name: str, fail: bool = False) -> str:
    """Works until the test says that it may end."""
    stamp(name, "begin")
    _log.blpop([f"{_name}.go.{name}"], 110)
    stamp(name, "end")
    if fail:
        raise ValueError(name)
    return name


@app.task(track_started=True)
def tracked(name: str) -> str:
    """As `held`; the backend hears when it begins."""
    return held(name)  # type: ignore[no-any-return]


@app.task
def guarded(name: str) -> int:
    """As `held`, then a write that is guarded by the job's fence: 1 when it was taken."""
    job = current_job()
    assert job
    stamp(name, "begin")
    _log.blpop([f"{_name}.go.{name}"], 110)
    done = int(_log.eval(_WRITE, 1, f"{_name}.guarded", job.fence))
    stamp(name, "written" if done else "refused")
    return done


@app.task
def asks(name: str) -> str:
    """Works until the test says so, then notes whether it may trust its lease."""
    job = current_job()
    assert job
    stamp(name, "begin")
    _log.blpop([f"{_name}.go.{name}"], 110)
    try:
        job.check()
        found = "trusted"
    except LeaseLost:
        found = "lost"
    except StoreUnavailable:
        found = "unknown"
    stamp(name, found)
    return found


@app.task(ignore_result=True)
def silent(name: str) -> None:
    stamp(name, "begin")


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def spread(name: str, *parts: list[list[Any] | None]) -> Any:
    """Publish sub-tasks, [task, its arguments…] each or None: the first list in the first attempt, and so on."""
    job = current_job()
    assert job
    stamp(name, "begin")
    mine = parts[min(job.attempt, len(parts)) - 1]
    return [part and app.tasks[f"tests.harness.apps.depot.{part[0]}"].delay(*part[1:]) for part in mine]


@app.task
def odd(kind: str) -> Any:
    """Results that are, or are not, handles of sub-tasks."""
    made: dict[str, Callable[[], Any]] = {
        "one": lambda: add.delay(1, 2),
        "group": lambda: group(add.s(1, 2), add.s(3, 4)).apply_async(),
        "chain": lambda: (add.s(1, 2) | add.s(10)).apply_async(),
        "slow": lambda: work.delay("last", 1.0),
        "slow chain": lambda: (work.si("first", 0.5) | work.si("last", 0.5)).apply_async(),
        "slow chord": lambda: (group(work.si("a", 0.5), work.si("b")) | work.si("last", 0.5)).apply_async(),
        "chord": lambda: (group(add.s(1, 2), add.s(3, 4)) | total.s()).apply_async(),
        "nested": lambda: [[add.delay(1, 2)]],
        "mixed": lambda: [add.delay(1, 2), 3],
        "silent": lambda: [silent.delay("silent")],
        "silent group": lambda: group(add.s(1, 2), silent.si("silent")).apply_async(),
        "silent chain": lambda: (add.s(1, 2) | silent.si("silent")).apply_async(),
        "silent chord": lambda: (group(add.s(1, 2), add.s(3, 4)) | silent.si("silent")).apply_async(),
        "silenced": lambda: (add.s(1, 2) | group(add.s(10).set(ignore_result=True), add.s(20))).apply_async(),
        "none": lambda: None,
        "empty": list,
        "nones": lambda: [None, None],
    }
    return made[kind]()


@app.task
def sub_job(key: str, name: str, when_busy: str = "queue") -> Submission:
    """A sub-result that is itself a job."""
    return coordinator.submit(key, work.s(name), when_busy=when_busy)


@app.task
def held_jobs(*names: str) -> list[Submission]:
    """A job that works until the test says so on each of these keys, unless that is busy."""
    return [coordinator.submit(name, held.s(name), job_id=name, when_busy="skip") for name in names]


@app.task
def sub_jobs(keys: list[str], number: int) -> list[AsyncResult]:
    """A job on each key, which is called by `number` and its place; that on the key "bad" fails."""
    tasks = [fail.s(key) if key == "bad" else step.s([], f"{number}{place}") for place, key in enumerate(keys)]
    return [app.AsyncResult(coordinator.submit(*job).id) for job in zip(keys, tasks, strict=True)]


@app.task
def joined(found: list[list[str]]) -> list[str]:
    return [name for names in found for name in names]


@app.task
def await_job(result: Any, job_id: str) -> None:
    """A completion callback that waits for another job."""
    stamp("callback", "begin")
    stamp("callback", coordinator.wait(job_id, 60).state)


@app.task(acks_late=True)
def late(name: str) -> str:
    """As `held`, acknowledged when it has ended."""
    stamp(name, "begin")
    _log.blpop([f"{_name}.go.{name}"], 110)
    stamp(name, "end")
    return name
