"""What an app adds to the coordinator's own commands, answers, metrics and pages, in one object.

`Coordinator.extend` takes it. The service adds its members, items and documents so (`tasks/cli/main.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    import click
    from prometheus_client import Metric

    from coordinator.diagnosis.cause import Why
    from coordinator.diagnosis.finding import Finding


@dataclass(frozen=True, slots=True)
class Extension:
    """The parts that an app adds; each may be missing.

    `commands`: of the command line. `why`: a kind of thing ("member") -> the function that explains the thing of this
    name; it raises a CoordinatorError for a name that nobody knows. `findings`: what `doctor` says beside its own.
    `errors`: turns an error of its own into one whose text is for people, a ConnectionError where something is away;
    None for a fault of the code. `metrics`: what `/metrics` shows beside its own. `pages`: makes the dashboard's pages
    (`coordinator.dashboard.Pages`), called once a dashboard. `mounts`: a path -> makes an ASGI app, which a dashboard
    that names the path serves there, without its login.
    """

    name: str
    commands: Iterable[click.Command] = ()
    why: Mapping[str, Callable[[str], Why]] = field(default_factory=dict)
    findings: Callable[[], Iterable[Finding]] | None = None
    errors: Callable[[Exception], Exception | None] | None = None
    metrics: Callable[[], Iterable[Metric]] | None = None
    pages: Callable[[], object] | None = None
    mounts: Mapping[str, Callable[[], object]] = field(default_factory=dict)


def plainly(error: Exception, extensions: Iterable[Extension]) -> Exception:
    """The error as people read it: as one of the extensions turns it, else as it is."""
    turned = (one.errors(error) for one in extensions if one.errors)
    return error if isinstance(error, CoordinatorError) else next(filter(None, turned), error)
