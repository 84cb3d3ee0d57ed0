"""The nodelist over an LDAP server that is asked little, and that is down, slow, or not to be trusted."""

import logging
from pathlib import Path

import pytest
import trustme

from tasks.sources import SourceAway
from tests.directory import SlapdServer, ldif_of
from tests.servers import RedisServer
from tests.waiting import within

from .conftest import RIVER, day, river_with
from .lists import over, setting

A = RIVER.identifier
TIMEOUT = 1.0


def loaded(slapd: SlapdServer, number: int) -> list[str]:
    """So many plain members are in LDAP before it starts."""
    members = [river_with(identifier=f"urn:node:m{one:05d}", services=(), properties=()) for one in range(number)]
    slapd.stop()
    slapd.load(ldif_of(members))
    slapd.start()
    return [member.identifier for member in members]


def test_a_hundred_syncs_cause_no_search_and_a_hundred_modifies(
    slapd: SlapdServer, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    names = loaded(slapd, 100)
    with over(slapd, redis_server.url(0), prefix, tmp_path) as lists:
        lists.nodelist.refresh()
        mark = slapd.mark()
        for number, node_id in enumerate(names):
            assert lists.sync(day(number), number + 1, node_id)
        operations = slapd.operations(mark)
        assert len(operations) == 100
        assert all(one.startswith("MOD attr=") and "d1NodeLastHarvested" in one for one in operations)
        lists.agree()


def test_with_the_server_down_from_the_start_and_nothing_known_the_error_says_so(
    slapd: SlapdServer, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    slapd.stop()
    with over(slapd, redis_server.url(0), prefix, tmp_path) as lists:
        for act in (lists.nodelist.members, lists.nodelist.refresh, lambda: lists.nodelist.reset(A)):
            with pytest.raises(SourceAway, match="Can't contact LDAP server"):
                act()


def test_with_the_server_down_at_a_restart_members_are_known_from_before(
    slapd: SlapdServer, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    loaded(slapd, 3)
    with over(slapd, redis_server.url(0), prefix, tmp_path) as lists:
        lists.nodelist.refresh()
    slapd.stop()
    with over(slapd, redis_server.url(0), prefix, tmp_path) as lists:
        assert len(lists.nodelist.members()) == 3
        with pytest.raises(SourceAway):
            lists.nodelist.refresh()
        assert len(lists.nodelist.members()) == 3


def test_with_the_server_down_commits_go_on_and_the_last_values_are_written_once_it_is_back(
    slapd: SlapdServer, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    one, two, three = loaded(slapd, 3)
    with over(slapd, redis_server.url(0), prefix, tmp_path) as lists:
        lists.nodelist.refresh()
        slapd.kill()
        for number in range(1, 31):
            assert lists.sync(day(number), number, one)
        assert "Can't contact LDAP server" in lists.nodelist.change(two, setting(state="down"), why="maintenance")
        lists.nodelist.change(three, lambda _: None, why="gone")
        assert lists.dates(one).last_harvested == day(30)
        assert lists.document.behind().keys() == {
            f"dates/{one}", f"member/{two}", f"member/{three}", f"dates/{three}"
        }  # fmt: skip
        slapd.start()
        mark = slapd.mark()
        lists.nodelist.refresh()
        written = [line for line in slapd.operations(mark) if line.startswith(("MOD", "DEL", "ADD"))]
        assert [line.split(" ")[0] for line in written] == ["MOD", "MOD", "MOD", "DEL"]
        lists.agree()


@pytest.mark.parametrize("trouble", ["hangs", "credentials", "certificate"])
def test_a_commit_waits_for_a_troubled_server_no_longer_than_its_timeout_and_says_that_it_is_pending(
    slapd: SlapdServer,
    redis_server: RedisServer,
    prefix: str,
    tmp_path: Path,
    trouble: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    loaded(slapd, 1)
    with over(slapd, redis_server.url(0), prefix, tmp_path) as good:
        good.nodelist.refresh()
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    given, said = {
        "hangs": ({}, "ldap_timeout"),
        "credentials": ({"ldap_password": "wrong"}, "Invalid credentials"),
        "certificate": ({"ldap_url": slapd.tls_url, "ldap_ca_bundle": stranger}, "certificate"),
    }[trouble]
    with over(slapd, redis_server.url(0), prefix, tmp_path, ldap_timeout=TIMEOUT, **given) as lists:
        if trouble == "hangs":
            slapd.pause()
        with within(TIMEOUT + 2):
            assert lists.sync(day(1), 1, "urn:node:m00000")
        assert lists.dates("urn:node:m00000").last_harvested == day(1)
        assert lists.document.behind().keys() == {"dates/urn:node:m00000"}
        assert any("is not written to" in line and said in line for line in caplog.messages)
        slapd.resume()
    with over(slapd, redis_server.url(0), prefix, tmp_path) as good:
        good.nodelist.refresh()
        good.agree()


def test_a_server_that_hangs_is_waited_for_once_by_a_refresh_whatever_is_pending(
    slapd: SlapdServer, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    names = loaded(slapd, 20)
    with over(slapd, redis_server.url(0), prefix, tmp_path, ldap_timeout=TIMEOUT) as lists:
        lists.nodelist.refresh()
        with pytest.MonkeyPatch.context() as away:
            away.setattr(lists.nodelist, "follow", lambda node_id: "later")
            for number, node_id in enumerate(names):
                lists.sync(day(1), number + 1, node_id)
            real = lists.nodelist.source.read

            def then_hangs() -> object:
                found = real()
                slapd.pause()
                return found

            away.setattr(lists.nodelist.source, "read", then_hangs)
            with within(3 * TIMEOUT):
                lists.nodelist.refresh()
        assert len(lists.document.behind()) == 20
        slapd.resume()
        lists.nodelist.refresh()
        lists.agree()


def test_ten_thousand_members_are_taken_in_and_looked_through_in_bounded_time(
    slapd: SlapdServer, redis_server: RedisServer, prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    names = loaded(slapd, 10_000)
    with over(slapd, redis_server.url(0), prefix, tmp_path, ldap_timeout=30) as lists:
        with within(90):
            lists.nodelist.refresh()
        assert len(lists.nodelist.listed()) == 10_000
        with within(20):
            assert lists.nodelist.refresh() == []
        with within(20):
            for number in range(10):
                assert lists.sync(day(number), number + 1, names[number])
