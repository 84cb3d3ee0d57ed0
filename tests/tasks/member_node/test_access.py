import json
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from examples.demo.member_server import MemberServer, Reply, Request
from tasks.member_node.client import (
    Malformed,
    MemberNode,
    MemberRefused,
    MemberUnreachable,
)
from tasks.member_node.member import Member
from tasks.member_node.objects import read_listing
from tasks.member_node.safe_xml import Unreadable
from tasks.settings import Access, Settings
from tests.tasks.conftest import at, in_threads
from tests.tasks.faults import always


def test_each_version_of_the_api_is_spoken_where_it_is_offered(server: MemberServer, settings: Settings) -> None:
    seen: list[str] = []
    server.hook = lambda request: seen.append(request.version)
    old = server.member.model_copy(update={"services": server.member.services[:2]})
    for member in (old, server.member):
        with MemberNode(member, settings) as client:
            client.ping()
            assert client.describe() == server.member
    assert seen == ["v1", "v1", "v2", "v2"]


def test_closing_ends_a_wait(client: MemberNode) -> None:
    ended: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(MemberUnreachable) as closed:
            client.pause(50)
        ended.append(closed.value)

    thread = threading.Thread(target=wait)
    thread.start()
    client.close()
    thread.join(40)  # less than the wait
    assert len(ended) == 1


def test_no_more_connections_than_allowed_are_opened(server: MemberServer, settings: Settings) -> None:
    together = threading.Barrier(3)
    met: list[int] = []

    answered: list[int] = []

    def meet(request: Request) -> None:
        with suppress(threading.BrokenBarrierError):
            met.append(together.wait(0.5))

    def ping(number: int) -> None:
        with suppress(MemberUnreachable):  # seldom, httpcore closes a connection under its reader; harvests ask again
            client.ping()
            answered.append(number)

    server.hook = meet
    with MemberNode(server.member, settings.model_copy(update={"connections": 2, "read_timeout": 5.0})) as client:
        in_threads(ping, range(6))
    assert len(answered) > 3
    assert met == []


