"""The dashboard's pages inside Flower, and our figures on its /metrics.

Who is logged in there is logged in here; without a login the pages are read only. The front door installs this where
the process has Flower: `celery` loads the commands of others, Flower's too, before the app.
"""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING

from flower.app import Flower

from coordinator.author import Author
from coordinator.celery_patches import flower as flowers
from coordinator.client.coordinator import Coordinator
from coordinator.metrics import register

if TYPE_CHECKING:
    from starlette.requests import Request

    from coordinator.dashboard.access import Guard

logger = logging.getLogger(__name__)


def install() -> None:
    """Have each Flower of an app with a coordinator show its pages and figures. A repeated call changes nothing."""
    flowers.at_start(_show)


def _show(flower: Flower) -> None:
    coordinator = getattr(flower.capp, "coordinator", None)
    if not isinstance(coordinator, Coordinator):
        return
    register(coordinator)  # /metrics prints the default registry
    try:
        flowers.mount(flower, _pages(flower, coordinator))
    except ImportError as error:
        logger.warning("No pages of the coordinator: %s; pip install 'celery-coordinator[dashboard]'", error)


def _pages(flower: Flower, coordinator: Coordinator) -> Guard:
    """Make the pages for this Flower, whose handler lets nobody through whom Flower does not let in.

    Raises ImportError where the extra `dashboard` is not installed.
    """
    from coordinator.dashboard.access import address
    from coordinator.dashboard.app import dashboard

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
    """The user of a Basic login, which Flower has checked."""
    kind, _, encoded = authorization.partition(" ")
    try:
        return base64.b64decode(encoded).decode().partition(":")[0] if kind.lower() == "basic" else ""
    except ValueError:
        return ""
