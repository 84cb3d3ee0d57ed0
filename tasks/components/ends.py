"""One run from outside: ask for it, wait for all its children, and tell what came of each item."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordinator import Job
from coordinator.jobs.options import Options
from tasks.components.declaration import Component
from tasks.components.registry import POLL, Registry

DONE, FAILED, UNABLE, BUSY = 0, 1, 2, 3
"""The statuses of a run: done or nothing to do, an item failed, could not work, busy elsewhere."""


@dataclass
class Ended:
    """`items`: the outcome of each. `why`: of a run that could not work."""

    status: int
    items: dict[str, str] = field(default_factory=dict)
    why: str = ""


def run(here: Registry, component: Component) -> Ended:
    """Poll once, and wait for the children."""
    if not here.coordinator.nodes():
        return Ended(UNABLE, why="no node is alive")
    signature = here.signature(POLL, component.name)
    options: Options = {**here.run_options(component), "when_busy": "skip"}
    made = here.coordinator.submit(component.run_lane, signature, **options)
    if not made.accepted:
        return Ended(BUSY, why=f"{component.name} runs elsewhere")
    return _ended(here, here.coordinator.wait(made.job_id))


def _ended(here: Registry, job: Job) -> Ended:
    found = job.result
    if job.state == "succeeded" and isinstance(found, dict):
        if found["outcome"] == "busy":
            return Ended(BUSY, why="another run asks for its items")
        return _with_status({})
    if job.state == "succeeded":
        return _with_status({one["item"]: one["outcome"] for one in found if one})
    parts = (job.error or {}).get("parts")
    if parts is None:
        why, _, _ = str((job.error or {}).get("message", "no reason was given")).partition("\n")
        return Ended(UNABLE, why=f"the run is {job.state}: {why}")
    return _with_status(dict(_parts(parts, job.id)))


def _parts(parts: object, run: str) -> Iterator[tuple[str, str]]:
    assert isinstance(parts, list)
    for part in parts:
        result = part.get("result")
        name = str(part["id"]).removeprefix(f"{run}/")
        yield (name, str(result["outcome"])) if isinstance(result, dict) else (name, _bad(part.get("error")))


def _bad(error: object) -> str:
    return "cancelled" if isinstance(error, dict) and error.get("type") == "Cancelled" else "failed"


def _with_status(items: dict[str, str]) -> Ended:
    return Ended(FAILED if "failed" in items.values() else DONE, items)