def test_a_member_has_its_own_authority_and_its_own_client_certificate(
    server: MemberServer, settings: Settings, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    mine = authority.issue_cert("urn.node.CN")
    mine.private_key_and_cert_chain_pem.write_to_path(tmp_path / "me.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
    member = server.member.model_copy(update={"base_url": server.member.base_url.replace("http:", "https:")})
    ca, me = str(tmp_path / "ca.pem"), str(tmp_path / "me.pem")
    (tmp_path / "access.json").write_text(json.dumps({member.identifier: {"ca_bundle": ca, "client_cert": me}}))
    (tmp_path / "access.toml").write_text(f'["*"]\nca_bundle = "{ca}"\nclient_cert = "{me}"\n')
    for file in ("access.json", "access.toml"):
        known = Settings.from_environment({"TASKS_ACCESS": str(tmp_path / file)}, data_dir=tmp_path)
        with MemberNode(member, known) as client:
            client.ping()
    for access in (Access(), Access(ca_bundle=tmp_path / "ca.pem")):
        unknown = settings.model_copy(update={"access": {"*": access}})
        with MemberNode(member, unknown) as client, pytest.raises(MemberUnreachable):
            client.ping()
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")  # a file that was replaced counts at once
    with MemberNode(member, known) as client, pytest.raises(MemberUnreachable):
        client.ping()


def test_no_redirect_leads_out_of_tls_or_to_a_host_that_nobody_named(
    server: MemberServer, settings: Settings, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("cn").private_key_and_cert_chain_pem.write_to_path(tmp_path / "me.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    mine = Access(ca_bundle=tmp_path / "ca.pem", client_cert=tmp_path / "me.pem")
    known = settings.model_copy(update={"access": {"*": mine}})
    seen: list[Request] = []
    with MemberServer(tls=context) as safe, MemberServer(tls=context) as other:
        server.hook = other.hook = lambda request: seen.append(request)
        far = other.member.base_url.replace("127.0.0.1", "localhost")
        for start, target, told in (
            (safe, server.member.base_url, "from https to http"),
            (safe, far, "localhost"),
            (server, far, "localhost"),
            (safe, "/mn", None),
            (server, safe.member.base_url, None),
        ):

            def away(request: Request, to: str = f"{target}/v2/node") -> Reply | None:
                return Reply(status=302, headers={"Location": to}) if request.path[0] == "monitor" else None

            start.hook = away
            with MemberNode(start.member, known) as client:
                if told is None:
                    client.ping()
                    continue
                with pytest.raises(MemberUnreachable, match=f"redirects.*{told}"):
                    client.ping()
                assert not seen


def test_what_cannot_be_used_to_reach_a_member_is_an_error_of_that_member(
    server: MemberServer, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "no.pem").write_text("this is no certificate")
    for wrong, told in (
        (Access(ca_bundle=tmp_path / "nowhere.pem"), "nowhere.pem"),
        (Access(client_cert=tmp_path / "no.pem"), "no.pem"),
        (Access(proxy="proxy.example.org:3128"), "its proxy"),
        (Access(proxy="ftp://me:secret@far"), "its proxy"),
        (Access(proxy="http://me:1/secret@far:"), "its proxy"),
        (Access(proxy="http://secret:a/b@far"), "its proxy"),
        (Access(proxy="me:secret@far"), "its proxy"),
    ):
        access = settings.model_copy(update={"access": {server.member.identifier: wrong}})
        with pytest.raises(
            MemberUnreachable, match=f"{server.member.identifier}: its settings in TASKS_ACCESS.*{told}"
        ) as refusal:
            MemberNode(server.member, access)
        assert "secret" not in str(refusal.value)


def test_a_member_can_be_reached_through_a_proxy_of_its_own(server: MemberServer, settings: Settings) -> None:
    through = settings.model_copy(
        update={"access": {"*": Access(proxy=f"http://127.0.0.1:{server._http.server_port}")}}
    )
    far = server.member.model_copy(update={"base_url": "http://far.example.org/mn"})
    with MemberNode(far, through) as client:
        client.ping()
    with MemberNode(far, settings) as client, pytest.raises(MemberUnreachable):
        client.ping()


def test_a_setting_that_does_not_exist_is_refused_with_what_may_have_been_meant(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="TASKS_OVERLAP"):
        Settings.from_environment({"TASKS_OVERLAPS": "5"})
    with pytest.raises(ValueError, match=r"\ATASKS_PAGE_SIZE: .*integer[^\n]*\Z"):
        Settings.from_environment({"TASKS_PAGE_SIZE": "x"})
    assert Settings.from_environment({"TASKS_OVERLAP": "5", "OTHER": "x"}, data_dir=tmp_path).overlap == 5


def test_a_listing_may_arrive_in_any_pieces_but_must_arrive_whole() -> None:
    entry = (
        b"<objectInfo><identifier>a</identifier><dateSysMetadataModified>2024-05-14T09:00:00Z"
        b"</dateSysMetadataModified></objectInfo>"
    )
    chunks: list[Any] = [b'<objectList total="3">', entry[:30], entry[30:], entry, entry, b"</objectList>"]
    assert [entry[:2] for entry in read_listing(chunks).entries] == [("a", at(0))] * 3
    with pytest.raises(Unreadable):
        read_listing(chunks[:-1])


def test_errors_survive_the_way_through_a_result_backend(server: MemberServer) -> None:
    error = MemberRefused("answers 401", "urn:node:A", "http://a/v2/object", 401)
    assert type(error)(*error.args).__dict__ == error.__dict__


def test_a_member_describes_itself_and_nothing_else_does(server: MemberServer, client: MemberNode) -> None:
    assert isinstance(client.describe(), Member)
    server.hook = always(Reply(b"<node/>"))
    with pytest.raises(Malformed, match="not the description of a node"):
        client.describe()
