import logging
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from examples.demo.member_server import MemberServer, Reply, Request, failure
from tasks import instants
from tasks.member_node.client import (
    AsksToWait,
    Busy,
    Failing,
    Malformed,
    MemberNode,
    MemberNodeError,
    MemberRefused,
    MemberTimedOut,
    MemberUnreachable,
    TooLarge,
)
from tasks.settings import Settings
from tests.tasks.conftest import IMPATIENT, at
from tests.tasks.faults import AWKWARD, BOMB, always, pieces


def test_no_line_is_logged_for_a_request(
    server: MemberServer, client: MemberNode, caplog: pytest.LogCaptureFixture
) -> None:
    server.fill(1)
    with caplog.at_level(logging.INFO):
        client.objects(at(-1), at(1000))
    assert "httpx" not in {record.name for record in caplog.records}


def test_a_listing_is_sliced_and_dated_to_the_microsecond(server: MemberServer, client: MemberNode) -> None:
    server.fill(250, first=at(0.000001))
    whole = client.objects(at(0), at(1000))
    assert (len(whole.entries), whole.total) == (100, 250)
    assert whole.entries[0][:2] == ("doi:10.5/000000", at(0.000001))
    assert client.objects(at(0), at(1000), start=240, count=50).entries[-1].pid == "doi:10.5/000249"
    assert client.objects(at(10), at(20), count=0).total == 10
    with pytest.raises(MemberRefused) as refused:
        client.objects(at(0), at(1000), start=250)
    assert refused.value.status == 400
    assert client.objects(at(5000), start=5).total == 0


@pytest.mark.parametrize("pid", AWKWARD)
def test_any_pid_reaches_the_member_as_it_is(server: MemberServer, client: MemberNode, pid: str) -> None:
    server.put(pid, at(1))
    assert [entry[:2] for entry in client.objects(at(0)).entries] == [(pid, at(1))]
    found = client.system_metadata(pid)
    assert (found.pid, found.modified, found.algorithm, found.serial_version) == (pid, at(1), "SHA-1", 1)
    assert b"systemMetadata" in found.document


def test_a_failure_is_reported_to_the_member_in_its_own_form(server: MemberServer, client: MemberNode) -> None:
    client.report_error("ü/1", "unreadable:\x00 &c")
    [body] = server.errors
    assert b'name="message"' in body
    assert '<error name="SynchronizationFailed" errorCode="0" detailCode="6001" identifier="ü/1"' in body.decode()
    assert "<description>unreadable:? &amp;c</description>" in body.decode()
    server.hook = always(failure(500, "ServiceFailure", "no"))
    with pytest.raises(Failing):
        client.report_error("ü/1", "again")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, MemberRefused), (403, MemberRefused), (404, MemberRefused), (500, Failing), (503, Busy), (302, Failing)],
)
def test_an_error_names_the_member_the_address_and_the_status(
    server: MemberServer, client: MemberNode, status: int, kind: type[MemberNodeError]
) -> None:
    server.hook = always(failure(status, "SomeName", "in its\n words"))
    with pytest.raises(kind) as failed:
        client.objects(at(0))
    assert (failed.value.member, failed.value.status) == (server.member.identifier, status)
    assert failed.value.url.startswith(f"{server.member.base_url}/v2/object?fromDate=2024-05-14T09%3A00%3A00.000Z")
    assert "SomeName: in its words" in str(failed.value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"<html/>",
        BOMB,
        b'<objectList total="x"/>',
        b'<objectList total="99999999999999999999"/>',
        b'<objectList total="1"><objectInfo>',
        '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE objectList><objectList total="0"/>'.encode("utf-16"),
    ],
)
def test_an_answer_that_is_no_listing_is_an_error_and_never_an_empty_success(
    server: MemberServer, client: MemberNode, body: bytes
) -> None:
    server.hook = always(Reply(body))
    with pytest.raises(Malformed):
        client.objects(at(0))
    with pytest.raises(Malformed):
        client.system_metadata("a")


def test_the_system_metadata_of_another_object_is_refused(server: MemberServer, client: MemberNode) -> None:
    server.put("b")
    server.hook = lambda request: server._describe(request, "b") if request.path[0] == "meta" else None
    with pytest.raises(Malformed, match="another object"):
        client.system_metadata("a")


