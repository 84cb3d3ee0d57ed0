"""The dashboard: pages, JSON and server-sent events about an installation, as one ASGI app (extra `[dashboard]`)."""

from coordinator.ops.dashboard.access import from_proxy
from coordinator.ops.dashboard.app import dashboard
from coordinator.ops.dashboard.extend import Page, Pages, Query, Tab

__all__ = ["Page", "Pages", "Query", "Tab", "dashboard", "from_proxy"]
