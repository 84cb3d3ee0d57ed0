"""Runs a component for an operator: submits a run, waits for its children, and returns the outcome of each item."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordinator import Job
from tasks.components import look
from tasks.components.declaration import Component
from tasks.components.poll import submit_run
from tasks.components.registry import Registry

DONE, FAILED, UNABLE, BUSY = 0, 1, 2, 3
"""The exit statuses of `coordinator components run`.

DONE: no item failed. FAILED: an item failed. UNABLE: the run could not work. BUSY: another run of the component polls.
"""


@dataclass
class RunOutcome:
    """The outcome of a component's run. `status`: DONE, FAILED, UNABLE or BUSY. `items`: the outcome of each item.

    `why`: the reason if the run could not work, else "".
    """

    status: int
    items: dict[str, str] = field(default_factory=dict)
    why: str = ""


def run(registry: Registry, component: Component) -> RunOutcome:
    """Submit one run of a component, and wait until the run and the jobs that it submits have ended."""
    if why := look.no_node(registry, component):
        return RunOutcome(UNABLE, why=why)
    return _outcome_of_run(registry.coordinator.wait(submit_run(registry, component).id))


def _outcome_of_run(job: Job) -> RunOutcome:
    result = job.result
    if job.state == "succeeded" and isinstance(result, dict):
        if result["outcome"] == "busy":
            return RunOutcome(BUSY, why="another run of the component polls for items")
        return _with_status({})
    if job.state == "succeeded":
        return _with_status({child["item"]: child["outcome"] for child in result if child})
    parts = (job.error or {}).get("parts")
    if parts is None:
        why, _, _ = str((job.error or {}).get("message", "no reason was given")).partition("\n")
        return RunOutcome(UNABLE, why=f"the run is {job.state}: {why}")
    return _with_status(dict(_parts(parts, job.id)))


def _parts(parts: object, run: str) -> Iterator[tuple[str, str]]:
    """Yield the item and the outcome of each job that the run with the id `run` submitted.

    `parts`: a list with the id and the result or error of each of these jobs.
    """
    assert isinstance(parts, list)
    for part in parts:
        result = part.get("result")
        name = str(part["id"]).removeprefix(f"{run}/")
        yield (name, str(result["outcome"])) if isinstance(result, dict) else (name, _outcome_of(part.get("error")))


def _outcome_of(error: object) -> str:
    return "cancelled" if isinstance(error, dict) and error.get("type") == "Cancelled" else "failed"


def _with_status(items: dict[str, str]) -> RunOutcome:
    return RunOutcome(FAILED if "failed" in items.values() else DONE, items)
