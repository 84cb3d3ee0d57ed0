"""`dashboard(coordinator)`: makes the dashboard's ASGI app, which renders pages, and sends open pages again as they
change.

Views run in eight threads. A page that takes more than five seconds is given up, and its thread sends Redis no more
commands: so no reader slows jobs down, and a slow Redis never blocks the event loop, which may be Flower's or the
user's. Acts run in threads of their own, and go on after their page was sent (`running.py`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakValueDictionary

from fastapi import FastAPI
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.core.author import Author, Role, author
from coordinator.core.store.client import time_left, until
from coordinator.core.texts import visible
from coordinator.core.threads import connections_closed
from coordinator.core.version import VERSION
from coordinator.errors import CoordinatorError, StoreRefused, StoreUnavailable
from coordinator.ops.dashboard import find, hide, show, views
from coordinator.ops.dashboard.access import LOOPBACK, VISIT, Auth, Guard, Visit
from coordinator.ops.dashboard.acts import Act, acts_of
from coordinator.ops.dashboard.api import api_of
from coordinator.ops.dashboard.error_page import ErrorPage, error_page_of
from coordinator.ops.dashboard.extend import Hit, Page, Pages, Query, View, values_of
from coordinator.ops.dashboard.login import Session, Sessions, TokenLogin
from coordinator.ops.dashboard.running import RunningActs, failure_page
from coordinator.ops.verbs.declared import verbs

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator

logger = logging.getLogger(__name__)
HERE = Path(__file__).parent
T = TypeVar("T")

PATIENCE = 5.0  # seconds after which a page is given up
READERS = 8  # threads that run views
WAITS = 3.0  # seconds for which the page of an act waits for the act's end; then it shows the progress
PAUSE = 2.0  # seconds between two renderings of an open page
STREAMS = 200  # open pages at the same time that are sent again as they change
_REST = 0.5  # seconds before that after which the second part of a page is given up
_STREAM = 600.0  # seconds after which the event stream of a page ends; the browser then sends a new request
_FIELDS = 1000  # values in the address of an open page
_SHARED = 1.0  # seconds for which all who look at the same page get the same rendering


def dashboard(
    coordinator: Coordinator, *, auth: Auth | None = None, token: str | None = None, hosts: Iterable[str] = (),
    links: Sequence[tuple[str, str]] = (), mounts: Iterable[str] = (),
) -> Guard:  # fmt: skip
    """Make the dashboard: an ASGI app for a server of its own, or to mount in another app.

    `auth`: returns the Author of a request, or None for an unknown user; it may be async. Without `auth`, people log in
    with `token`; None: a random token, which is logged as a warning. `hosts`: names that the Host header may have;
    without `auth`, this machine's loopback names are allowed, too, and with `auth`, no `hosts` means any name. `links`:
    (title, address) of links at the beginning of the bar. `mounts`: those paths of `Extension.mounts` whose apps are
    served, without a login.
    """
    login: TokenLogin | Auth
    if auth is None:
        if token is None:
            token = secrets.token_urlsafe(24)
            logger.warning("Log in to the dashboard with this token: %s", token)
        login, known = TokenLogin(token), {*LOOPBACK, *hosts}
    else:
        login, known = auth, set(hosts) or {"*"}
    site = Site(coordinator, links, login.cookie if isinstance(login, TokenLogin) else "")
    known_mounts = {at: make for one in coordinator.extensions for at, make in one.mounts.items()}
    return Guard(
        site.app, login, known, site.ask, {at: cast(ASGIApp, known_mounts[at]()) for at in mounts}, site.sessions
    )


class Site:
    """One dashboard: its pages, its acts, and the event streams that send open pages again as they change."""

    def __init__(self, coordinator: Coordinator, links: Sequence[tuple[str, str]], cookie: str) -> None:
        self.coordinator, self._links, self._cookie = coordinator, links, cookie
        added = [cast(Pages, one.pages()) for one in coordinator.extensions if one.pages]
        own = Pages(views.TABS, views.VIEWS, HERE / "templates", verbs().values())
        self._parts = [own, *added]
        self._tabs = [tab for part in self._parts for tab in part.tabs]
        self._views: dict[str, View] = {path: view for part in self._parts for path, view in part.views.items()}
        self._acts = acts_of(verb for part in self._parts for verb in part.verbs)
        self._templates = _templates(*(part.templates for part in self._parts if part.templates))
        known = {"prefix": coordinator.settings.prefix, "acts": self._acts, "server_zone": show.server_zone()}
        self._everywhere = known | {"ui": self._templates.get_template("macros.html").make_module(known)}
        self._readers = ThreadPoolExecutor(READERS, "coordinator-pages")
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # bound each author's threads
        self._running = RunningActs()
        self.sessions = Sessions(coordinator, self.read)
        self._views["/doing"] = self._running.page
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
        """The app for `/api`. It is made at the first request for JSON, since to make its models takes longer than the
        rest of the start.
        """
        own = [reading for part in self._parts for reading in part.readings]
        return api_of(self.coordinator, self._acts, own, self.read, self._running, self._cookie)

    # Responses to requests.

    def _query(self, request: Request, form: Mapping[str, str] | None = None) -> Query:
        """Make the Query of a request. `form`: the values of a sent form; None: take the values of the URL."""
        root: str = request.scope.get("root_path", "")
        show.root.set(root)
        visit: Visit = request.scope.get(VISIT) or Visit(Author("", "viewer"), "")
        values = values_of(request.query_params.multi_items()) if form is None else form
        path = request.scope["path"].removeprefix(root) or "/"
        session: Literal["", "named", "unnamed"] = ""
        if visit.session:
            session = "named" if visit.session.name else "unnamed"
        return Query(self.coordinator, values, visit.author, self._kept, path, visit.token, session)

    async def read(self, function: Callable[[], T]) -> T:
        """Call a function that reads from Redis in a thread, and return its result. Raises TimeoutError after five
        seconds; the thread stays busy until the function ends, but sends Redis no more commands. One author gets at
        most half of the threads.
        """
        context, deadline, who = copy_context(), time.monotonic() + PATIENCE, author().name
        loop, turn = asyncio.get_running_loop(), self._turns.get(who) or asyncio.Semaphore((READERS + 1) // 2)
        self._turns[who] = turn

        def call() -> T:
            with until(deadline), connections_closed():
                return function()

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(turn.release)

        await asyncio.wait_for(turn.acquire(), PATIENCE)
        reading = self._readers.submit(context.run, call)
        reading.add_done_callback(ended)
        return await asyncio.wait_for(asyncio.wrap_future(reading), deadline - time.monotonic())

    async def _page(self, request: Request) -> Response:
        """Respond with a page, of which the first part is sent at once if the rest takes longer (`Page.later`)."""
        query, loop = self._query(request), asyncio.get_running_loop()
        first: asyncio.Future[tuple[int, str]] = loop.create_future()

        def begin(text: str) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(first.set_result, (200, text))

        whole = asyncio.ensure_future(self._render(query, partial(self._views[query.path], query), begin=begin))
        await asyncio.wait([first, whole], return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            status, text = await whole
            return HTMLResponse(text, status)

        async def parts() -> AsyncIterator[str]:
            yield first.result()[1]
            yield (await whole)[1]

        return StreamingResponse(parts(), media_type="text/html", headers={"X-Accel-Buffering": "no"})

    async def _render(
        self, query: Query, view: Callable[[], Page], frame: str = "page.html", reads: bool = True,
        begin: Callable[[str], None] | None = None,
    ) -> tuple[int, str]:  # fmt: skip
        """Return the status and the HTML of a page; if the view raises an exception, those of an error page.

        `frame`: the template around the page. `reads`: True: call the view in a thread; False (after an act): here.
        `begin`: gets the first part of a page that reads more later; the rest is returned.
        """
        around = frame

        def begun(text: str) -> None:
            nonlocal around
            if begin:
                around = "live.html"  # of an error page that stands behind the first part
                begin(text)

        def made() -> tuple[int, str]:
            page = view()
            return page.status, self._text(page, query, frame, begun if begin else None)

        try:
            return await self.read(made) if reads else made()
        except Exception as error:
            page = failure_page(error_page_of(error, self.coordinator.extensions), *self._above(query.path))
            return page.status, self._text(page, query, around)

    def _text(
        self, page: Page, query: Query, frame: str = "page.html", begin: Callable[[str], None] | None = None
    ) -> str:
        """Return the HTML of a page. `begin`: gets the first part of it, so that the rest is returned."""
        pieces: list[str] = []

        def later() -> Mapping[str, object]:
            if begin:
                begin("".join(pieces))
                pieces.clear()
            return self._later(page)

        around = {
            "frame": frame, "title": page.title, "query": query, "path": query.path,
            "may_act": query.author.role == "operator", "tabs": self._tabs,
            "links": self._links, "values": query.values, "lives": query.path in self._views,
        }  # fmt: skip
        values = cast(dict[str, object], hide.shown(self.coordinator, dict(page.values)))
        template = self._templates.get_template(page.template)
        for piece in template.generate(self._everywhere | around | {"later": later} | values):
            pieces.append(piece)
        return "".join(pieces)

    def _later(self, page: Page) -> Mapping[str, object]:
        """Read what a page shows in its second part. It gives up a moment before the page is given up."""
        try:
            with until(time.monotonic() + left - _REST if (left := time_left()) else math.inf):
                found = page.later() if page.later else {}
        except Exception as error:
            return {"error": error_page_of(error, self.coordinator.extensions)}
        return {**cast(dict[str, object], hide.shown(self.coordinator, dict(found))), "error": None}

    def _above(self, path: str) -> tuple[str, str]:
        """Return address and title of the bar's entry to which the page at `path` belongs, or else of the overview."""
        tab = next((tab for tab in self._tabs if path in (tab.path, *tab.also)), self._tabs[0])
        return show.url(tab.path), tab.title

    async def _act(self, request: Request) -> Response:
        """Respond to a GET with the form of an act, and to a POST by doing the act."""
        name, posted = request.path_params["name"], request.method == "POST"
        query = self._query(request, request.scope[VISIT].form if posted else None)
        act = self._acts.get(name)
        view = await self._done(name, act, query) if posted and act else partial(self._form, name, query)
        status, text = await self._render(query, view, reads=not posted)
        return HTMLResponse(text, status)

    async def _done(self, name: str, act: Act, query: Query) -> Callable[[], Page]:
        """Begin an act, and return the view that shows it: if a value of the form is wrong, the form with the error."""
        try:
            running = await self._running.begin(act, query, WAITS)
        except CoordinatorError as error:
            return partial(self._form, name, query, str(error), error_page_of(error).status)
        if running.error and running.error.status == 400:
            return partial(self._form, name, query, running.error.text)
        return running.page

    def _form(self, name: str, query: Query, wrong: str = "", status: int = 400) -> Page:
        if (act := self._acts.get(name)) is None:
            raise LookupError(f"there is no act {name}")
        given = act.given(query)
        planned = replace(query, values={**query.values, **given})
        about = {
            "act": act, "name": name, "back": act.address(query), "thing": act.thing(query), "wrong": wrong,
            "given": given, "plan": act.plan(planned) if act.plan and not wrong else (),
        }  # fmt: skip
        return Page("act.html", act.title, about, status if wrong else 200)

    async def _find(self, request: Request) -> Response:
        """Redirect to what has the name `q`; if several things have, or none, list what has a name that begins so."""
        query, found = self._query(request), list[Hit]()

        def listed() -> Page:
            finders = [finder for part in self._parts for finder in part.finders]
            found.extend(find.hits(query, finders))
            return Page("find.html", "Found", {"hits": found, "q": query.text("q")})

        status, text = await self._render(query, listed)
        if len(found) == 1:
            return RedirectResponse(show.url(found[0].path, **found[0].values), 303)
        return HTMLResponse(text, status)

    def ask(self, request: Request, wrong: str, status: int) -> Response:
        """Make the login page, or a line of text for a program. `wrong`: why a login failed; "" = it was not tried."""
        query = self._query(request, {})
        if query.path.startswith(("/api", "/live")):
            return Response(f"{wrong or 'Not logged in'}\n", status, media_type="text/plain")
        to = query.path + (f"?{request.url.query}" if request.url.query and "token=" not in request.url.query else "")
        page = Page("login.html", "Log in", {"wrong": wrong, "to": to if query.path in self._views else "/"})
        return HTMLResponse(self._text(page, query, "bare.html"), status)

    async def _missing(self, request: Request, _: Exception) -> Response:
        query = self._query(request, {})
        page = failure_page(ErrorPage(404, "No such page", "Nothing is here."), *self._above(query.path))
        return HTMLResponse(self._text(page, query), 404)

    # An open page is rendered every two seconds, and sent if it changed.

    async def _live(self, request: Request) -> Response:
        at = urlsplit(request.query_params.get("at", ""))
        if at.path not in self._views:
            return Response("There is no such page\n", 404, media_type="text/plain")
        if self._streams >= STREAMS:
            return Response("Too many pages of this dashboard are open\n", 503, media_type="text/plain")
        visit: Visit = request.scope[VISIT]
        self._query(request)  # keeps the path at which the dashboard is mounted
        events = self._events(at.path, at.query, visit.author.role, visit.session)
        return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _events(self, path: str, search: str, role: Role, session: Session | None) -> AsyncIterator[str]:
        self._streams += 1
        try:
            last, end = "", time.monotonic() + _STREAM
            while time.monotonic() < end and not await self._over(session):
                text = await self._shared(path, search, role)
                yield ": nothing new\n\n" if text == last else "".join(f"data: {n}\n" for n in text.splitlines()) + "\n"
                last = text
                await asyncio.sleep(PAUSE)
        finally:
            self._streams -= 1

    async def _over(self, session: Session | None) -> bool:
        """True if the session of an open page was ended. Where Redis cannot say, the page says that by itself."""
        with suppress(StoreUnavailable, StoreRefused, TimeoutError):
            return session is not None and await self.sessions.has_ended(session)
        return False

    async def _shared(self, path: str, search: str, role: Role) -> str:
        """Render the part of a page that is sent again as it changes. Requests within a second share one rendering."""
        key, now = (show.root.get() + path, search, role), time.monotonic()
        made, task = self._made.get(key, (0.0, None))
        if task is None or now - made > _SHARED:
            values = values_of(parse_qsl(search, max_num_fields=_FIELDS))
            query = Query(self.coordinator, values, Author("", role), self._kept, path)
            task = asyncio.ensure_future(self._render(query, partial(self._views[path], query), "live.html"))
            self._made = {k: it for k, it in self._made.items() if now - it[0] <= _SHARED} | {key: (now, task)}
        return (await asyncio.shield(task))[1]


def _finalized(value: object) -> object:
    """Prepare a value for output by a template: characters that would alter the text around them are escaped."""
    if isinstance(value, Markup):
        return Markup(visible(value))
    return visible(value) if isinstance(value, str) else value


@lru_cache(8)
def _templates(*folders: Path) -> Environment:
    """Make the Jinja environment for the templates in these folders; cached, so that each template is compiled once."""
    made = Environment(
        loader=ChoiceLoader([FileSystemLoader(folder) for folder in folders]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=_finalized,
    )  # fmt: skip
    made.filters |= show.FILTERS
    made.globals["url"] = show.url
    return made
