"""The verbs for jobs: cancel, retry, flush, move and retarget; and `act`, which acts on many jobs or lanes."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Unpack, get_args

from coordinator.core.author import Acting, for_somebody, refuses_viewers
from coordinator.core.client.client import Client
from coordinator.core.jobs.states import Over
from coordinator.core.jobs.validation import checks_arguments, id_of
from coordinator.core.verbs import JOB, TASK, Answer, AnyCoordinator, Given, Option, verb

if TYPE_CHECKING:
    from coordinator.core.jobs.hidden import Hidden
    from coordinator.core.jobs.states import End, State
    from coordinator.core.jobs.submission import Submission
    from coordinator.ops.verbs.bulk import ActingOn, BulkVerb, Progress
    from coordinator.ops.verbs.retarget import Retargeted

ENDS = MappingProxyType({"back": "last of its priority", "front": "first of its priority"})
TO = Option("to", "Among the jobs of its priority.", "Place", default="back", choices=ENDS)
PRIORITY = Option("priority", "-255 to 255; the greater goes first. Empty: as it is.", kind=int, least=-255, most=255)


def counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _cancelled(_: object, given: Given, state: str) -> Answer:
    texts = {"running": "is being stopped", "cancelled": "is cancelled"}
    text = texts.get(state, f"was over: {state}" if state in get_args(Over) else f"is {state}")
    return {"id": given["job_id"], "state": state}, f"{given['job_id']} {text}"


def _retried(_: object, given: Given, state: str) -> Answer:
    done = "" if state in ("ready", "waiting") else ": only a job that is held, retrying, or ended badly runs again"
    return {"id": given["job_id"], "state": state}, f"{given['job_id']} is {state}{done}"


def _moved(_: object, given: Given, state: str) -> Answer:
    text = f"{given['job_id']} is moved to the {given['to']} of its priority: {state}"
    return {"id": given["job_id"], "state": state}, text


def _flushed(_: object, given: Given, state: str) -> Answer:
    done = "" if state in ("waiting", "ready", "running") else ": only a job that collects calls goes into line by this"
    return {"id": given["job_id"], "state": state}, f"{given['job_id']} is {state}{done}"


def _retargeted(_: object, given: Given, done: Retargeted) -> Answer:
    old, new = given["old"], given["new"]
    left = f"; {done.at_work} at work stay as they are: ask again later" if done.at_work else ""
    return {"old": old, "new": new, **done._asdict()}, f"{counted(done.jobs, 'job')} with {old} name {new}{left}"


def _retarget_plan(coordinator: AnyCoordinator, given: Given) -> object:
    """Return the plan of a retarget; () for a form in which the new task is not filled in yet."""
    return coordinator.plan.retarget(**given) if given["new"] else ()


@checks_arguments
class JobVerbs(Client):
    @verb(JOB, tell=_cancelled, title="Cancel job", grave=True, many=True, plan=True)
    def cancel(self, job_id: str | Submission, **acting: Unpack[Acting]) -> State:
        """End a job. If the job runs, its process is stopped first; then the job's rollback runs, if it has one.

        A job that is over stays as it is, so a repeated call changes nothing. Returns the state after the call:
        `cancelled`, or `running` until the process has stopped. Raises UnknownJob.
        """
        return self._core.cancel(id_of(job_id), **acting)

    @verb(JOB, TO, tell=_retried, many=True, plan=True)
    def retry(self, job_id: str | Submission, *, to: End = "back", **acting: Unpack[Acting]) -> State:
        """Retry a job. A held job goes on, a job that waits for its retry runs at once, and a job that ended badly
        joins its lanes again, at the `back` or the `front` of its priority.

        A job in another state stays as it is, so a repeated call changes nothing while the job waits or runs. Returns
        the new state. Raises InvalidJob, UnknownJob.
        """
        return self._core.retry(id_of(job_id), to=to, **acting)

    @verb(JOB, tell=_flushed, name="flush-job", command="flush", title="Flush")
    def flush(self, job_id: str | Submission, **acting: Unpack[Acting]) -> State:
        """Put a job that collects calls into its lanes now. It still collects until it is claimed.

        A job in another state stays as it is, so a repeated call changes nothing. Returns the state after the call.
        Raises UnknownJob.
        """
        return self._core.flush(id_of(job_id), **acting)

    @verb(JOB, PRIORITY, TO, tell=_moved, many=True, plan=True)
    def move(
        self, job_id: str | Submission, *, priority: int | None = None, to: End = "back", token: str | None = None,
        **acting: Unpack[Acting],
    ) -> State:  # fmt: skip
        """Move a job that has not started to the `back` or the `front` of a priority, in all its lanes.

        `priority`: None keeps the job's own. Returns the job's state. A repeated call moves the job again; calls with
        the same `token` move it once. Raises InvalidJob where the job was started or stands in no line, and UnknownJob.
        """
        return self._core.move(id_of(job_id), priority=priority, to=to, **acting, token=token)

    @verb(TASK, Option("new", label="New task", argument=True), tell=_retargeted, plan=_retarget_plan)
    def retarget(self, old: str, new: str, **acting: Unpack[Acting]) -> Retargeted:
        """Replace the task OLD, its app and its queue by those of NEW in all jobs that neither run nor are parked: also
        in later steps of chains, in rollbacks and in links.

        **Jobs that run or are parked stay as they are**, with their later steps: repeat the call once they are over.
        Returns how many `jobs` were changed, and how many stayed as they are (`at_work`). Raises InvalidJob where no
        app or node has the task NEW.
        """
        from coordinator.ops.verbs.retarget import class_for, retarget
        from coordinator.ops.verbs.trail import OnMany

        act = OnMany(self._core.store, "retarget", "task", old, old, f"{new}, ", **acting)
        done = retarget(self._core.store, old, new, class_for(self.app, self._core, new), act.text)
        act.ended()
        return done

    @refuses_viewers
    def act(self, verb: BulkVerb, **wanted: Unpack[ActingOn]) -> Iterator[Progress]:
        """Act on all jobs or lanes that a filter finds, in portions. Iterate over the result: each portion is acted on
        as you take the next Progress from it.

        `cancel`, `retry` and `move` act on the jobs of a JobFilter. `release`, `pause` and `resume` act on the lane
        `key`, or, if `key` ends in `*`, on all lanes whose keys begin so. If an act was stopped, the same call does the
        rest, but a repeated `release` takes each lane from its present holder. `How` explains `to` and `priority`; with
        `pause`, `until` is when the pauses end. Raises InvalidJob for an empty filter.
        """
        from coordinator.ops.verbs.bulk import on_filter

        bulk, acting = on_filter(self._core.store, verb, wanted, self._unseen)
        return bulk.run(acting)

    @refuses_viewers
    def acted(
        self, act: str, kind: str, name: str, *, id: str, before: str = "", after: str = "", **acting: Unpack[Acting]
    ) -> bool:
        """Write an act of the app's own into the audit trail, such as ("approve", "member", its name).

        `id`: identifies this act of this author; a repeated call within an hour writes nothing and returns False.
        `before` and `after`: the state of the thing, as text. Raises InvalidJob, also where another author's act, or
        another act, with this `id` was written within the hour.
        """
        from coordinator.core.author import act_of
        from coordinator.ops.verbs.trail import note_act

        return note_act(self._core.store, act, kind, name, id, act_of(**acting), before, after)

    @property
    def _unseen(self) -> Hidden | None:
        """The values that a search for a user of the dashboard must not find; None: the search may find all."""
        return self._hidden if for_somebody() else None
