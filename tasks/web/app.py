"""The HTTP API for members, an ASGI app: the part of a DataONE coordinating node's REST API that member nodes need.

    GET  /cn/v2/monitor/ping, /cn/v2/node, /cn/v2/node/{id}   for anybody: is it up? The approved members; one of them
    POST /cn/v2/synchronize          (multipart, pid)         for a member: sync this object of mine now
    POST /cn/v2/synchronize/{pid}    (urlencoded, pid)        the same, in the form that DataONE's member node GMN sends
    HEAD /cn/v2/object/{pid}                                  for a member: is this object of mine in the catalog?

A member's request is checked in this order: the announced size, which member sends it, the number of its requests in a
minute, whether the member may be synchronized, and at last the body. A sync becomes the same message as any other
request (tasks/requests.py), for the member that sent it: no part of the request can name another member.
"""

import asyncio
import logging
from collections.abc import Callable
from email.parser import BytesParser
from email.policy import HTTP
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qsl, unquote

import anyio.to_thread
from kombu.exceptions import OperationalError
from lxml import etree
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from coordinator import CoordinatorError
from tasks import requests
from tasks.app import coordinator
from tasks.catalog.catalog import storable
from tasks.catalog.holders import holders
from tasks.member_node.member import NAMESPACES
from tasks.nodelist.stores import NodelistStoreAway
from tasks.nodelist.xml_format import serialized, write_nodelist
from tasks.nodelist.xml_store import NodelistUnreadable
from tasks.service import service
from tasks.settings import Settings
from tasks.web.answers import XML, DataoneError, identifier, valid
from tasks.web.caller import Callers

logger = logging.getLogger(__name__)
T = TypeVar("T")

LONGEST = 64 * 1024  # most bytes of a request's body
PATIENCE = 10.0  # most seconds to receive a body, and to do the work for a request
THREADS = 8
MINUTE, LATER = 60, 10  # seconds: in which requests are counted, and after which to retry where a server is away
AWAY = (
    CoordinatorError,
    OperationalError,
    SQLAlchemyError,
    NodelistStoreAway,
    NodelistUnreadable,
    ClientDisconnect,
    OSError,  # includes TimeoutError
)


class MembersApp:
    def __init__(self, callers: Callers) -> None:
        self._callers, self._threads = callers, anyio.CapacityLimiter(THREADS)
        self._node_id = Settings.from_environment().node_id
        self._list: tuple[int, bytes] = (-1, b"")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the members' API serves http, not {scope['type']}")
        try:
            answer = await self._answer(Request(scope, receive))
        except DataoneError as refused:
            answer = refused.answer(self._node_id)
        except AWAY as error:
            logger.warning("a member's request cannot be answered now: %s", error)
            later = DataoneError(503, "ServiceFailure", "this node cannot do it now: ask again", LATER)
            answer = later.answer(self._node_id)
        except Exception:
            logger.exception("a member's request failed")
            answer = DataoneError(500, "ServiceFailure", "this node failed").answer(self._node_id)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        match (request.method, *_path(request.scope)):
            case ("GET", "monitor", "ping"):
                await self._in_thread(lambda: service().nodelist.document.read())
                return Response(media_type=XML)
            case ("GET", "node"):
                return Response(await self._in_thread(self._nodes), media_type=XML)
            case ("GET", "node", member_id):
                return Response(await self._in_thread(partial(_node, member_id)), media_type=XML)
            case ("HEAD", "object", pid):
                return await self._in_thread(partial(self._has, request, pid))
            case ("POST", "synchronize", *pids) if len(pids) < 2:
                return await self._synchronize(request, pids)
        raise DataoneError(501, "NotImplemented", "this coordinating node does not have that")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        with anyio.fail_after(PATIENCE):
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)

    async def _synchronize(self, request: Request, pids: list[str]) -> Response:
        if int(request.headers.get("content-length", 0)) > LONGEST:
            raise _too_large()
        member_id = await self._in_thread(partial(self._admit, request))
        pid = _pid(await _body(request), request.headers.get("content-type", ""), pids)
        answer = identifier(pid)
        await self._in_thread(partial(_ask, member_id, pid))
        return Response(answer, media_type=XML)

    def _admit(self, request: Request) -> str:
        """The id of the member that sends the request. Raises DataoneError where that member cannot be synchronized."""
        nodelist = service().nodelist
        listed = nodelist.listed()
        member_id = self._callers.caller(request, listed, nodelist.tokens())
        _count(member_id)
        obstacle = listed[member_id].member.obstacle if listed[member_id].approved else "it is not approved"
        if obstacle:
            raise DataoneError(401, "NotAuthorized", f"{member_id} is not synchronized: {obstacle}")
        return member_id

    def _has(self, request: Request, pid: str) -> Response:
        held = service().catalog.known(self._admit(request), [pid])
        return Response(status_code=200 if held else 404)

    def _nodes(self) -> bytes:
        nodelist = service().nodelist
        version = nodelist.document.read().version
        if version != self._list[0] or not version:
            if not (members := nodelist.members()):
                raise DataoneError(404, "NotFound", "no member is approved yet")
            self._list = version, write_nodelist(map(valid, members))
        return self._list[1]


