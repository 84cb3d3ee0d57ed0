"""How a beat puts the instants of backfills in line: `room_of` at a time, so that a stop takes few out, and a tick of
the entry finds few in its lane.

One step of Redis takes an instant and submits its job: of any number of beats, one does. The jobs have a lower priority
than those of ticks, wait in line whatever `when_busy` says, and use the quota of the backfill.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import cast

from celery import Celery
from celery.utils.log import get_logger

from coordinator.core.jobs.options import SubmitOptions
from coordinator.core.jobs.request import JobRequest
from coordinator.core.jobs.spec import Signature, SignatureOptions
from coordinator.core.jobs.uses import read_uses
from coordinator.core.store.step import Call, many
from coordinator.core.store.steps import backfill_fail, backfill_look, backfill_take
from coordinator.core.store.times import instant
from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable
from coordinator.scheduler.backfill import ending_of, quota_of
from coordinator.scheduler.entry import Entry, tick_id
from coordinator.scheduler.entry_plan import EntryPlan
from coordinator.scheduler.ticks import BeatHost

_ABOUT_TIME = ("countdown", "eta", "expires")  # of a tick; an instant of a backfill is past
_LEAST = -255  # the least priority of a job

logger = get_logger("coordinator.scheduler.beat")


def room_of(keys: object, at_once: int) -> int:
    """How many jobs of a backfill may be in line and at work: those that run, and as many that follow at once. A lane
    runs one at a time.
    """
    return 2 if keys else 2 * at_once


class Backfilling:
    """Puts the instants of backfills in line, for one beat process."""

    def __init__(self, app: Celery, host: BeatHost) -> None:
        self._app = app
        self._store, self._host = host.store, host

    def go_on(self, plan: EntryPlan, at_once: int) -> None:
        """Put as many instants of the entry in line as there is room for. Raises StoreUnavailable and StoreRefused."""
        name = plan.entry.name
        try:
            keys, signature, options = self._parts(plan.entry)
            room = room_of(keys, at_once)
            found = backfill_look(self._store, name, room)
            instants = [instant(int(ms)) for ms in found[1::2]]
            calls = [self._call(plan, keys, signature, options, at, room) for at in instants]
        except (StoreUnavailable, StoreRefused):
            raise
        except Exception as error:
            self._fail(plan, error)
            return
        for at, reply in zip(instants, many(self._store, calls), strict=True):
            outcome, why = self._store.checked(reply)
            if outcome == "refused":
                quota, _, units = why.partition("\n")
                bound = f"has {units} units" if units != "0" else "is not declared any more"
                self._fail(plan, InvalidJob(f"quota {quota} {bound}"))
                return
            if outcome not in ("stale", "over", "full"):
                logger.info("backfill %s: %s", tick_id(name, at), outcome)

    def _fail(self, plan: EntryPlan, error: Exception) -> None:
        logger.error("cannot make the jobs of the backfill of %s: %s", plan.entry.name, error)
        message = str(error) if isinstance(error, InvalidJob) else f"{type(error).__name__}: {error}"
        backfill_fail(self._store, plan.entry.name, plan.hash, message[:200])

    def _call(
        self, plan: EntryPlan, keys: object, signature: Signature, options: SubmitOptions, at: datetime, room: int
    ) -> Call[tuple[str, str]]:
        name = plan.entry.name
        instance: SubmitOptions = {"instance": at} if plan.entry.instance else {}
        made: JobRequest = self._host._requests.make(cast("str", keys), signature, {**options, **instance})
        which = f"{name}\n+{round(at.timestamp() * 1000)}"
        job = (tick_id(name, at), *made.step_args()[1:], "seldom", 1, "tick", which)
        return backfill_take.of(name, plan.hash, ending_of(name, at), room, *job)

    def _parts(self, entry: Entry) -> tuple[object, Signature, SubmitOptions]:
        """The keys, the signature and the submit options that the jobs of an entry's backfill share.

        A task that is keyed itself has the lane of its own, as it has when a beat sends it. The job of any other entry
        without a key stands in no lane.
        """
        own = {name: value for name, value in (entry.options or {}).items() if name not in _ABOUT_TIME}
        if entry.key is None:  # options of a message, of which a job has none
            own = {name: value for name, value in own.items() if name in SignatureOptions.__annotations__}
        signature = cast(
            Signature,
            self._app.signature(entry.task, args=list(entry.args or ()), kwargs=dict(entry.kwargs or {}), options=own),
        )
        keys: object = entry.key
        given: SubmitOptions = entry.submit
        keyed = self._host._keyed_tasks.named(entry.task) if entry.key is None else None
        if keyed:
            signature = self._host._keyed_tasks.checked_arguments(signature, 0) or signature
            keys, given = keyed.keys_of(signature), keyed.options_of(signature)
        return keys or [], signature, _late(entry, given, own)


def _late(entry: Entry, given: SubmitOptions, own: Mapping[str, object]) -> SubmitOptions:
    """The submit options of an entry without what only a tick needs: what it does in a busy lane, and its time."""
    without = ("max_waiting", "not_before", "instance", "when_busy", "collect")
    options = {name: value for name, value in given.items() if name not in without}
    if (given.get("collect") or {}).get("how") == "list":
        options["collect"] = {"how": "list", "most": 1}  # its body takes no other argument
    uses = read_uses(options.get("uses") or ())
    priority = options.get("priority")
    if priority is None:
        priority = own.get("priority") or 0
    options |= {"job_id": None, "uses": {**uses, quota_of(entry.name): 1}, "if_unknown": "wait"}
    options["priority"] = max(_LEAST, min(cast("int", priority), 0) - 1)
    return cast(SubmitOptions, options)
