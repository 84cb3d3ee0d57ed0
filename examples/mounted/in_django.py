"""The dashboard in a Django project: its `asgi.py` sends one path to it. Django's staff may look, its
superusers may act; nobody else comes in. Django's own pages do not notice.

Try it, with DJANGO_SETTINGS_MODULE=examples.mounted.django_settings and PYTHONPATH=. in the environment:
django-admin migrate; django-admin createsuperuser; COORDINATOR_URL=redis://localhost:6379/0 uvicorn
examples.mounted.in_django:app. Log in at /admin/, and go to /coordinator/.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.core.asgi import get_asgi_application
from django.http import HttpRequest
from starlette.requests import Request

from coordinator import Coordinator
from coordinator.author import Author
from coordinator.dashboard import dashboard

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.mounted.django_settings")
site = get_asgi_application()
sessions = import_module(settings.SESSION_ENGINE)


@sync_to_async  # Django's session and user come from its database
def who(request: Request) -> Author | None:
    asked: Any = HttpRequest()
    asked.session = sessions.SessionStore(request.cookies.get(settings.SESSION_COOKIE_NAME))
    user: Any = get_user(asked)
    return Author(user.get_username(), "operator" if user.is_superuser else "viewer") if user.is_staff else None


pages = dashboard(Coordinator(), auth=who)


async def app(
    scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:  # fmt: skip
    if scope["type"] == "http" and scope["path"].startswith("/coordinator/"):
        await pages({**scope, "root_path": "/coordinator"}, receive, send)
    else:
        await site(scope, receive, send)
