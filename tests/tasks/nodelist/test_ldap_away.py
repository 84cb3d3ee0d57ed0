"""A server that is down, hangs, or is not to be trusted: told in a sentence, within the timeout."""

import socket
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
import trustme

from tasks.member_node.member import Member
from tasks.nodelist.ldap.directory import Directory, LdapConflict, LdapUnreachable
from tasks.nodelist.stores import State
from tasks.settings import Settings
from tests.harness.proxy import Proxy
from tests.harness.slapd import BASE, SlapdServer
from tests.harness.waiting import wait_until, within
from tests.tasks.conftest import RIVER, river_with

ID = RIVER.identifier
TIMEOUT = 2.0


def told(settings: Settings, said: str) -> str:
    """What a reading fails with."""
    with Directory(settings) as client, pytest.raises(LdapUnreachable, match=said) as caught:
        client.read()
    return str(caught.value)


def written_anew(client: Directory, member: Member) -> bool:
    """Not yet where a write that was given up arrives after all, between our look and our own write."""
    try:
        return client.write(ID, client.read_one(ID), member, True) == client.read_one(ID)
    except LdapConflict:
        return False


def over(slapd: SlapdServer, tls: str, **given: Any) -> Settings:
    given.setdefault("ldap_ca_bundle", slapd.ca_bundle)
    if tls == "ldaps":
        return slapd.settings(**{"ldap_url": slapd.tls_url} | given)
    return slapd.settings(**{"ldap_starttls": True} | given)


def test_a_server_that_is_down_at_the_start_is_told_by_address_and_cause_and_asked_again_later(tmp_path: Path) -> None:
    slapd = SlapdServer(tmp_path / "slapd")
    with Directory(slapd.settings()) as client:
        with within(20), pytest.raises(LdapUnreachable, match="Can't contact LDAP server") as caught:
            client.read()
        assert slapd.url in str(caught.value)
        with slapd:
            assert client.read().states == {}


def test_a_server_that_restarts_while_we_are_idle_is_no_error(
    slapd: SlapdServer, directory: Directory, river: State
) -> None:
    slapd.stop()
    slapd.start()
    changed = river_with(state="down")
    assert directory.write(ID, river, changed, True).listed.member == changed
    slapd.stop()
    slapd.start()
    assert directory.read().states[ID].listed.member == changed


def test_a_server_that_goes_away_for_a_while_is_an_error_once_and_then_none(
    slapd: SlapdServer, directory: Directory, river: State
) -> None:
    slapd.kill()
    for _ in range(2):
        with within(20), pytest.raises(LdapUnreachable):
            directory.write(ID, river, river_with(state="down"), True)
        with within(20), pytest.raises(LdapUnreachable):
            directory.read()
    slapd.start()
    assert directory.write(ID, river, river_with(state="down"), True).listed.member.state == "down"


@pytest.mark.parametrize("way", ["plain", "ldaps", "starttls"])
def test_a_server_that_hangs_at_the_start_is_left_within_the_timeout(slapd: SlapdServer, way: str) -> None:
    settings = slapd.settings(ldap_timeout=TIMEOUT) if way == "plain" else over(slapd, way, ldap_timeout=TIMEOUT)
    slapd.pause()
    with (
        Directory(settings) as client,
        within(10 * TIMEOUT),
        pytest.raises(LdapUnreachable, match=rf"ldap_timeout \({TIMEOUT:g} s\)"),
    ):
        client.read()


def grant_and_fall_silent(listener: socket.socket, ended: threading.Event) -> None:
    """The answer to StartTLS is an ExtendedResponse of success; the ClientHello after it gets none."""
    client, _ = listener.accept()
    with client:
        client.recv(4096)
        client.sendall(bytes.fromhex("300c02010178070a010004000400"))
        ended.wait()


