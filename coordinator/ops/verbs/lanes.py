"""The verbs for lanes, and for the instances of grabs."""

from __future__ import annotations

from datetime import datetime
from typing import Unpack

from coordinator.core.author import Acting, act_of
from coordinator.core.client.client import Client
from coordinator.core.jobs.validation import checks_arguments, shown_lane
from coordinator.core.verbs import INSTANCE, LANE, Answer, Given, Option, verb

UNTIL = Option("until", "When it ends by itself: an instant, or seconds from now. Empty: at a resume.")
HOLDER = Option(
    "holder", "Only if this job holds the lane; so it is safe to repeat.", default="", metavar="ID", form="hidden"
)
ATTEMPT = Option(
    "attempt", "Only from the winner of this attempt, as the list shows it.", kind=int, least=0, most=10**9
)


def _released(_: object, given: Given, job_id: str | None) -> Answer:
    key, holder = given["key"], given.get("holder")
    lane = shown_lane(key)
    nobody = f"job {holder} does not hold {lane}" if holder else f"nobody held {lane}"
    return {"key": key, "released": job_id}, f"{lane} is taken from job {job_id}" if job_id else nobody


def _paused(_: object, given: Given, new: bool) -> Answer:
    lane = shown_lane(given["key"])
    text = f"{lane} is paused" if new else f"{lane} was paused already; now your reason stands there"
    return {**given, "paused": new}, text


def _resumed(_: object, given: Given, was: bool) -> Answer:
    lane = shown_lane(given["key"])
    return {**given, "resumed": was}, f"{lane} goes on" if was else f"{lane} was not paused"


def _taken(_: object, given: Given, winner: str | None) -> Answer:
    key, instance = given["key"], given["instance"]
    text = f"{key} {instance} is taken from {winner}" if winner else f"nobody has {key} {instance}"
    return {"key": key, "instance": instance, "released": winner}, text


@checks_arguments
class LaneVerbs(Client):
    @verb(LANE, HOLDER, tell=_released, grave=True, many=True, plan=True)
    def release(self, key: str, *, holder: str = "", **acting: Unpack[Acting]) -> str | None:
        """Take a lane from its holder. The holder ends as cancelled, without rollback, and the next job starts.

        `holder`: take the lane from this job only, so that a repeated call takes it from no other job. Returns the id
        of the job that lost the lane, or None where no job (or not `holder`) had it. Raises InvalidJob.
        """
        return self._core.release(key, **acting, holder=holder)

    @verb(LANE, UNTIL, tell=_paused, many=True, plan=True)
    def pause(self, key: str, *, until: datetime | float | str | None = None, **acting: Unpack[Acting]) -> bool:
        """Pause a lane: no job starts until `resume`. Running jobs go on.

        `until`: it ends by itself after so many seconds, or at an instant. False: it was paused already.
        """
        return self._core.pause(key, until=until, **acting)

    @verb(LANE, tell=_resumed, many=True, plan=True)
    def resume(self, key: str, **acting: Unpack[Acting]) -> bool:
        """Resume a paused lane.

        Returns False where the lane was not paused.
        """
        return self._core.resume(key, **acting)

    @verb(INSTANCE, ATTEMPT, tell=_taken, command="grabs release", title="Release", grave=True)
    def release_grab(
        self, key: str, instance: str | int | datetime, attempt: int | None = None, **acting: Unpack[Acting]
    ) -> str | None:
        """Take an instance of a key from its winner: if that is a job, it is cancelled; if a process, its later reports
        are ignored. A process that waits for the instance takes over, or the next one that grabs it. An instance whose
        work failed for good can be grabbed again, too.

        `attempt`: take it only from the winner of this attempt, so that a call repeated after a lost reply takes the
        instance from nobody else. Returns the winner's identifier; None where nobody works on the instance. Raises
        InvalidJob.
        """
        return self._grabber.release(key, instance, attempt, act_of(**acting))
