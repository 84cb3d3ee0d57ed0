"""Members ask over HTTP, as DataONE's client and GMN do, through TLS: each has its own objects harvested, no others.

tests/samples/dataone has the requests byte for byte, as dataone.libclient and dataone.gmn 3.5.2 send them.
"""

import base64
import hashlib
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import trustme
from lxml import etree

from tasks import instants
from tasks.nodelist.xml_format import parse_nodelist
from tests.fleet.tasks.conftest import A, B, Members
from tests.fleet.tasks.service import QUEUE, Service
from tests.harness.command import IMPORT, ROOT, Command, told
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.tasks.conftest import SAMPLES, document

OLD = instants.parse("2001-01-01T00:00:00Z")
OURS, OTHERS = trustme.CA(), trustme.CA()
PIDS = ("pid/1+&?ü", "c/0+&?ü")
"""The pids of the recorded requests."""
MIB = 1024 * 1024
SUBJECT = "CN=mnA,OU=nodes,O=Federation"


def certificate(authority: trustme.CA, name: str, folder: Path) -> Path:
    path = folder / f"{name}-{id(authority)}.pem"
    made = authority.issue_cert(
        "client", common_name=name, organization_name="Federation", organization_unit_name="nodes"
    )
    made.private_key_and_cert_chain_pem.write_to_path(path)
    return path


class Door:
    """`coordinator web`, as clients see it."""

    def __init__(self, command: Command, folder: Path) -> None:
        self.command, self.folder = command, folder
        command.says("/cn/v2")
        self.url = command.out.split()[-1]
        self.process = psutil.Process(command.process.pid)

    def tls(self, authority: trustme.CA | None = None, name: str = "mnA") -> ssl.SSLContext:
        """A client's; it shows a certificate of the authority."""
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        if authority:
            context.load_cert_chain(certificate(authority, name, self.folder))
        return context

    def ask(self, method: str, path: str, tls: ssl.SSLContext | None = None, **given: object) -> httpx.Response:
        with httpx.Client(verify=tls or self.tls(), timeout=60) as client:
            return client.request(method, self.url + path, **given)  # type: ignore[arg-type]

    def synchronize(self, pid: str, tls: ssl.SSLContext | None = None, **given: object) -> httpx.Response:
        return self.ask("POST", "/synchronize", tls, files={"pid": (None, pid.encode())}, **given)

    def play(self, name: str, tls: ssl.SSLContext, token: str = "") -> bytes:
        """Send a recorded request byte for byte, but for the token. Returns the answer."""
        asked = (SAMPLES / "dataone" / f"{name}.http").read_bytes().replace(b"TOKEN", token.encode())
        return self.send(asked.replace(b"\r\n", b"\r\nConnection: close\r\n", 1), tls)

    def send(self, asked: bytes, tls: ssl.SSLContext) -> bytes:
        """Send these bytes. Returns all that comes, until the server closes the connection."""
        parts = urlsplit(self.url)
        plain = socket.create_connection((str(parts.hostname), parts.port or 0), 30)
        with plain, tls.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            connection.sendall(asked)
            return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture
def service(own_redis: RedisServer, tmp_path: Path, members: Members) -> Iterator[Service]:
    """A has the objects of the recorded requests, too old for any increment. The list names its certificate."""
    subjects = ("CN=somebody", "cn = mnA, ou = nodes, o = Federation")
    for member, named in zip(members, [subjects, ("CN=twice,OU=nodes,O=Federation",)], strict=True):
        member.member = member.member.model_copy(update={"subjects": named, "schedule": None})
    for pid in PIDS:
        members[0].put(pid, OLD)
    with Service(own_redis, tmp_path, members, TASKS_TRIES="1", TASKS_MEMBER_RATE="40") as service:
        yield service


@contextmanager
def opened(service: Service, *args: str, command: str = "web") -> Iterator[Door]:
    with Command(service.folder / "web", command, "--port", "0", *args, env=service.environ) as web:
        yield Door(web, service.folder)


