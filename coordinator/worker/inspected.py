"""Jobs as Celery's `inspect` shows tasks: with their arguments, as Redis has them.

    active      the jobs at work in this worker, as its board says
    scheduled   jobs that are to start later, or wait for their retry
    reserved    jobs that are ready for whichever node is free

The last two are at no worker. So one node tells them for all of its app: the first that lives, by name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TypedDict, cast

from celery import Celery
from kombu.utils.json import loads

from coordinator.errors import CoordinatorError
from coordinator.fleet.nodes import Nodes
from coordinator.jobs import chain
from coordinator.jobs.record import fields_of_many
from coordinator.jobs.validation import is_id
from coordinator.store.client import Store
from coordinator.store.times import instant

logger = logging.getLogger(__name__)


class Info(TypedDict):
    """A task, as Celery's `inspect` tells it."""

    id: str
    name: str
    args: Sequence[object] | None
    kwargs: dict[str, object] | str | None
    type: str
    hostname: str | None
    time_start: float | None
    acknowledged: bool
    delivery_info: dict[str, object]
    worker_pid: int | None


class Planned(TypedDict):
    """A task that is to start later."""

    eta: str
    priority: int
    request: Info


MOST = 1000  # jobs of a kind that are told
_PRIORITY = 6  # as the timer of Celery has it for each
_SPEC = ("spec", *(f"spec{number}" for number in range(1, 8)))
_FIELDS = ("state", "class", "task", "phase", "step", "back", "value", "undid", "unite")


class Inspected:
    """The jobs of one app, as its node `hostname` tells them."""

    def __init__(self, app: Celery, store: Store, hostname: str) -> None:
        self._app, self._store, self._hostname = app, store, hostname

    def active(self) -> list[Info]:
        """Without their arguments where Redis does not answer."""
        begun = {notice.job_id: (pid, notice) for pid, notice in self._app.coordinator.board.at_work()}
        try:
            known = self._known(list(begun))
        except CoordinatorError as error:
            logger.warning("cannot ask for the arguments of the jobs at work: %s", error)
            known = {}
        since = time.time() - time.monotonic()
        return [
            known.get(one, _info(one, notice.task))
            | {"hostname": self._hostname, "acknowledged": True, "time_start": since + notice.begun, "worker_pid": pid}
            for one, (pid, notice) in begun.items()
        ]

    def reserved(self) -> list[Info]:
        if not self._is_first():
            return []
        found = self._store.read("SRANDMEMBER", self._store.key("state", "ready"), MOST)
        return list(self._known([one.decode() for one in found], "ready").values())

    def scheduled(self) -> list[Planned]:
        """The earliest first."""
        if not self._is_first():
            return []
        clock, due = self._store.clock(), dict[str, float]()
        for name, ahead in (("due", clock.wall - clock.now), ("starts", 0)):
            due |= {one.decode(): at + ahead for one, at in self._earliest(self._store.key(name))}
        known = self._known(sorted(due, key=due.__getitem__)[:MOST], "scheduled", "retrying")
        return [
            {"eta": instant(due[one]).isoformat(), "priority": _PRIORITY, "request": info}
            for one, info in known.items()
        ]

    def _earliest(self, key: str) -> list[tuple[bytes, float]]:
        found = self._store.call(lambda: self._store.client.zrange(key, 0, MOST - 1, withscores=True))
        return cast(list[tuple[bytes, float]], found)

    def among(self, ids: Sequence[str]) -> list[tuple[str, Info]]:
        """Those of these ids that this node tells, each with the word for its place."""
        found = [("active", info) for info in self.active() if info["id"] in ids]
        asked = [one for one in ids if is_id(one) and one not in {info["id"] for _, info in found}]
        if not asked or not self._is_first():
            return found
        found += [("reserved", info) for info in self._known(asked, "ready").values()]
        return found + [("scheduled", info) for info in self._known(asked, "scheduled", "retrying").values()]

    def _is_first(self) -> bool:
        names = [node.name for node in Nodes(self._store).living() if node.app == self._app.main]
        return min(names, default="") == self._hostname

    def _known(self, ids: Sequence[str], *states: str) -> dict[str, Info]:
        """Those of this app, and in one of these states where some are named."""
        found = zip(ids, fields_of_many(self._store, ids, *_FIELDS, *_SPEC), strict=True) if ids else ()
        return {
            one: _info(one, task, *_arguments(phase, step, back, value, undid, unite, "".join(spec)))
            for one, (state, kind, task, phase, step, back, value, undid, unite, *spec) in found
            if kind.partition("\n")[0] in ("", self._app.main) and (state in states or (state and not states))
        }


def _arguments(
    phase: str, step: str, back: str, value: str, undid: str, unite: str, text: str
) -> tuple[list[object], dict[str, object]]:
    """Those with which the step at work, or the next one, is called."""
    spec = loads(text or "{}")
    chosen, number, before = spec, int(step or 0), value
    if phase == "rollback":
        chosen, number, before = spec["rollback"], chain.number_of(back), undid
    args = chain.arguments(chosen, number, loads(before) if before else None)
    return args, {**chain.laid(chosen, number).get("kwargs", {}), **(loads(unite) if unite else {})}


def _info(
    job_id: str, task: str, args: Sequence[object] | None = None, kwargs: dict[str, object] | None = None
) -> Info:
    """As a request tells about itself."""
    return {
        "id": job_id, "name": task, "args": args, "kwargs": kwargs, "type": task, "hostname": None, "time_start": None,
        "acknowledged": False, "delivery_info": {}, "worker_pid": None,
    }  # fmt: skip
