"""Makes Flower serve an ASGI app under /coordinator, and adds a tab for it to Flower's navigation bar.

Flower gives no way to get at its application object, so its `__init__` is wrapped. All else is tornado's public API:
`add_handlers`, and a handler that passes requests to an ASGI app. `coordinator/ops/in_flower.py` chooses the ASGI app.
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
MOST_BODY = 64 * 1024  # bytes of a request's body, the same bound as in coordinator/ops/dashboard/access.py
_PER_CONNECTION = ("connection", "content-length", "transfer-encoding")


def at_start(ready: Callable[[Flower], None]) -> None:
    """Call `ready(flower)` with each Flower application that this process creates from now on. A second call of this
    function changes nothing.
    """
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
    """Serve the ASGI app under /coordinator in this Flower, behind Flower's login. The app finds the user who is logged
    in in `scope["flower.user"]`.
    """
    prefix = (flower.options.url_prefix or "").strip("/")
    root = f"/{prefix}/coordinator" if prefix else "/coordinator"
    flower.add_handlers(r".*", [(rf"{root}(?:/.*)?", AsgiHandler, {"app": app, "root": root})])
    flower.settings["template_loader"] = _WithTab(flower.settings["template_path"], root)


class _WithTab(Loader):
    """Loads Flower's templates, and adds a tab behind the last one in the navigation bar; where the bar has an unknown
    form, it stays as it is.
    """

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
            logger.warning("Flower's bar has an unknown form, so no tab; the pages are at %s", self._coordinator_root)
            return template
        tabbed = text[:at] + _TAB.format(self._coordinator_root + "/") + text[at:]
        return Template(tabbed, name=name, loader=self)


@stream_request_body
class AsgiHandler(RequestHandler):
    """Passes one HTTP request to an ASGI app once the user is logged in to Flower, and streams the response back.

    It reads at most MOST_BODY bytes of a request's body; Flower itself would read 100 MB.
    """

    def initialize(self, app: Asgi, root: str) -> None:
        self._app, self._root, self._gone = app, root, asyncio.Event()
        self._body = b""

    def prepare(self) -> None:
        length = self.request.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > MOST_BODY:
            raise HTTPError(413)

    def data_received(self, chunk: bytes) -> None:
        if len(self._body) <= MOST_BODY:  # stop above the bound: the app refuses a body that is longer
            self._body += chunk

    def set_default_headers(self) -> None:
        self.clear_header("Server")

    def get_current_user(self) -> object:
        return BaseHandler.get_current_user(self)

    def check_xsrf_cookie(self) -> None:
        """Check nothing here: the ASGI app protects each POST against cross-site requests itself."""

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