@pytest.fixture
def door(service: Service, tmp_path: Path) -> Iterator[Door]:
    """TLS ends in it; it asks for client certificates."""
    OURS.cert_pem.write_to_path(tmp_path / "ca.pem")
    OURS.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    with opened(service, "--certificate", str(tmp_path / "own.pem"), "--client-ca", str(tmp_path / "ca.pem")) as door:
        yield door


def token_of(service: Service, member_id: str) -> str:
    return told(service.call("members", "token", member_id, "--why", "they asked"))


def error(answer: httpx.Response) -> tuple[int, str]:
    """The status, and the name of DataONE's error."""
    root = etree.fromstring(answer.content)
    assert (root.tag, root.get("errorCode"), root.get("nodeId")) == ("error", str(answer.status_code), "urn:node:CN")
    assert root.findtext("description")
    return answer.status_code, str(root.get("name"))


def asked(service: Service) -> int:
    """The requests that reached the broker's queue. No node reads it."""
    with service.redis.client(1) as broker:
        return int(broker.llen(QUEUE))


def test_the_recorded_requests_of_dataones_client_and_of_gmn_are_served(service: Service, door: Door) -> None:
    service.node("one")
    token, mine = token_of(service, A), door.tls(OURS)
    assert door.play("ping", door.tls(), token).startswith(b"HTTP/1.1 200")
    nodes = door.play("nodes", door.tls(), token)
    assert b"content-type: text/xml" in nodes
    assert [one.identifier for one in parse_nodelist(nodes.partition(b"\r\n\r\n")[2]).members] == [A, B]
    missing = door.play("node", door.tls(), token)
    assert (missing[:12], b'name="NotFound"' in missing) == (b"HTTP/1.1 404", True)
    assert door.play("gmn_object", mine).startswith(b"HTTP/1.1 404")
    assert door.play("gmn_object", door.tls()).startswith(b"HTTP/1.1 401")

    for name, pid, (tls, key) in zip(
        ("synchronize", "gmn_synchronize"), PIDS, ((door.tls(), token), (mine, "")), strict=True
    ):
        answer = door.play(name, tls, key)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert etree.fromstring(answer.partition(b"\r\n\r\n")[2]).text == pid
        wait_until(lambda pid=pid: pid in service.pids(A))
    assert door.play("gmn_object", mine).startswith(b"HTTP/1.1 200")
    assert service.pids(B) == set()
    one = door.ask("GET", f"/node/{A}")
    assert etree.fromstring(one.content).tag == "{http://ns.dataone.org/service/types/v2.0}node"


