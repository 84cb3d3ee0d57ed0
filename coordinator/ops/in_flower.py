"""Shows the dashboard's pages inside Flower, and the coordinator's metrics on Flower's `/metrics`.

A user who is logged in to Flower is logged in to these pages, too. If Flower has no login, the pages are read only.
`coordinator/__init__.py` calls `install` if the process has imported Flower: `celery` imports the packages with
further commands, such as Flower, before it imports the app.
"""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING

from flower.app import Flower

from coordinator.coordinator import Coordinator
from coordinator.core.author import Author
from coordinator.core.celery_patches import flower as flowers
from coordinator.ops.metrics import register

if TYPE_CHECKING:
    from starlette.requests import Request

    from coordinator.ops.dashboard.access import Guard

logger = logging.getLogger(__name__)


def install() -> None:
    """Make each Flower that this process starts for an app with a coordinator show the coordinator's pages and metrics.

    A repeated call changes nothing.
    """
    flowers.at_start(_show)


def _show(flower: Flower) -> None:
    coordinator = getattr(flower.capp, "coordinator", None)
    if not isinstance(coordinator, Coordinator):
        return
    register(coordinator)  # Flower's /metrics prints prometheus_client's default registry
    try:
        flowers.mount(flower, _pages(flower, coordinator))
    except ImportError as error:
        logger.warning(
            "Flower shows no pages of the coordinator: %s; pip install 'celery-coordinator[dashboard]'", error
        )


def _pages(flower: Flower, coordinator: Coordinator) -> Guard:
    """Make the dashboard that is mounted in this Flower. Flower refuses requests without its login before they arrive.

    Raises ImportError where the extra `dashboard` is not installed.
    """
    from coordinator.ops.dashboard.app import dashboard
    from coordinator.ops.dashboard.login import address

    options = flower.options
    prefix = f"/{options.url_prefix.strip('/')}" if options.url_prefix else ""
    links = [(f"Flower: {name}", f"{prefix}/{name.lower()}") for name in ("Workers", "Tasks", "Broker")]

    def auth(request: Request) -> Author:
        user = request.scope["flower.user"]
        name = user if isinstance(user, str) else _name(request.headers.get("authorization", ""))
        known, may = bool(options.basic_auth or options.auth), coordinator.settings.operators
        acts = known and not getattr(options, "read_only", False) and (not may or name in may)
        return Author(name if known and name else f"unknown from {address(request)}", "operator" if acts else "viewer")

    return dashboard(coordinator, auth=auth, links=links)


def _name(authorization: str) -> str:
    """Return the user name in a header `Authorization: Basic …`, which Flower has checked; "" for another header."""
    kind, _, encoded = authorization.partition(" ")
    try:
        return base64.b64decode(encoded).decode().partition(":")[0] if kind.lower() == "basic" else ""
    except ValueError:
        return ""
