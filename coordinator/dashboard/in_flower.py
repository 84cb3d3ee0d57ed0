"""The dashboard's pages inside Flower: who is logged in there is logged in here; without a login they are read only."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from starlette.requests import Request

from coordinator.author import Author
from coordinator.dashboard.access import Guard, address
from coordinator.dashboard.app import dashboard

if TYPE_CHECKING:
    from flower.app import Flower

    from coordinator.client.coordinator import Coordinator


def pages(flower: Flower, coordinator: Coordinator) -> Guard:
    """Make the pages for this Flower, whose handler lets nobody through whom Flower does not let in."""
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