def test_who_is_no_member_and_what_is_no_request_is_refused_and_changes_nothing(service: Service, door: Door) -> None:
    token, mine = token_of(service, A), door.tls(OURS)
    ended = token_of(service, B)
    told(service.call("members", "token", B, "--revoke", "--why", "it leaked"))
    late = f"lambda kept: {{'token': '{hashlib.sha256(b'late').hexdigest()}'}}, why='its member left meanwhile'"
    service.shell(f"from tasks.service import service; service().nodelist.keep('urn:node:left', {late})")
    forged = {"X-Subject": SUBJECT, "X-Forwarded-For": "127.0.0.1", "X-SSL-Client-S-DN": SUBJECT}
    of_a, form = {"Authorization": f"Bearer {token}"}, {"Content-Type": "application/x-www-form-urlencoded"}
    refused: list[tuple[Callable[[], httpx.Response], tuple[int, str]]] = [
        (lambda: door.synchronize("a"), (401, "NotAuthorized")),
        (lambda: door.synchronize("a", headers=forged), (401, "NotAuthorized")),
        (lambda: door.synchronize("a", door.tls(OURS, "nobody")), (401, "NotAuthorized")),
        (lambda: door.synchronize("a", mine, headers={"Authorization": "Bearer wrong"}), (401, "InvalidToken")),
        (lambda: door.synchronize("a", headers={"Authorization": f"Bearer {ended}"}), (401, "InvalidToken")),
        (lambda: door.synchronize("a", headers={"Authorization": "Bearer late"}), (401, "InvalidToken")),
        (lambda: door.synchronize("", mine), (400, "InvalidRequest")),
        (lambda: door.synchronize("\x01", mine), (400, "InvalidRequest")),
        (lambda: door.synchronize("p" * 801, mine), (400, "InvalidRequest")),
        (lambda: door.ask("POST", "/synchronize", mine, files={"node": (None, B)}), (400, "InvalidRequest")),
        (lambda: door.ask("POST", "/synchronize", mine, content=b"\xff" * 99), (400, "InvalidRequest")),
        (lambda: door.ask("POST", "/synchronize", mine, content=b"pid=%FF", headers=form), (400, "InvalidRequest")),
        (lambda: door.ask("POST", "/synchronize/a", mine, data={"pid": "b"}), (400, "InvalidRequest")),
        (lambda: door.synchronize("p" * 65536, headers=of_a), (413, "InsufficientResources")),
        (lambda: door.ask("PUT", f"/node/{B}", mine, content=b"<node/>"), (501, "NotImplemented")),
        (lambda: door.ask("GET", "/../../node"), (404, "NotFound")),
        (lambda: door.ask("GET", "/node/urn:node:mnNowhere"), (404, "NotFound")),
    ]
    for number, (request, status) in enumerate(refused):
        assert error(request()) == status, number
    with pytest.raises(httpx.TransportError):
        door.synchronize("a", door.tls(OTHERS))
    assert asked(service) == 0
    assert door.ask("POST", "/synchronize", mine, files={"pid": (None, "a"), "node": (None, B)}).status_code == 200
    with service.redis.client(1) as broker:
        (message,) = broker.lrange(QUEUE, 0, -1)
    body = json.loads(base64.b64decode(json.loads(message)["body"]))
    assert (body["node"], body["pid"]) == (A, "a")
    assert "Traceback" not in door.command.err


def test_a_member_asks_for_its_own_objects_and_for_those_that_nobody_has(
    service: Service, door: Door, members: Members
) -> None:
    service.node("one")
    for member, pids in zip(members, [("both",), ("both", "only-b")], strict=True):
        for pid in pids:
            member.put(pid, instants.now() - timedelta(minutes=1))
    for member_id in (A, B):
        service.ask(json.dumps({"node": member_id, "id": member_id}))
        assert service.ended(member_id).state == "succeeded"
    mine = door.tls(OURS)
    before = service.coordinator.counts()
    assert error(door.synchronize("only-b", mine)) == (401, "NotAuthorized")
    assert service.coordinator.counts() == before
    for pid in ("both", "nobody-has-it"):
        assert door.synchronize(pid, mine).status_code == 200
    wait_until(lambda: any(one.pid == "nobody-has-it" for one in service.catalog.failed(A)))
    assert [one.pid for one in service.catalog.failed(B)] == []


def test_a_member_that_asks_too_often_waits_and_the_others_do_not(service: Service, door: Door) -> None:
    mine, other = door.tls(OURS), {"Authorization": f"Bearer {token_of(service, B)}"}
    with httpx.Client(verify=mine, timeout=60) as client:
        form = {"pid": (None, "a")}
        answers = [client.post(f"{door.url}/synchronize", files=form) for _ in range(60)]
    late = [answer for answer in answers if answer.status_code != 200]
    assert 15 <= len(late) <= 20  # a minute may have ended meanwhile
    assert error(late[-1]) == (429, "ServiceFailure")
    assert 0 < int(late[-1].headers["Retry-After"]) <= 60
    assert door.synchronize("b", headers=other).status_code == 200
    assert asked(service) == 61 - len(late)


def test_a_hundred_megabytes_are_refused_and_the_memory_stays_flat(service: Service, door: Door) -> None:
    head = f"POST /cn/v2/synchronize HTTP/1.1\r\nHost: cn\r\nContent-Length: {100 * MIB}\r\n\r\n"
    assert door.send(head.encode(), door.tls()).startswith(b"HTTP/1.1 413")  # it waits for none of it
    mine, before = door.tls(OURS), door.process.memory_info().rss
    for announced in ({}, {"Content-Length": str(100 * MIB)}):
        body = (b"x" * MIB for _ in range(100))
        try:
            assert error(door.ask("POST", "/synchronize", mine, content=body, headers=announced))[0] == 413
        except httpx.TransportError:
            assert announced  # the server closed the connection before all was sent
        assert door.process.memory_info().rss - before < 30 * MIB
    assert asked(service) == 0
    assert door.ask("GET", "/monitor/ping").status_code == 200


