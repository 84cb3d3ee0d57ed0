"""The dashboard: pages, JSON and server-sent events about an installation, as one ASGI app (extra `[dashboard]`)."""

from coordinator.dashboard.access import from_proxy
from coordinator.dashboard.app import dashboard
from coordinator.dashboard.extend import Act, Asked, Field, Page, Pages, Reading, Tab

__all__ = ["Act", "Asked", "Field", "Page", "Pages", "Reading", "Tab", "dashboard", "from_proxy"]