def _path(scope: Scope) -> list[str]:
    """The segments of the path after /cn/v2 or /v2, each decoded after the split, since a pid may contain a slash.

    Raises DataoneError for another path.
    """
    path = scope["raw_path"].decode("ascii", "replace").removeprefix(scope.get("root_path", ""))
    behind, version, rest = path.partition("/v2/")
    if behind not in ("", "/cn") or not version:
        raise DataoneError(404, "NotFound", "this coordinating node serves /cn/v2")
    try:
        return [unquote(part, errors="strict") for part in rest.rstrip("/").split("/")]
    except UnicodeDecodeError as error:
        raise DataoneError(400, "InvalidRequest", "the path is not UTF-8") from error


def _node(member_id: str) -> bytes:
    listed = service().nodelist.listed().get(member_id)
    if listed is None or not listed.approved:
        raise DataoneError(404, "NotFound", f"no member {member_id[:200]!a} is here")
    element = valid(listed.member).to_xml("v2", f"{{{NAMESPACES['v2']}}}node")
    etree.indent(element)
    return serialized(element)


def _count(member_id: str) -> None:
    """Count a member's request in Redis. Raises DataoneError for more than TASKS_MEMBER_RATE requests in a minute."""
    store, most = coordinator.store, service().settings.member_rate
    key = store.key("asked-by", member_id)
    steps = (("SET", key, 0, "EX", MINUTE, "NX"), ("INCR", key), ("TTL", key))
    _, count, left = store.read_many(steps, atomic=True)
    if count > most:
        raise DataoneError(429, "ServiceFailure", f"a member may make {most} requests in a minute", max(1, left))


def _too_large() -> DataoneError:
    return DataoneError(413, "InsufficientResources", f"a request has at most {LONGEST} bytes")


async def _body(request: Request) -> bytes:
    body = bytearray()
    async with asyncio.timeout(PATIENCE):
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST:
                raise _too_large()
    return bytes(body)


def _pid(body: bytes, kind: str, pids: list[str]) -> str:
    """The pid in a request. Raises DataoneError if there is none, or if body and path name different pids.

    `kind`: the content type of the body. `pids`: the pid in the path, or empty.
    """
    try:
        named = {*pids, *_values(body, kind)}
    except ValueError as error:
        raise DataoneError(400, "InvalidRequest", "the pid is not UTF-8") from error
    if len(named) != 1 or "" in named:
        raise DataoneError(400, "InvalidRequest", "name one pid, in a field `pid` of multipart/form-data")
    return named.pop()


def _values(body: bytes, kind: str) -> list[str]:
    """The values of all fields `pid` in a form. `kind`: the content type. Raises ValueError for other than UTF-8."""
    if kind.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
        fields = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=10)
        return [value for name, value in fields if name == "pid"]
    message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + body)
    parts = message.iter_parts() if message.is_multipart() else ()
    named = (part for part in parts if part.get_param("name", header="content-disposition") == "pid")
    values = [part.get_payload(decode=True) for part in named]
    return [value.decode() for value in values if isinstance(value, bytes)]


def _ask(member_id: str, pid: str) -> None:
    """Publish a request to sync the object of a member. Raises DataoneError if only other members have the object."""
    current = service()
    if not storable(member_id, pid):
        raise DataoneError(400, "InvalidRequest", "the federation has no such identifiers")
    held = holders(current.catalog, pid, current.nodelist.listed())
    if held and member_id not in held:
        raise DataoneError(401, "NotAuthorized", "another member holds this object")
    requests.refresh(member_id, pid, "the member asked over HTTP")