def test_only_the_named_proxy_says_whose_certificate_it_saw(service: Service) -> None:
    with opened(service, "--proxy", "127.0.0.1", "--subject-header", "X-Subject") as door:
        names = {"X-Subject": SUBJECT}
        assert (
            httpx.post(f"{door.url}/synchronize", files={"pid": (None, "a")}, headers=names, timeout=60).status_code
            == 200
        )
        for wrong in ([("X-Subject", SUBJECT), ("X-Subject", "CN=x")], [("X-Subject", "mnA")]):
            answer = httpx.post(f"{door.url}/synchronize", files={"pid": (None, "a")}, headers=wrong, timeout=60)
            assert error(answer) == (401, "NotAuthorized")
        with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"), timeout=60) as stranger:
            forged = stranger.post(f"{door.url}/synchronize", files={"pid": (None, "a")}, headers=names)
        assert error(forged) == (401, "NotAuthorized")
    assert asked(service) == 1


def test_two_members_that_name_one_certificate_have_none_and_a_suspended_one_asks_in_vain(
    service: Service, door: Door, members: Members
) -> None:
    for member in members:
        member.member = member.member.model_copy(update={"subjects": (SUBJECT,)})
    token, both = (
        {"Authorization": f"Bearer {token_of(service, A)}"},
        document(service.folder, *(m.member for m in members)),
    )
    told(service.call(*IMPORT, both))
    assert error(door.synchronize("a", door.tls(OURS))) == (401, "NotAuthorized")
    assert door.synchronize("a", headers=token).status_code == 200
    told(service.call("members", "suspend", A, "--why", "it moves"))
    assert error(door.synchronize("a", headers=token)) == (401, "NotAuthorized")
    assert A not in {one.identifier for one in parse_nodelist(door.ask("GET", "/node").content).members}
    assert asked(service) == 1


def test_while_redis_is_away_members_hear_that_and_ask_again(
    service: Service, door: Door, own_redis: RedisServer
) -> None:
    mine = door.tls(OURS)
    assert door.synchronize("a", mine).status_code == 200
    own_redis.kill()
    assert error(door.synchronize("a", mine)) == (503, "ServiceFailure")
    assert error(door.ask("GET", "/monitor/ping")) == (503, "ServiceFailure")
    own_redis.start()
    wait_until(lambda: door.synchronize("a", mine).status_code == 200)


def test_a_dashboard_serves_members_beside_its_login_where_somebody_wants_that(service: Service) -> None:
    token = token_of(service, A)
    env = {**service.environ, "PYTHONPATH": str(ROOT)}  # with all that FastAPI loads
    with Command(service.folder / "web", "dashboard", "--port", "0", "--mount", "/cn", env=env) as pages:
        pages.says("token=")
        (url,) = re.findall(r"http://[\d.:]+", pages.out)
        assert httpx.get(f"{url}/", timeout=60).status_code == 401
        assert [
            one.identifier for one in parse_nodelist(httpx.get(f"{url}/cn/v2/node", timeout=60).content).members
        ] == [A, B]
        ask = {"Authorization": f"Bearer {token}"}
        assert (
            httpx.post(f"{url}/cn/v2/synchronize", files={"pid": (None, "a")}, headers=ask, timeout=60).status_code
            == 200
        )
        assert httpx.get(f"{url}/cnx", timeout=60).status_code == 401
    assert asked(service) == 1
    with Command(service.folder / "none", "dashboard", "--mount", "/mn", env=env) as none:
        wait_until(lambda: none.process.poll() is not None, 60)
        assert (none.process.poll(), "no extension has an app for /mn" in none.err) == (2, True)
