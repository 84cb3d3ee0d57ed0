"""Celery's remote control in a worker that coordinates: its commands know of jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from celery.utils.collections import AttributeDict
from celery.worker import control

Reply = dict[str, Any]


class Step(Protocol):
    """The coordinator's part of a worker."""

    def cancel(self, job_id: str) -> bool: ...


def step_of(state: AttributeDict) -> Step | None:
    """None: the worker does not coordinate."""
    return getattr(state.consumer, "coordinator_step", None)


def install() -> None:
    """Put our commands in the place of Celery's. A repeated call changes nothing."""
    if control.Panel.data["revoke"].__module__ == __name__:
        return
    ids = {"variadic": "task_id", "signature": "[id1 [id2 [... [idN]]]]"}
    control.control_command(name="revoke", **ids)(revoking(control.Panel.data["revoke"]))
    for name in ("rate_limit", "time_limit"):
        meta = control.Panel.meta[name]
        known = {"args": meta.args, "signature": meta.signature}
        control.control_command(name=name, **known)(_without_jobs(control.Panel.data[name]))


def revoking(usual: Callable[..., Reply]) -> Callable[..., Reply]:
    def revoke(
        state: AttributeDict,
        task_id: str | list[str],
        terminate: bool = False,
        signal: str | None = None,
        **kwargs: Any,
    ) -> Reply:
        """Revoke tasks by id; for the id of a job it means `cancel`."""
        step = step_of(state)
        for one in [task_id] if isinstance(task_id, str) else task_id or []:
            if step is not None:
                step.cancel(one)
        return usual(state, task_id, terminate, signal, **kwargs)

    return revoke


def _without_jobs(usual: Callable[..., Reply]) -> Callable[..., Reply]:
    """Say in the reply that the command changes nothing for jobs."""

    def limit(state: AttributeDict, *args: Any, **kwargs: Any) -> Reply:
        reply = usual(state, *args, **kwargs)
        if step_of(state) is not None and "ok" in reply:
            return {**reply, "ok": f"{reply['ok']}, for messages; jobs keep the limits of their submit"}
        return reply

    limit.__doc__ = usual.__doc__
    return limit
