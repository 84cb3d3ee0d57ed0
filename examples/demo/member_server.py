"""A small member node on loopback with the real REST API, for the demo, the benchmark and the tests.

    python -m examples.demo.member_server --objects 2000 --changes 5

Its listings behave like those of a real implementation: dates have microseconds, fromDate is inclusive and toDate is
not, the default count is 100 and the greatest 5,000, and a `start` beyond a total above zero gets a 400.
"""

import argparse
import hashlib
import random
import signal
import ssl
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from tasks import instants
from tasks.member_node.member import NAMESPACES, Member, MemberSchedule, Service, Version

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<?xml-stylesheet type="text/xsl" href="/types.xsl"?>\n'
DEFAULT_COUNT, MAX_COUNT = 100, 5000
SECOND = timedelta(seconds=1)
EVERY_TEN_SECONDS = MemberSchedule(sec="0/10", min="*", hour="*", mday="*", mon="*", wday="?", year="*")


class Request(NamedTuple):
    method: str
    version: Version
    path: tuple[str, ...]
    """Segments after the version, decoded."""
    query: Mapping[str, str]
    body: bytes = b""


class Reply(NamedTuple):
    body: bytes | Iterable[bytes] = b""
    """Several parts are sent as they come, and the connection ends after the last one."""
    status: int = 200
    headers: Mapping[str, str] = {}


Hook = Callable[[Request], Reply | None]


