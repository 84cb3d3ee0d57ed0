"""The dashboard in a Django project: its `asgi.py` sends one path to it. Django's own pages do not notice.

Run it: COORDINATOR_URL=redis://localhost:6379/0 uvicorn examples.mounted.in_django:app
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application

from coordinator import Coordinator
from coordinator.dashboard import dashboard

if not settings.configured:  # your asgi.py names DJANGO_SETTINGS_MODULE instead
    settings.configure(ROOT_URLCONF=(), ALLOWED_HOSTS=["localhost", "127.0.0.1"], SECRET_KEY="example")

site = get_asgi_application()
pages = dashboard(Coordinator())


async def app(
    scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:  # fmt: skip
    if scope["type"] == "http" and scope["path"].startswith("/coordinator/"):
        await pages({**scope, "root_path": "/coordinator"}, receive, send)
    else:
        await site(scope, receive, send)
