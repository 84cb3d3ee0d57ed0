"""The address of Redis: its parts through Sentinel, what is wrong with it, and that its secrets are not told."""

import re
import traceback

import pytest
from redis.connection import SSLConnection, parse_url

from coordinator import Coordinator, SettingsError
from coordinator.core.address import as_broker, checked, sentinels_of, through, through_sentinels, without_secrets


def test_an_address_through_sentinels_names_them_a_master_and_a_database() -> None:
    found = sentinels_of("redis+sentinel://me:p%2Fw@one:1,two,[::1]:3,[::2]/my%20master/4?socket_timeout=3")
    assert found is not None
    assert found.hosts == (("one", 1), ("two", 26379), ("::1", 3), ("::2", 26379))
    assert found.master == "my master"
    assert parse_url(found.servers) == {"username": "me", "password": "p/w", "db": 4, "socket_timeout": 3.0}
    assert parse_url(found.sentinels) == {}
    assert sentinels_of("redis://one:1/0") is None


def test_an_address_of_a_cluster_names_some_of_its_nodes() -> None:
    found = through("rediss+cluster://me:secret@one:1,two,[::1]:3/0?ssl_ca_certs=/ca")
    assert found
    assert (found.hosts, found.master) == ((("one", 1), ("two", 6379), ("::1", 3)), "")
    of_servers = parse_url(found.servers)
    assert parse_url(found.sentinels) == of_servers
    assert (of_servers["username"], of_servers["password"], of_servers["ssl_ca_certs"]) == ("me", "secret", "/ca")
    assert sentinels_of("redis+cluster://one") is None


def test_servers_and_sentinels_have_users_of_their_own() -> None:
    found = sentinels_of("redis+sentinel://:a@one/m?sentinel_username=them&sentinel_password=b%40%2Fc")
    assert found is not None
    assert parse_url(found.servers) == {"password": "a", "db": 0}
    assert parse_url(found.sentinels) == {"username": "them", "password": "b@/c"}


def test_servers_and_sentinels_share_a_certificate_unless_the_sentinels_have_their_own_or_none() -> None:
    tls = "ssl_ca_certs=/ca&ssl_check_hostname=no"
    shared = {"ssl_ca_certs": "/ca", "ssl_check_hostname": False, "connection_class": SSLConnection}
    for more, theirs in (
        ("", shared),
        ("&sentinel_ssl_ca_certs=/other", shared | {"ssl_ca_certs": "/other"}),
        ("&sentinel_ssl=no", {}),
    ):
        found = sentinels_of(f"rediss+sentinel://one/m?{tls}{more}")
        assert found is not None
        assert parse_url(found.servers) == shared | {"db": 0}
        assert parse_url(found.sentinels) == theirs


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("redis+sentinel:///m", "names no sentinel: redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB"),
        ("redis+sentinel://one,two", "no name of a master behind the sentinels"),
        ("redis+sentinel://one/", "no name of a master"),
        ("redis+sentinel://one/m/x", "database that is not a number"),
        ("redis+sentinel://one:two/m", "the port in the URL is not a number"),
        ("redis+sentinel://:5/m", "a server without a host"),
        ("sentinel://one/m", "another form than Celery's: redis"),
        ("amqp://one", "must begin with redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cl"),
        ("redis://one:two/0", "the port in the URL is not a number"),
        ("redis+cluster:///0", "names no node of the cluster: redis+cluster://HOST:PORT,HOST:PORT"),
        ("redis+cluster://one/1", "names a database, but a cluster has only database 0"),
    ],
)
def test_an_address_that_leads_nowhere_says_what_it_lacks(url: str, wrong: str) -> None:
    with pytest.raises(ValueError) as found:
        checked(url)
    assert wrong in str(found.value)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+sentinel", "redis+cluster"])
@pytest.mark.parametrize(
    "login",
    [f"{user}{secret}@" for user in ("me:", ":") for secret in ("se/cret", "se#cret", "se?cret", "1/secret", "[secret")]
    + ["me:1?secret=x@", "secret:secret:1;redis://:secret@"],
)
def test_no_text_of_an_address_that_is_refused_is_told(scheme: str, login: str) -> None:
    with pytest.raises(ValueError) as found:
        checked(f"{scheme}://{login}one:1/0")
    assert not {"cret", "secret", "'1'"} & set(re.split(r"[^\w']", str(found.value)))
    with pytest.raises(SettingsError) as told:
        Coordinator(url=f"{scheme}://{login}one:1/0")
    assert "cret" not in "".join(traceback.format_exception(told.value))
    assert "cret" not in without_secrets(f"{scheme}://{login}one:1/0")


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:secret@one/0?password=secret",
        "redis+sentinel://me:secret@one:1,two:2/m/0?sentinel_username=me2&sentinel_password=secret&db=1",
        "rediss://one/0?ssl_password=secret",
    ],
)
def test_a_message_names_the_address_without_its_secrets(url: str) -> None:
    assert "secret" not in without_secrets(url)
    assert "one" in without_secrets(url)


def test_the_sentinels_of_a_broker_serve_the_coordinator() -> None:
    broker = "sentinel://me:a@one:1/2;sentinel://two:2"
    assert through_sentinels(broker, {"master_name": "m"}) == "redis+sentinel://me:a@one:1,two:2/m/2"
    options = {"master_name": "m", "sentinel_kwargs": {"password": "b c", "socket_timeout": 1}}
    found = sentinels_of(through_sentinels(broker, options))
    assert found is not None
    assert parse_url(found.sentinels) == {"password": "b c"}
    assert through_sentinels(broker, {}) == ""


def test_celery_is_told_the_same_servers() -> None:
    url = "redis+sentinel://me:a@one:1,[::1]:2/m/2"
    found = as_broker(f"{url}?sentinel_password=b%20c")
    assert found["broker_url"] == "sentinel://me:a@one:1/2;sentinel://me:a@[::1]:2/2"
    assert found["broker_transport_options"] == {"master_name": "m", "sentinel_kwargs": {"password": "b c"}}
    assert through_sentinels(as_broker(url)["broker_url"], as_broker(url)["broker_transport_options"]) == url
    assert as_broker("redis://one/1") == {"broker_url": "redis://one/1"}
    assert as_broker("unix:///r.sock?db=2") == {"broker_url": "redis+socket:///r.sock?virtual_host=2"}
    with pytest.raises(ValueError, match=r"has another form than Celery's: redis\+sentinel://HOST"):
        as_broker("sentinel://one;sentinel://two")


def test_celery_is_told_the_same_certificates() -> None:
    found = as_broker("rediss+sentinel://one/m?ssl_ca_certs=/ca&ssl_check_hostname=no&sentinel_ssl_ca_certs=/other")
    assert found["broker_use_ssl"] == {"ssl_ca_certs": "/ca", "ssl_check_hostname": False}
    options = found["broker_transport_options"]
    assert options["sentinel_kwargs"] == {"ssl_ca_certs": "/other", "ssl_check_hostname": False, "ssl": True}