class MemberServer:
    """Serves within `with`. A hook sees each request first, in the connection's thread, and may answer or delay it."""

    def __init__(
        self,
        member_id: str = "urn:node:mnLoopback",
        *,
        port: int = 0,
        hook: Hook = lambda request: None,
        schedule: MemberSchedule = EVERY_TEN_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.hook = hook
        self.errors: list[bytes] = []
        self._order: list[tuple[datetime, str]] = []
        self._objects: dict[str, tuple[datetime, int]] = {}
        self._lock = Lock()
        self._stopped = Event()
        self._http = _Server(("127.0.0.1", port), _Handler, bind_and_activate=True)
        self._http.member_server = self
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.member = Member(
            identifier=member_id,
            name=f"Loopback {member_id}",
            description="A member node on this machine.",
            base_url=f"http{'s' if tls else ''}://127.0.0.1:{self._http.server_port}/mn",
            type="mn",
            state="up",
            replicate=False,
            synchronize=True,
            services=tuple(
                Service(name=name, version=version) for version in NAMESPACES for name in ("MNCore", "MNRead")
            ),
            schedule=schedule,
            contact_subjects=("CN=Loopback,O=Example",),
        )

    def __enter__(self) -> Self:
        Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._http.shutdown()
        self._http.server_close()

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def pids(self) -> set[str]:
        with self._lock:
            return set(self._objects)

    def put(self, pid: str, modified: datetime | None = None) -> None:
        """Create the object, or change it."""
        modified = modified or instants.now()
        with self._lock:
            old = self._objects.get(pid)
            if old is not None:
                del self._order[bisect_left(self._order, (old[0], pid))]
            insort(self._order, (modified, pid))
            self._objects[pid] = (modified, 1 if old is None else old[1] + 1)

    def remove(self, pid: str) -> None:
        """Delete the object: it is listed no more, and its metadata is not found."""
        with self._lock:
            self._order.remove((self._objects.pop(pid)[0], pid))

    def fill(
        self, count: int, *, first: datetime | None = None, step: timedelta = SECOND, prefix: str = "doi:10.5/"
    ) -> None:
        """Create `count` objects, one each `step`. Without `first`, the last of them is a minute old."""
        first = first or instants.now() - timedelta(minutes=1) - step * count
        for number in range(count):
            self.put(f"{prefix}{number:06d}", first + step * number)

    def keep_changing(self, per_second: float) -> None:
        """Change objects from now on; one change in five creates a new one."""
        Thread(target=self._change, args=(1 / per_second,), daemon=True).start()

    def _change(self, interval: float) -> None:
        while not self._stopped.wait(interval):
            pids = list(self.pids)
            new = not pids or random.random() < 0.2
            self.put(f"doi:10.5/new-{len(pids):06d}" if new else random.choice(pids))

    def entries(self, since: datetime, until: datetime) -> list[tuple[datetime, str]]:
        with self._lock:
            return self._order[bisect_left(self._order, (since, "")) : bisect_left(self._order, (until, ""))]

    def answer(self, request: Request) -> Reply:
        if (reply := self.hook(request)) is not None:
            return reply
        match (request.method, *request.path):
            case ("GET", "object"):
                return self._list(request)
            case ("GET", "meta", pid):
                return self._describe(request, pid)
            case ("GET", "monitor", "ping"):
                return Reply()
            case ("GET", "node"):
                tag = f"{{{NAMESPACES[request.version]}}}node"
                return Reply(etree.tostring(self.member.to_xml(request.version, tag)))
            case ("POST", "error"):
                self.errors.append(request.body)
                return Reply()
        return failure(404, "NotFound", "there is nothing here")

    def _list(self, request: Request) -> Reply:
        query = request.query
        try:
            since = instants.parse(query.get("fromDate", "0001-01-01"))
            until = instants.parse(query.get("toDate", "9999-12-31"))
            start, count = int(query.get("start", 0)), int(query.get("count", DEFAULT_COUNT))
        except ValueError as error:
            return failure(400, "InvalidRequest", str(error))
        found = self.entries(since, until)
        if start < 0 or count < 0 or start >= len(found) > 0:
            return failure(400, "InvalidRequest", f"start {start}, count {count} of {len(found)}")
        return listing(found[start : start + min(count, MAX_COUNT)], start, len(found))

    def _describe(self, request: Request, pid: str) -> Reply:
        found = self._objects.get(pid)
        if found is None:
            return failure(404, "NotFound", f"no object {pid}")
        return system_metadata(pid, *found, version=request.version)


def listing(entries: Iterable[tuple[datetime, str]], start: int, total: int) -> Reply:
    infos = [
        f"<objectInfo><identifier>{escape(pid)}</identifier><formatId>text/csv</formatId>"
        f'<checksum algorithm="SHA-1">{_checksum(pid)}</checksum>'
        f"<dateSysMetadataModified>{instants.full(modified)}</dateSysMetadataModified>"
        f"<size>{len(pid)}</size></objectInfo>"
        for modified, pid in entries
    ]
    opening = f'<ns1:objectList xmlns:ns1="{NAMESPACES["v1"]}" count="{len(infos)}" start="{start}" total="{total}">'
    return Reply(f"{HEAD}{opening}{''.join(infos)}</ns1:objectList>".encode())


def system_metadata(pid: str, modified: datetime, serial: int = 1, *, version: Version = "v2") -> Reply:
    date = instants.full(modified)
    return Reply(
        f'{HEAD}<d1:systemMetadata xmlns:d1="{NAMESPACES[version]}"><serialVersion>{serial}</serialVersion>'
        f"<identifier>{escape(pid)}</identifier><formatId>text/csv</formatId><size>{len(pid)}</size>"
        f'<checksum algorithm="SHA-1">{_checksum(pid)}</checksum><submitter>CN=Loopback</submitter>'
        f"<rightsHolder>CN=Loopback</rightsHolder><archived>false</archived><dateUploaded>{date}</dateUploaded>"
        f"<dateSysMetadataModified>{date}</dateSysMetadataModified></d1:systemMetadata>".encode()
    )


def failure(status: int, name: str, description: str) -> Reply:
    body = f'{HEAD}<error name={quoteattr(name)} errorCode="{status}" detailCode="0">'
    return Reply(f"{body}<description>{escape(description)}</description></error>".encode(), status)


def _checksum(pid: str) -> str:
    return hashlib.sha1(pid.encode(), usedforsecurity=False).hexdigest()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    member_server: MemberServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Stay silent: a client may leave at any time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        version, *path = parts.path.removeprefix("/mn/").split("/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if version not in ("v1", "v2"):
            self._send(failure(404, "NotFound", "no such version"))
            return
        request = Request(
            self.command,
            "v2" if version == "v2" else "v1",
            tuple(unquote(segment) for segment in path),
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            body,
        )
        self._send(self.server.member_server.answer(request))

    do_POST = do_GET

    def _send(self, reply: Reply) -> None:
        lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}", "Content-Type: text/xml"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        if isinstance(reply.body, bytes):
            lines += [f"Content-Length: {len(reply.body)}", "", ""]
            self.wfile.write("\r\n".join(lines).encode() + reply.body)
            return
        self.close_connection = True
        self.wfile.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        for part in reply.body:
            self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent: nobody reads this log."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo.member_server", description="A member node on loopback."
    )
    parser.add_argument("--id", default="urn:node:mnLoopback")
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    parser.add_argument("--objects", type=int, default=1000, help="objects at the start")
    parser.add_argument("--changes", type=float, default=0, help="changes per second")
    given = parser.parse_args()
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with suppress(BrokenPipeError), MemberServer(given.id, port=given.port) as server:
        server.fill(given.objects)
        if given.changes:
            server.keep_changing(given.changes)
        print(server.member.model_dump_json(), flush=True)
        while not stop.wait(0.5):  # a signal that the system gives to another thread does not wake this one
            pass


if __name__ == "__main__":
    main()
