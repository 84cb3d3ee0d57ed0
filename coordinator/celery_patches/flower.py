"""Flower serves an ASGI app under /coordinator, with a tab in its bar that leads there.

Nothing hands out Flower's instance, so its `__init__` is wrapped. From there on everything is tornado's own:
`add_handlers`, and a handler that carries an ASGI app. `coordinator/in_flower.py` says what is served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import wraps
from typing import Any, TypeAlias

from flower.app import Flower
from flower.views import BaseHandler
from tornado.iostream import StreamClosedError
from tornado.template import Loader, Template
from tornado.web import HTTPError, RequestHandler, stream_request_body

logger = logging.getLogger(__name__)
Message: TypeAlias = MutableMapping[str, Any]
Asgi = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

BAR, LAST_TAB, LIST_END = "navbar.html", ">Broker</a>", "</ul>"
_TAB = '<li class="nav-item"><a class="nav-link" href="{}">Coordinator</a></li>'
MOST_BODY = 64 * 1024  # bytes, as coordinator/dashboard/access.py has it
_PER_CONNECTION = ("connection", "content-length", "transfer-encoding")


def at_start(ready: Callable[[Flower], None]) -> None:
    """Call `ready` with each Flower that starts from now on. A repeated call changes nothing."""
    usual = Flower.__init__
    if hasattr(usual, "coordinator_usual"):
        return

    @wraps(usual)
    def init(self: Flower, *args: object, **kwargs: object) -> None:
        usual(self, *args, **kwargs)
        ready(self)

    vars(init)["coordinator_usual"] = usual
    Flower.__init__ = init


def mount(flower: Flower, app: Asgi) -> None:
    """Serve the app's pages in this Flower, to whom Flower lets in; `scope["flower.user"]` is its user."""
    prefix = (flower.options.url_prefix or "").strip("/")
    root = f"/{prefix}/coordinator" if prefix else "/coordinator"
    flower.add_handlers(r".*", [(rf"{root}(?:/.*)?", AsgiHandler, {"app": app, "root": root})])
    flower.settings["template_loader"] = _WithTab(flower.settings["template_path"], root)


class _WithTab(Loader):
    """Flower's templates, with a tab behind the last one; without it where that is not found."""

    def __init__(self, folder: str, root: str) -> None:
        super().__init__(folder)
        self._coordinator_root = root

    def _create_template(self, name: str) -> Template:
        template = super()._create_template(name)
        if name != BAR:
            return template
        with open(f"{self.root}/{name}", encoding="utf-8") as file:
            text = file.read()
        at = text.find(LIST_END, text.find(LAST_TAB))
        if LAST_TAB not in text or at < 0:
            logger.warning("Flower's bar is another one: no tab; the pages are at %s", self._coordinator_root)
            return template
        tabbed = text[:at] + _TAB.format(self._coordinator_root + "/") + text[at:]
        return Template(tabbed, name=name, loader=self)


@stream_request_body
class AsgiHandler(RequestHandler):
    """Carries one request to an ASGI app, and its answer back, piece by piece. Flower's login comes first.

    It takes no more of a body than the app reads: Flower itself would take 100 MB.
    """

    def initialize(self, app: Asgi, root: str) -> None:
        self._app, self._root, self._gone = app, root, asyncio.Event()
        self._body = b""

    def prepare(self) -> None:
        length = self.request.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > MOST_BODY:
            raise HTTPError(413)

    def data_received(self, chunk: bytes) -> None:
        if len(self._body) <= MOST_BODY:  # one byte too many, and the app refuses it
            self._body += chunk

    def set_default_headers(self) -> None:
        self.clear_header("Server")

    def get_current_user(self) -> object:
        return BaseHandler.get_current_user(self)

    def check_xsrf_cookie(self) -> None:
        """The app checks each POST by itself, with or without a login."""

    def on_connection_close(self) -> None:
        self._gone.set()

    async def get(self) -> None:
        if not self.request.path.startswith(f"{self._root}/"):
            return self.redirect(f"{self._root}/")
        try:
            user = self.current_user
        except HTTPError as error:
            self.set_status(error.status_code)
            self.set_header("WWW-Authenticate", 'Basic realm="flower"')
            return
        if not user:
            return self.redirect(self.get_login_url())
        await self._app(self._scope(user), self._receive, self._send)

    head = post = get

    def _scope(self, user: object) -> Message:
        request = self.request
        path, _, query = request.uri.partition("?")
        headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.get_all()
        ]
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": request.method,
            "scheme": request.protocol, "path": request.path, "raw_path": path.encode(), "query_string": query.encode(),
            "root_path": self._root, "headers": headers, "client": (request.remote_ip, 0), "flower.user": user,
        }  # fmt: skip

    async def _receive(self) -> Message:
        if not hasattr(self, "_body_read"):
            self._body_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.set_status(message["status"])
            self.clear_header("Content-Type")
            for name, value in message["headers"]:
                if name.decode().lower() not in _PER_CONNECTION:
                    self.add_header(name.decode(), value.decode("latin-1"))
            return
        self.write(message.get("body", b""))
        if message.get("more_body"):
            try:
                await self.flush()
            except StreamClosedError:
                self._gone.set()