def test_a_body_of_100_mb_is_cut_off_at_the_limit(server: MemberServer, client: MemberNode) -> None:
    sent = 0

    def flood() -> Iterator[bytes]:
        nonlocal sent
        yield b'<objectList total="1">'
        for _ in range(100):
            sent += 1
            yield b" " * 1024 * 1024

    server.hook = lambda request: Reply(flood())
    with pytest.raises(TooLarge):
        client.objects(at(0))
    with pytest.raises(TooLarge):
        client.system_metadata("a")
    assert sent < 60


def test_a_compressed_body_is_refused_unopened(server: MemberServer, client: MemberNode) -> None:
    server.hook = always(Reply(b"x", headers={"Content-Encoding": "gzip"}))
    with pytest.raises(Malformed, match="compressed"):
        client.ping()


def test_a_member_that_hangs_or_trickles_is_given_up(server: MemberServer, settings: Settings) -> None:
    over = threading.Event()
    server.hook = lambda request: Reply() if over.wait(20) else None
    with MemberNode(server.member, settings.model_copy(update=IMPATIENT)) as client:
        with pytest.raises(MemberTimedOut):
            client.ping()
        over.set()
    with MemberNode(server.member, settings.model_copy(update={"request_timeout": 3.0})) as client:
        server.hook = lambda request: Reply(pieces(b" ", 1000, pause=0.05))
        began = time.monotonic()
        with pytest.raises(MemberTimedOut, match="not complete after 3 s"):
            client.ping()
    assert time.monotonic() - began < 30  # the trickle would take 50 s


def test_nobody_there_is_an_error_too(settings: Settings, server: MemberServer) -> None:
    nobody = server.member.model_copy(update={"base_url": "http://127.0.0.1:9"})
    with MemberNode(nobody, settings) as client, pytest.raises(MemberUnreachable):
        client.ping()


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/", "/mn/v2/monitor/ping", "http://[", "\x00"]
)
def test_redirects_are_bounded_and_lead_nowhere_but_to_the_web(
    server: MemberServer, client: MemberNode, target: str
) -> None:
    seen: list[Request] = []

    def send_on(request: Request) -> Reply:
        seen.append(request)
        return Reply(status=302, headers={"Location": target})

    server.hook = send_on
    with pytest.raises(MemberUnreachable):
        client.ping()
    assert len(seen) <= 6


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_busy_member_says_how_long_it_asks_to_wait_and_is_asked_once(
    server: MemberServer, client: MemberNode, status: int, form: str
) -> None:
    asked: list[Request] = []

    def busy(request: Request) -> Reply:
        asked.append(request)
        later = format_datetime(instants.now() + timedelta(seconds=20), usegmt=True)
        return Reply(b"", status, {"Retry-After": "19" if form == "seconds" else later})

    server.hook = busy
    with pytest.raises(AsksToWait, match=r"asks to wait for (1\d|20) s") as told:
        client.ping()
    assert (len(asked), told.value.status) == (1, status)
    assert 9 < told.value.seconds <= 20
    assert pickle.loads(pickle.dumps(told.value)).seconds == told.value.seconds


@pytest.mark.parametrize("after", ["86400", "", "soon"])
def test_a_busy_member_that_asks_for_too_much_or_for_nothing_is_left_for_later(
    server: MemberServer, client: MemberNode, after: str
) -> None:
    server.hook = lambda request: Reply(b"", 503, {"Retry-After": after} if after else {})
    with pytest.raises(Busy):
        client.ping()


def test_a_connection_made_while_the_client_is_closed_is_closed_too(
    server: MemberServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting, go_on = threading.Event(), threading.Event()
    made: list[socket.socket] = []
    connect = socket.create_connection

    def slow(*args: Any, **kwargs: Any) -> socket.socket:
        connecting.set()
        assert go_on.wait(60)
        made.append(connect(*args, **kwargs))
        return made[0]

    monkeypatch.setattr(socket, "create_connection", slow)
    with ThreadPoolExecutor(1) as pool:
        with MemberNode(server.member, settings) as client:
            asked = pool.submit(client.ping)
            assert connecting.wait(60)
        go_on.set()
        asked.exception(10)
    assert [one.fileno() for one in made] == [-1]
