"""Members behind a private authority, which want to see a client certificate: through the whole service."""

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest
import trustme

from examples.demo.member_server import MemberServer
from tests.fleet.tasks.service import Service
from tests.harness.command import listed
from tests.harness.redis import RedisServer

LONG_AGO = {"not_before": datetime(2019, 1, 1), "not_after": datetime(2020, 1, 1)}
PRIVATE, MINE = trustme.CA(), {"ca_bundle": "ca.pem", "client_cert": "mine.pem"}

REFUSED = {
    "nobody": ({"ca_bundle": "ca.pem"}, "it wants a client certificate, and TASKS_ACCESS names none for it"),
    "stranger": (
        MINE | {"client_cert": "strangers.pem"},
        "it refuses the client certificate",
        "strangers.pem: unknown",
    ),
    "expired": (MINE | {"client_cert": "expired.pem"}, "it refuses the client certificate", "expired.pem: cert"),
    "wrongCA": (MINE | {"ca_bundle": "other.pem"}, "its certificate is not accepted: self-signed", "other.pem"),
    "noCA": ({"client_cert": "mine.pem"}, "its certificate is not accepted", "the authorities of this machine"),
    "old": (MINE, "its certificate is not accepted: certificate has expired", "ca.pem"),
    "misnamed": (MINE, "its certificate is not accepted: IP address mismatch"),
}
GOOD = ("one", "two")


def id_of(name: str) -> str:
    return f"urn:node:{name}"


def serving(folder: Path, certificate: trustme.LeafCert) -> ssl.SSLContext:
    """Lets those in whom the private authority vouches for."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    certificate.configure_cert(context)
    return context


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    folder, other = tmp_path / "tls", trustme.CA()
    folder.mkdir()
    PRIVATE.cert_pem.write_to_path(folder / "ca.pem")
    other.cert_pem.write_to_path(folder / "other.pem")
    mine = PRIVATE.issue_cert("urn.node.CN")
    mine.private_key_and_cert_chain_pem.write_to_path(folder / "mine.pem")
    mine.cert_chain_pems[0].write_to_path(folder / "apart.pem")
    mine.private_key_pem.write_to_path(folder / "apart.key")
    other.issue_cert("urn.node.CN").private_key_and_cert_chain_pem.write_to_path(folder / "strangers.pem")
    PRIVATE.issue_cert("urn.node.CN", **LONG_AGO).private_key_and_cert_chain_pem.write_to_path(folder / "expired.pem")
    return folder


@pytest.fixture
def members(certificates: Path) -> Iterator[list[MemberServer]]:
    own = {"old": PRIVATE.issue_cert("127.0.0.1", **LONG_AGO), "misnamed": PRIVATE.issue_cert("far.example.org")}
    usual = PRIVATE.issue_cert("127.0.0.1")
    with ExitStack() as stack:
        servers = [
            MemberServer(id_of(name), tls=serving(certificates, own.get(name, usual))) for name in (*GOOD, *REFUSED)
        ]
        for server in servers:
            server.fill(10)
            stack.enter_context(server)
        yield servers


def test_members_are_harvested_with_a_client_certificate_and_each_refusal_says_whose_certificate_is_wrong(
    own_redis: RedisServer, certificates: Path, members: list[MemberServer], tmp_path: Path
) -> None:
    apart = {"ca_bundle": "ca.pem", "client_cert": "apart.pem", "client_key": "apart.key"}
    files = {"one": MINE, "two": apart} | {name: row[0] for name, row in REFUSED.items()}
    access = {
        id_of(name): {which: str(certificates / file) for which, file in row.items()} for name, row in files.items()
    }
    (tmp_path / "access.json").write_text(json.dumps(access))
    with Service(own_redis, tmp_path, members, TASKS_ACCESS=str(tmp_path / "access.json"), TASKS_TRIES="1") as service:
        service.node("cn1")
        for name in files:
            service.ask(json.dumps({"node": id_of(name), "id": name}))
        for name, server in zip(GOOD, members, strict=False):
            assert service.ended(name).state == "succeeded"
            assert service.pids(id_of(name)) == server.pids
        for name, (_, *said) in REFUSED.items():
            job = service.ended(name)
            assert job.state == "failed"
            message = str((job.error or {})["message"])
            assert all(part in message for part in (id_of(name), *said)), message
            assert service.catalog.summary(id_of(name)).error
        errors = {one["member"]: one["error"] for one in listed(service.call("members", "--json"))}
        assert all(row[1] in errors[id_of(name)] for name, row in REFUSED.items())

        (certificates / "expired.pem").write_bytes((certificates / "mine.pem").read_bytes())
        service.ask(json.dumps({"node": id_of("expired"), "id": "renewed"}))
        assert service.ended("renewed").state == "succeeded"
