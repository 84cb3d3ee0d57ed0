"""Runs a component for an operator: submits a run, waits for its children, and returns the outcome of each item."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordinator import Job, SubmitOptions
from tasks.components import look
from tasks.components.declaration import Component
from tasks.components.registry import OF_A_RUN, POLL, Registry

DONE, FAILED, UNABLE, BUSY = 0, 1, 2, 3
"""The exit statuses: done or nothing to do, an item failed, could not work, busy elsewhere."""


@dataclass
class RunEnd:
    """The end of a run. `items`: the outcome of each item. `why`: the reason where the run could not work."""

    status: int
    items: dict[str, str] = field(default_factory=dict)
    why: str = ""


def run(registry: Registry, component: Component) -> RunEnd:
    """Poll once, and wait for the children."""
    if why := look.no_node(registry, component):
        return RunEnd(UNABLE, why=why)
    signature = registry.signature(POLL, component.name)
    options: SubmitOptions = {**OF_A_RUN, "when_busy": "skip"}
    submission = registry.coordinator.submit(component.run_lane, signature, **options)
    if not submission.accepted:
        return RunEnd(BUSY, why=f"{component.name} runs elsewhere")
    return _end_of(registry.coordinator.wait(submission.id))


def _end_of(job: Job) -> RunEnd:
    result = job.result
    if job.state == "succeeded" and isinstance(result, dict):
        if result["outcome"] == "busy":
            return RunEnd(BUSY, why="another run asks for its items")
        return _with_status({})
    if job.state == "succeeded":
        return _with_status({child["item"]: child["outcome"] for child in result if child})
    parts = (job.error or {}).get("parts")
    if parts is None:
        why, _, _ = str((job.error or {}).get("message", "no reason was given")).partition("\n")
        return RunEnd(UNABLE, why=f"the run is {job.state}: {why}")
    return _with_status(dict(_parts(parts, job.id)))


def _parts(parts: object, run: str) -> Iterator[tuple[str, str]]:
    assert isinstance(parts, list)
    for part in parts:
        result = part.get("result")
        name = str(part["id"]).removeprefix(f"{run}/")
        yield (name, str(result["outcome"])) if isinstance(result, dict) else (name, _outcome_of(part.get("error")))


def _outcome_of(error: object) -> str:
    return "cancelled" if isinstance(error, dict) and error.get("type") == "Cancelled" else "failed"


def _with_status(items: dict[str, str]) -> RunEnd:
    return RunEnd(FAILED if "failed" in items.values() else DONE, items)