def test_a_handshake_that_hangs_after_starttls_was_granted_is_left_within_the_timeout() -> None:
    """libldap bounds the wait for its answers, but no handshake."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=grant_and_fall_silent, args=(listener, ended))
        server.start()
        url = f"ldap://127.0.0.1:{listener.getsockname()[1]}"
        with within(10 * TIMEOUT):
            told(Settings(ldap_url=url, ldap_starttls=True, ldap_timeout=TIMEOUT), "ldap_timeout")
        ended.set()
        server.join()


@pytest.mark.parametrize("way", ["plain", "ldaps", "starttls"])
def test_a_server_that_hangs_later_is_left_within_the_timeout_and_found_again(slapd: SlapdServer, way: str) -> None:
    settings = slapd.settings(ldap_timeout=TIMEOUT) if way == "plain" else over(slapd, way, ldap_timeout=TIMEOUT)
    with Directory(settings) as client:
        record = client.write(ID, None, RIVER, True)
        slapd.pause()
        with within(10 * TIMEOUT), pytest.raises(LdapUnreachable):
            client.write(ID, record, river_with(state="down"), True)
        with within(10 * TIMEOUT), pytest.raises(LdapUnreachable):
            client.read()
        slapd.resume()
        wait_until(lambda: written_anew(client, river_with(state="unknown")))


def test_a_network_that_swallows_everything_is_left_within_the_timeout(slapd: SlapdServer) -> None:
    with Proxy(slapd.port) as proxy:
        settings = slapd.settings(ldap_url=f"ldap://127.0.0.1:{proxy.port}", ldap_timeout=TIMEOUT)
        with Directory(settings) as client:
            assert client.read().states == {}
            proxy.swallow()
            with within(10 * TIMEOUT), pytest.raises(LdapUnreachable):
                client.read()
            proxy.heal()
            assert client.read().states == {}


def test_credentials_that_are_refused_are_told_and_never_the_password(slapd: SlapdServer) -> None:
    settings = slapd.settings(ldap_password="wrong-secret")
    assert "wrong-secret" not in told(settings, "Invalid credentials; see ldap_bind_dn")
    assert "wrong-secret" not in repr(settings)


def test_the_password_comes_from_a_file_that_is_read_anew_for_each_connection(
    slapd: SlapdServer, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    settings = slapd.settings(ldap_password="", ldap_password_file=secret)
    with Directory(settings) as client:
        with pytest.raises(LdapUnreachable, match="ldap_password_file"):
            client.read()
        secret.write_text("\n")
        with pytest.raises(LdapUnreachable, match="is empty"):
            client.read()
        secret.write_text("coordinator\n")
        assert client.read().states == {}


@pytest.mark.parametrize("tls", ["ldaps", "starttls"])
def test_tls_with_a_certificate_that_is_trusted_works(slapd: SlapdServer, tls: str) -> None:
    with Directory(over(slapd, tls)) as client:
        record = client.write(ID, None, RIVER, True)
        assert client.read().states == {ID: record}


@pytest.mark.parametrize("tls", ["ldaps", "starttls"])
def test_a_certificate_of_an_unknown_authority_is_refused(slapd: SlapdServer, tmp_path: Path, tls: str) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    for bundle in (stranger, None):
        told(
            over(slapd, tls, ldap_ca_bundle=bundle), "does its certificate have that name and come from ldap_ca_bundle"
        )


@pytest.mark.parametrize("tls", ["ldaps", "starttls"])
def test_a_certificate_for_another_host_is_refused(tmp_path: Path, tls: str) -> None:
    with SlapdServer(tmp_path / "slapd", names=["ldap.example.org"]) as slapd:
        told(over(slapd, tls), "does its certificate have that name")


def test_nothing_in_the_environment_turns_verification_off(
    slapd: SlapdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LDAPTLS_REQCERT", "never")
    rc = tmp_path / "ldaprc"
    rc.write_text("TLS_REQCERT never\n")
    monkeypatch.setenv("LDAPRC", str(rc))
    told(over(slapd, "ldaps", ldap_ca_bundle=None), "certificate")


def test_a_bundle_that_is_not_there_is_told(slapd: SlapdServer, tmp_path: Path) -> None:
    told(over(slapd, "ldaps", ldap_ca_bundle=tmp_path / "nothing"), "see ldap_ca_bundle")


def test_a_server_that_wants_tls_for_a_password_says_so(tmp_path: Path) -> None:
    wants = {"# security simple_bind=128": "security simple_bind=128"}
    with SlapdServer(tmp_path / "slapd", replaced=wants) as slapd:
        with (
            Directory(slapd.settings()) as client,
            pytest.raises(LdapUnreachable, match="use ldaps:// or set ldap_starttls"),
        ):
            client.read()
        with Directory(over(slapd, "starttls")) as client:
            assert client.read().states == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ldap_url": "ldap://ldap.example.org"}, "unencrypted: use ldaps:// or set ldap_starttls"),
        ({"ldap_url": "http://ldap.example.org"}, "is not ldap://host"),
        ({"ldap_url": "ldaps://me:secret@ldap.example.org"}, "that is for ldap_bind_dn"),
        ({"ldap_url": "ldaps://me:se/cret@ldap.example.org"}, "the port in the URL is not a number"),
        ({"database_url": "postgresql+psycopg://me:p@secret@db/catalog"}, "write the one in the password as %40"),
        ({"database_url": "postgresql+psycopg://me:p@sec/ret@db/catalog"}, "write the one in the password as %40"),
        ({"ldap_url": "ldaps://ldap.example.org", "ldap_starttls": True}, "TLS from its first byte"),
        ({"ldap_url": "ldaps://ldap.example.org", "ldap_password": ""}, "needs a password"),
        ({"ldap_url": "ldaps://ldap.example.org", "ldap_bind_dn": ""}, "needs a password"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    values = {"ldap_bind_dn": f"cn=coordinator,{BASE}", "ldap_password": "secret"} | given
    with pytest.raises(ValueError, match=said) as refused:
        Settings.from_environment({f"TASKS_{name.upper()}": str(value) for name, value in values.items()})
    assert "secret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    "url", ["ldap://127.0.0.1:389", "ldap://[::1]", "ldap://localhost", "ldaps://ldap.example.org"]
)
def test_settings_from_the_environment(url: str) -> None:
    named = {
        "TASKS_LDAP_URL": url,
        "TASKS_LDAP_BIND_DN": "cn=x",
        "TASKS_LDAP_PASSWORD": "secret",
        "TASKS_LDAP_PAGE": "9",
    }
    settings = Settings.from_environment(named)
    assert (settings.ldap_url, settings.ldap_page) == (url, 9)
    assert settings.ldap_password.get_secret_value() == "secret"


def test_without_a_url_nothing_of_it_is_looked_at() -> None:
    assert Settings(ldap_bind_dn="cn=x").ldap_url == ""
