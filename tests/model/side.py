"""One installation of the app that both sides have: its public calls, its tasks, and what can be looked at.

The tasks act on their own installation by a script: a list of calls, whose answers go into a diary.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from typing import Any

from celery import Celery
from celery.app.task import Task

from coordinator import Conflict, Coordinator, CoordinatorError, Grab, Lease, NoRetry, current_job
from coordinator.jobs.record import Job
from coordinator.lanes.lane import Lane

LONG = 10_000_000.0  # seconds in which no lease and no record ends
DEEPEST, MOST = 5, 300  # calls of tasks within calls, and at all
ENDS = ("raise", "conflict", "no retry", "value", "park", "eager")  # parts of a script: how the task ends
TIMES = ("submitted", "taken", "started", "ended", "first", "due")

# What the fixture leaves out, as its docstring says. It is not compared, or not asked for.
LEFT_OUT = {
    "_host": "the two coordinators differ",
    "due": "a sorter's orders go in line when the test says so",
    "traceback": "the frames of the two drivers differ",
    "at": "the two clocks differ",
    "fence": "that they grow alike is compared apart",
}


# Ids that are drawn by chance.
DRAWN = re.compile(r"grab:[0-9a-f]{24}|(lock-)?[0-9a-f]{8}-[0-9a-f-]{27}|lock-[0-9a-f]{32}")


class Side:
    """One installation."""

    def __init__(self, name: str, url: str) -> None:
        self.app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
        self.app.conf.update(task_always_eager=True, task_store_eager_result=True)
        self.coordinator = Coordinator(
            self.app, url=url, prefix=name, fair_by=lambda key: "", lock_ttl=LONG, node_ttl=LONG, max_lifetime=LONG,
            keep_success=LONG, keep_failure=LONG, slice=1e-9, retry_delay=0.0, timeout=60,
        )  # fmt: skip
        self.diary: list[Any] = []
        self.tasks = tasks_of(self)

    def begin(self) -> None:
        self.diary.clear()
        self.depth = self.called = 0
        self.of_tasks: set[str] = set()
        self.locks: dict[str, AbstractContextManager[Lease]] = {}
        self.grabs: dict[tuple[str, str], Grab] = {}

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        """The answer of a public call, or the type of its error."""
        try:
            return (getattr(self, f"_{name}", None) or getattr(self.coordinator, name))(*args, **options)
        except CoordinatorError as error:
            return type(error).__name__

    def end(self) -> None:
        for key in list(self.locks):
            self.call("unlock", key)

    def seen(self, ids: list[str], keys: list[str]) -> dict[str, Any]:
        """All that can be looked at."""
        jobs = dict(zip(ids, self.jobs(ids), strict=True))
        fences = {job.fence: job_id for job_id, job in jobs.items() if job and job.fence}
        diary = self.diary[:]
        self.diary.clear()
        return plain_text({
            "jobs": jobs,
            "fences": [fences[fence] for fence in sorted(fences)],  # by how much they grow does not matter
            "lines": self.lines(keys),
            "counts": self.coordinator.counts(),
            "sorters": self._held(),
            "diary": diary,
        })  # fmt: skip

    def flush(self, *names: str) -> None:
        raise NotImplementedError

    def jobs(self, ids: list[str]) -> Iterator[Job | None]:
        raise NotImplementedError

    def lines(self, keys: list[str]) -> list[Lane]:
        raise NotImplementedError

    # Calls that are more than one of the coordinator's

    def _submit(self, keys: Any, signature: Mapping[str, Any], **options: Any) -> Any:
        return self.coordinator.submit(keys, self.signature(signature), **self._made(options))

    def _submit_many(self, jobs: list[tuple[Any, Mapping[str, Any], dict[str, Any]]]) -> Any:
        return self.coordinator.submit_many(
            [(keys, self.signature(given), self._made(options)) for keys, given, options in jobs]
        )

    def _made(self, options: dict[str, Any]) -> dict[str, Any]:
        undo = options.get("rollback")
        return options | ({"rollback": self.signature(undo)} if undo else {})

    def _add(self, sorter: str, order: str, keys: Any, signature: Mapping[str, Any], **options: Any) -> Any:
        found = self.coordinator.sorter(sorter, idle_timeout=LONG)
        return found.add(order, keys, self.signature(signature), **self._made(options))

    def _lock(self, key: str, wait: float = 0.0) -> Any:
        """Held until `unlock`."""
        if key in self.locks:
            return "ours"
        held = self.coordinator.lock(key, LONG, wait)
        lease = held.__enter__()
        self.locks[key] = held
        if self.depth:
            self.of_tasks.add(key)
        return lease.key

    def locked_by_tasks(self) -> bool:
        return bool(self.of_tasks & self.locks.keys())

    def _unlock(self, key: str) -> None:
        self.of_tasks.discard(key)
        if held := self.locks.pop(key, None):
            held.__exit__(None, None, None)

    def _grab_here(self, key: str, instance: str) -> Any:
        """One that is won stays ours until `end_grab`."""
        grab = self.coordinator.grab(key, instance, "a process", LONG, keep=LONG)
        if grab.won:
            self.grabs[key, instance] = grab
        return grab.told(), grab.attempt

    def _end_grab(self, key: str, instance: str, end: str) -> Any:
        ours = self.grabs.get((key, instance))
        if ours is None:
            return self.coordinator.grab(key, instance, "a process", LONG, keep=LONG).wait(0) if end == "wait" else None
        if end in ("complete", "fail"):
            del self.grabs[key, instance]
            getattr(ours, end)("so")
        return (ours.check() if end == "check" else None), ours.state, ours.won

    def _seen_grabs(self) -> Any:
        """In an order that goes by no clock."""
        return sorted(self.coordinator.grabs(), key=lambda one: (one.key, one.instance))

    def _wait(self, job_id: str) -> str:
        return self.coordinator.wait(job_id, 0).state

    def _flush(self, *names: str) -> None:
        self.flush(*names)

    def _held(self) -> Any:
        sorters = self.coordinator.sorters()
        return [*sorters, *(self.coordinator.sorter(one.name).orders() for one in sorters)]

    def signature(self, given: Mapping[str, Any]) -> Any:
        """Of {"task", "script", "link", …}; {"steps": […]} is a chain."""
        if "steps" in given:
            first, *others = (self.signature(one) for one in given["steps"])
            for one in others:
                first = first | one
            return first
        made = self.tasks[given["task"]].s(given["script"], **given.get("kwargs", {}))
        made.set(immutable=given.get("immutable", True))
        for kind in ("link", "link_error"):
            if kind in given:
                made.set(**{kind: self.tasks["told"].si(given[kind])})
        return made


def act(side: Side, script: list[Any]) -> None:
    """One call of the script after the other; `finish` says how the task ends."""
    job = current_job()
    for name, *given in script:
        if name in ENDS:
            continue
        if side.depth < DEEPEST and side.called < MOST:
            side.depth, side.called = side.depth + 1, side.called + 1
            answer = checked() if name == "check" else side.call(name, *given[0], **given[1])
            side.depth -= 1
            side.diary.append([job and job.id, name, plain_text(answer)])


def checked() -> str:
    job = current_job()
    assert job
    job.progress(job.attempt, 9)
    try:
        job.check()
    except CoordinatorError as error:
        return type(error).__name__
    return "ours"


def finish(side: Side, script: list[Any], args: tuple[Any, ...]) -> Any:
    job = current_job()
    attempt = job.attempt if job else 0
    for end in script:
        match end:
            case ["raise", until] if attempt < until:
                raise ValueError(f"before {until}")
            case ["conflict", until] if attempt < until:
                raise Conflict(f"before {until}")
            case ["no retry"]:
                raise NoRetry("never")
            case ["park", ids]:
                return [side.app.AsyncResult(one) for one in ids]
            case ["eager", well]:
                return [side.tasks["plain"].delay(well), None]
            case ["value", value]:
                return value
    return len(args)


def tasks_of(side: Side) -> dict[str, Task]:
    """The tasks of one installation; each writes into its diary."""

    @side.app.task(name="shop.work", shared=False)
    def work(*args: Any, **kwargs: Any) -> Any:
        job = current_job()
        about = job and [job.id, job.keys, job.attempt, plain_text(job.undoing)]
        side.diary.append(["work", about, [one for one in args if not isinstance(one, list)], kwargs])
        act(side, args[-1])
        return finish(side, args[-1], args)

    @side.app.task(name="shop.plain", shared=False)
    def plain(well: bool) -> str:
        if not well:
            raise ValueError("not well")
        return "plain"

    @side.app.task(name="shop.told", shared=False)
    def told(word: str) -> None:
        side.diary.append(["told", word])

    return {"work": work, "plain": plain, "told": told}


def plain_text(found: Any) -> Any:
    """Without what is left out and what chance decides."""
    if is_dataclass(found) and not isinstance(found, type):
        found = {part.name: getattr(found, part.name) for part in fields(found)}
    if isinstance(found, dict):
        return {
            name: (value is not None if name in TIMES else plain_text(value))
            for name, value in found.items()
            if name not in LEFT_OUT
        }
    if isinstance(found, list | tuple):
        return [plain_text(one) for one in found]
    return DRAWN.sub("drawn", re.sub("{.*}", "{}", found)) if isinstance(found, str) else found
