"""The dashboard in a Django site: below a path of its ASGI application, with Django's users, and its address.

application = with_dashboard(get_asgi_application())  # in asgi.py
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, cast
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME, get_user
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, get_script_prefix, reverse

from coordinator.core.author import Author
from coordinator.django.project import project

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_AUTHOR = "coordinator.author"  # in the scope of a request
DASHBOARD_URL = "COORDINATOR_DASHBOARD_URL"  # Django's setting: where the dashboard is, for the link in the admin

_Scope = MutableMapping[str, object]
_Receive = Callable[[], Awaitable[MutableMapping[str, object]]]
_Send = Callable[[MutableMapping[str, object]], Awaitable[None]]
_Application = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def dashboard_url() -> str | None:
    """The address of the dashboard: that of the setting, else the path at which this process serves it; None if there
    is neither.
    """
    if address := getattr(settings, DASHBOARD_URL, None):
        return str(address)
    mounted = project().mounted_at
    return mounted and f"{get_script_prefix().rstrip('/')}{mounted}"


def with_dashboard(application: _Application, path: str = "/coordinator/") -> _Application:
    """Return an ASGI application that serves the dashboard below `path`, and everything else by `application`.

    Who may look has the permission "Can view dashboard"; who may also act, "Can operate dashboard". Others are sent to
    Django's login, or told which permission they lack. Needs the extra `dashboard`, and the session of
    django.contrib.sessions. Raises ImproperlyConfigured for an application that is not ASGI's.
    """
    if isinstance(application, WSGIHandler):
        raise ImproperlyConfigured("with_dashboard is for ASGI: with_dashboard(get_asgi_application()), in asgi.py")
    from coordinator.ops.app_check import import_modules  # imported here: the link in the admin needs none of it
    from coordinator.ops.dashboard import dashboard

    root = f"/{path.strip('/')}"
    own = project()
    own.mounted_at = f"{root}/"
    import_modules(own.celery_app)  # here, in the main thread: the pages hide arguments by the names that tasks give
    pages = dashboard(own.coordinator, auth=_author_of)

    async def site(scope: _Scope, receive: _Receive, send: _Send) -> None:
        at = f"{scope.get('root_path', '')}{root}"
        if scope["type"] == "http" and f"{scope['path']}/".startswith(f"{at}/"):
            user, author = await _known(scope)
            if author is None:
                await _away(user, scope)(scope, receive, send)
            else:
                await pages({**scope, "root_path": at, _AUTHOR: author}, receive, send)
        else:
            await application(scope, receive, send)

    return site


async def _author_of(request: Request) -> Author:
    """The author whom the site has found for the request."""
    return cast(Author, request.scope[_AUTHOR])


@sync_to_async
def _known(scope: _Scope) -> tuple[str, Author | None]:
    """The name of the user of Django's session, "" if nobody is logged in, and the same as an author; None for one
    without a permission. In a thread for Django's synchronous code, since session, user and permissions come from its
    database.
    """
    from starlette.requests import Request

    asked = HttpRequest()
    engine = import_module(settings.SESSION_ENGINE)
    asked.session = engine.SessionStore(Request(scope).cookies.get(settings.SESSION_COOKIE_NAME))
    user = get_user(asked)
    name: str = user.get_username()
    if user.has_perm("coordinator.operate_dashboard"):
        return name, Author(name, "operator")
    return name, Author(name, "viewer") if user.has_perm("coordinator.view_dashboard") else None


def _away(user: str, scope: _Scope) -> Response:
    """The answer to somebody who may not see the dashboard."""
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse

    asked = Request(scope)
    if user:
        return PlainTextResponse(f"{user} lacks the permission 'Can view dashboard'.", 403)
    if "text/html" not in asked.headers.get("accept", ""):
        return PlainTextResponse("Nobody is logged in.", 401)
    try:
        login = reverse("admin:login")
    except NoReverseMatch:  # a site without the admin
        login = resolve_url(settings.LOGIN_URL)
    wanted = asked.url.path + ("?" + asked.url.query if asked.url.query else "")
    return RedirectResponse(f"{login}?{urlencode({REDIRECT_FIELD_NAME: wanted})}", 302)
