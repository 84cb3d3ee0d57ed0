"""What an app adds to the coordinator's commands, explanations, metrics and pages, as one object.

An app passes the object to `Coordinator.extend`. For example, the service in `tasks/` adds its members, items and
documents in this way (`tasks/cli/main.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    import click
    from prometheus_client import Metric

    from coordinator.core.finding import Finding
    from coordinator.ops.diagnosis.cause import Why


@dataclass(frozen=True, slots=True)
class Extension:
    """The parts that an app adds to the coordinator, each of them optional.

    `commands`: added to `coordinator …`. `why`: kind of thing (`member`) -> function that explains the thing with a
    given name, and raises a CoordinatorError for an unknown name. `findings`: returns findings, which `doctor` lists
    beside the coordinator's. `errors`: turns an exception of the app into an exception whose text is for people, a
    ConnectionError where a server does not answer; returns None for a bug. `metrics`: returns metrics, which `/metrics`
    shows beside the coordinator's. `pages`: makes pages for a dashboard (`coordinator.extending.Pages`), once for each
    dashboard. `mounts`: path -> function that makes an ASGI app; `dashboard(mounts=[path])` serves this app at the
    path, without a login.
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
    """Return the exception to show to people: what an extension's `errors` makes of `error`, else `error` itself."""
    turned = (one.errors(error) for one in extensions if one.errors)
    return error if isinstance(error, CoordinatorError) else next(filter(None, turned), error)
