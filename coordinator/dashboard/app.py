"""`dashboard(coordinator)`: the ASGI app. It makes pages of views, and has them sent again while somebody looks.

Views run in eight threads. After five seconds a page is given up, and its thread reads no more: no reader slows a job,
and a slow Redis never stops the event loop, which may be Flower's or the user's. Acts have threads of their own, and go
on (`doings.py`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakValueDictionary

from fastapi import FastAPI
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.author import Author, Role, author
from coordinator.dashboard import acts, hide, show, views
from coordinator.dashboard.access import LOOPBACK, VISIT, Auth, Guard, TokenLogin, Visit
from coordinator.dashboard.api import api_of
from coordinator.dashboard.doings import Doings, trouble_page
from coordinator.dashboard.error_page import ErrorPage, error_page_of
from coordinator.dashboard.extend import LONGEST, Act, Asked, Page, Pages, View
from coordinator.errors import CoordinatorError
from coordinator.store.client import until
from coordinator.texts import visible
from coordinator.threads import connections_closed
from coordinator.version import VERSION

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator

logger = logging.getLogger(__name__)
HERE = Path(__file__).parent
T = TypeVar("T")

PATIENCE = 5.0  # seconds until a page is given up
READERS = 8  # threads
WAITS = 3.0  # seconds of an act until its page says that it goes on
PAUSE = 2.0  # seconds between two looks of a stream
STREAMS = 200  # at a time
_STREAM = 600.0  # seconds of one stream; then the browser asks, and logs in, again
_SHARED = 1.0  # seconds for which all who look at a page get the same one


def dashboard(
    coordinator: Coordinator, *, auth: Auth | None = None, token: str | None = None, hosts: Iterable[str] = (),
    links: Sequence[tuple[str, str]] = (), mounts: Iterable[str] = (),
) -> Guard:  # fmt: skip
    """Make the dashboard: an ASGI app for a server of its own, or to mount in another app.

    `auth`: gives the Author of a request, or None for nobody whom it knows; it may be async. Without it, people log in
    with `token`: by default one that is made up, and written to the log as a warning. `hosts`: what the Host header may
    be besides this machine's loopback names, where there is no `auth`. `links`: (title, address) that stand in front of
    the bar. `mounts`: paths at which an extension has an app of its own (`Extension.mounts`), served without a login.
    """
    site = Site(coordinator, links)
    login: TokenLogin | Auth
    if auth is None:
        if token is None:
            token = secrets.token_urlsafe(24)
            logger.warning("The dashboard wants this token: %s", token)
        login, known = TokenLogin(token), {*LOOPBACK, *hosts}
    else:
        login, known = auth, set(hosts) or {"*"}
    known_mounts = {at: make for one in coordinator.extensions for at, make in one.mounts.items()}
    return Guard(site.app, login, known, site.ask, {at: cast(ASGIApp, known_mounts[at]()) for at in mounts})


class Site:
    """The pages, acts and streams of one dashboard."""

    def __init__(self, coordinator: Coordinator, links: Sequence[tuple[str, str]]) -> None:
        self.coordinator, self._links = coordinator, links
        added = [cast(Pages, one.pages()) for one in coordinator.extensions if one.pages]
        own = Pages(views.TABS, views.VIEWS, acts.ACTS, HERE / "templates")
        self._parts = [own, *added]
        self._tabs = [tab for part in self._parts for tab in part.tabs]
        self._views: dict[str, View] = {path: view for part in self._parts for path, view in part.views.items()}
        self._acts: dict[str, Act] = {name: act for part in self._parts for name, act in part.acts.items()}
        self._templates = _templates(*(part.templates for part in self._parts if part.templates))
        known = {"prefix": coordinator.settings.prefix, "acts": self._acts}
        self._everywhere = known | {"ui": self._templates.get_template("macros.html").make_module(known)}
        self._readers = ThreadPoolExecutor(READERS, "coordinator-pages")
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # of each author who reads
        self._doings = Doings()
        self._views["/doing"] = self._doings.page
        self._streams = 0
        self._kept: dict[str, tuple[float, object]] = {}
        self._made: dict[tuple[str, str, str], tuple[float, asyncio.Task[tuple[int, str]]]] = {}
        self.app = self._app()

    def _app(self) -> FastAPI:
        app = FastAPI(title="celery-coordinator", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None)
        for path in self._views:
            app.add_route(path, self._page, ["GET"], include_in_schema=False)
        app.add_route("/act/{name}", self._act, ["GET", "POST"], include_in_schema=False)
        app.add_route("/find", self._find, ["GET"], include_in_schema=False)
        app.add_route("/live", self._live, ["GET"], include_in_schema=False)
        app.mount("/api", self._json)
        app.mount("/static", StaticFiles(directory=HERE / "static"))
        app.add_exception_handler(404, self._missing)
        return app

    async def _json(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._api(scope, receive, send)

    @cached_property
    def _api(self) -> FastAPI:
        """Made when JSON is first wanted: its models cost more than all else at the start."""
        own = {name: reading for part in self._parts for name, reading in part.readings.items()}
        return api_of(self.coordinator, self._acts, own, self.read, self._doings)

    # Answers.

    def _asked(self, request: Request, form: Mapping[str, str] | None = None) -> Asked:
        """`form`: what was sent, where the address does not have the values."""
        root: str = request.scope.get("root_path", "")
        show.root.set(root)
        visit: Visit = request.scope.get(VISIT) or Visit(Author("", "viewer"), "")
        values = dict(request.query_params) if form is None else form
        path = request.scope["path"].removeprefix(root) or "/"
        return Asked(self.coordinator, values, visit.author, self._kept, path, visit.token)

    async def read(self, function: Callable[[], T]) -> T:
        """Call a function that reads in a thread. Raises TimeoutError after five seconds; the thread is busy until the
        function has ended, which asks Redis nothing more then. An author has half of the threads at most.
        """
        context, deadline, who = copy_context(), time.monotonic() + PATIENCE, author().name
        loop, turn = asyncio.get_running_loop(), self._turns.get(who) or asyncio.Semaphore((READERS + 1) // 2)
        self._turns[who] = turn

        def call() -> T:
            with until(deadline), connections_closed():
                return function()

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(turn.release)

        await asyncio.wait_for(turn.acquire(), PATIENCE)
        reading = self._readers.submit(context.run, call)
        reading.add_done_callback(ended)
        return await asyncio.wait_for(asyncio.wrap_future(reading), deadline - time.monotonic())

    async def _page(self, request: Request) -> Response:
        asked = self._asked(request)
        status, text = await self._render(asked, partial(self._views[asked.path], asked))
        return HTMLResponse(text, status)

    async def _render(
        self, asked: Asked, view: Callable[[], Page], frame: str = "page.html", reads: bool = True
    ) -> tuple[int, str]:  # fmt: skip
        """The status and the text of a page; an error becomes a page that says it. `reads`: False after an act."""

        def made() -> tuple[int, str]:
            page = view()
            return page.status, self._text(page, asked, frame)

        try:
            return await self.read(made) if reads else made()
        except Exception as error:
            page = trouble_page(error_page_of(error, self.coordinator.extensions), *self._above(asked.path))
            return page.status, self._text(page, asked, frame)

    def _text(self, page: Page, asked: Asked, frame: str = "page.html") -> str:
        around = {
            "frame": frame, "title": page.title, "asked": asked, "path": asked.path,
            "may_act": asked.author.role == "operator", "tabs": self._tabs,
            "links": self._links, "values": asked.values, "lives": asked.path in self._views,
        }  # fmt: skip
        values = cast(dict[str, object], hide.shown(self.coordinator, dict(page.values)))
        return self._templates.get_template(page.template).render(self._everywhere | around | values)

    def _above(self, path: str) -> tuple[str, str]:
        """The address and title of the page of the bar to which a page belongs, else of the overview."""
        tab = next((tab for tab in self._tabs if path in (tab.path, *tab.also)), self._tabs[0])
        return show.url(tab.path), tab.title

    async def _act(self, request: Request) -> Response:
        """Show an act's form, or do the act."""
        name, posted = request.path_params["name"], request.method == "POST"
        asked = self._asked(request, request.scope[VISIT].form if posted else None)
        act = self._acts.get(name)
        view = await self._done(name, act, asked) if posted and act else partial(self._form, name, asked)
        status, text = await self._render(asked, view, reads=not posted)
        return HTMLResponse(text, status)

    async def _done(self, name: str, act: Act, asked: Asked) -> Callable[[], Page]:
        """Begin an act. What is wrong with its form is said in it."""
        try:
            doing = await self._doings.begin(act, asked, WAITS)
        except CoordinatorError as error:
            return partial(self._form, name, asked, str(error))
        if doing.trouble and doing.trouble.status == 400:
            return partial(self._form, name, asked, doing.trouble.text)
        return doing.page

    def _form(self, name: str, asked: Asked, wrong: str = "") -> Page:
        if (act := self._acts.get(name)) is None:
            raise LookupError(f"there is no act {name}")
        about = {
            "act": act, "name": name, "back": act.address(asked), "does": act.sentence(asked), "wrong": wrong,
            "plan": act.plan(asked) if act.plan and not wrong else (),
        }  # fmt: skip
        return Page("act.html", act.title, about, 400 if wrong else 200)

    async def _find(self, request: Request) -> Response:
        """Go to the job of this id, or to the lane of this key, or to the lanes whose keys begin so."""
        asked = self._asked(request)
        try:
            return RedirectResponse(await self.read(partial(views.find, asked)), 303)
        except Exception:
            return RedirectResponse(show.url("/lanes", prefix=asked.values.get("q", "")[:LONGEST]), 303)

    def ask(self, request: Request, wrong: str, status: int) -> Response:
        """The page that wants a token; for programs a line."""
        asked = self._asked(request, {})
        if asked.path.startswith(("/api", "/live")):
            return Response(f"{wrong or 'Not logged in'}\n", status, media_type="text/plain")
        to = asked.path + (f"?{request.url.query}" if request.url.query and "token=" not in request.url.query else "")
        page = Page("login.html", "Log in", {"wrong": wrong, "to": to if asked.path in self._views else "/"})
        return HTMLResponse(self._text(page, asked, "bare.html"), status)

    async def _missing(self, request: Request, _: Exception) -> Response:
        asked = self._asked(request, {})
        page = trouble_page(ErrorPage(404, "No such page", "Nothing is here."), *self._above(asked.path))
        return HTMLResponse(self._text(page, asked), 404)

    # A page that is looked at is made anew every two seconds, and sent where it changed.

    async def _live(self, request: Request) -> Response:
        at = urlsplit(request.query_params.get("at", ""))
        if at.path not in self._views:
            return Response("There is no such page\n", 404, media_type="text/plain")
        if self._streams >= STREAMS:
            return Response("Too many look at this dashboard\n", 503, media_type="text/plain")
        events = self._events(at.path, at.query, self._asked(request).author.role)
        return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _events(self, path: str, query: str, role: Role) -> AsyncIterator[str]:
        self._streams += 1
        try:
            last, end = "", time.monotonic() + _STREAM
            while time.monotonic() < end:
                text = await self._shared(path, query, role)
                yield ": nothing new\n\n" if text == last else "".join(f"data: {n}\n" for n in text.splitlines()) + "\n"
                last = text
                await asyncio.sleep(PAUSE)
        finally:
            self._streams -= 1

    async def _shared(self, path: str, query: str, role: Role) -> str:
        """The live part of a page; who looks at the same one within a second gets the same text."""
        key, now = (show.root.get() + path, query, role), time.monotonic()
        made, task = self._made.get(key, (0.0, None))
        if task is None or now - made > _SHARED:
            values = dict(parse_qsl(query, max_num_fields=100))
            asked = Asked(self.coordinator, values, Author("", role), self._kept, path)
            task = asyncio.ensure_future(self._render(asked, partial(self._views[path], asked), "live.html"))
            self._made = {k: it for k, it in self._made.items() if now - it[0] <= _SHARED} | {key: (now, task)}
        return (await asyncio.shield(task))[1]


def _finalized(value: object) -> object:
    """What a template shows of a value."""
    if isinstance(value, Markup):
        return Markup(visible(value))
    return visible(value) if isinstance(value, str) else value


@lru_cache(8)
def _templates(*folders: Path) -> Environment:
    """The templates in these folders, which a process compiles once."""
    made = Environment(
        loader=ChoiceLoader([FileSystemLoader(folder) for folder in folders]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=_finalized,
    )  # fmt: skip
    made.filters |= show.FILTERS
    made.globals["url"] = show.url
    return made
