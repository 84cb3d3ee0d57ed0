"""The nodelist over an LDAP server that is asked little, and that is down, slow, or not to be trusted."""

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from tasks.nodelist.protocol import WRITTEN
from tasks.nodelist.store_notes import pending_members
from tasks.nodelist.stores import NodelistStoreAway
from tasks.settings import Settings
from tests.harness.long import long
from tests.harness.proxy import Proxy
from tests.harness.slapd import SlapdServer, dn, ldif_of
from tests.harness.waiting import wait_until, within
from tests.tasks.conftest import RIVER, OverLdap, day, river_with
from tests.tasks.nodelist.lists import Lists, setting

A = RIVER.identifier
TIMEOUT = 2.0
PATIENT, DEFAULT = 10.0, float(Settings.model_fields["ldap_timeout"].default)
SLOW = 5.5  # seconds to each answer: more than the default


def loaded(slapd: SlapdServer, number: int) -> list[str]:
    """So many plain members are in LDAP before it starts."""
    members = [river_with(identifier=f"urn:node:m{one:05d}", services=(), properties=()) for one in range(number)]
    slapd.stop()
    slapd.load(ldif_of(members))
    slapd.start()
    return [member.identifier for member in members]


def test_a_hundred_syncs_cause_no_search_and_a_hundred_modifies(slapd: SlapdServer, over_ldap: OverLdap) -> None:
    names = loaded(slapd, 100)
    with over_ldap() as lists:
        lists.nodelist.refresh()
        mark = slapd.mark()
        for number, member_id in enumerate(names):
            assert lists.sync(day(number), number + 1, member_id)
        operations = slapd.operations(mark)
        assert len(operations) == 100
        assert all(one.startswith("MOD attr=") and "d1NodeLastHarvested" in one for one in operations)
        lists.agree()


def test_a_directory_that_is_and_always_was_empty_is_searched_by_refreshes_alone(
    slapd: SlapdServer, over_ldap: OverLdap
) -> None:
    with over_ldap() as lists:
        assert lists.nodelist.refresh() == []
        mark, version, pointer = slapd.mark(), lists.nodelist.version(), lists.document.pointer()
        others = [lists.nodelist, lists.writer("node", "two"), lists.writer("client", "none")]
        for one in others * 5:
            assert (one.members(), one.listed(), one.version()) == ([], {}, version)
        assert not lists.sync(day(1), 1, A)
        assert slapd.operations(mark) == []
        assert lists.nodelist.refresh() == []
        assert lists.document.pointer() == pointer
        assert len(slapd.operations(mark)) == 2
        store = lists.document.store
        store._client.delete(*(store.key(kind, "nodelist") for kind in ("pointer", "document")))
        wait_until(lambda: lists.document.pointer() == pointer)  # its members put Redis forward
        assert pending_members(lists.document) == {}
        lists.nodelist.refresh()
        lists.agree()
        lists.outside_adds(RIVER)
        assert lists.nodelist.refresh() == [f"{A} is new"]
        assert [one.members() for one in others] == [[RIVER]] * 3
        lists.agree()


def test_with_the_server_down_from_the_start_and_nothing_known_the_error_says_so(
    slapd: SlapdServer, over_ldap: OverLdap
) -> None:
    slapd.stop()
    with over_ldap() as lists:
        for act in (lists.nodelist.members, lists.nodelist.refresh, lambda: lists.nodelist.reset(A)):
            with pytest.raises(NodelistStoreAway, match="Can't contact LDAP server"):
                act()


def test_with_the_server_down_at_a_restart_members_are_known_from_before(
    slapd: SlapdServer, over_ldap: OverLdap
) -> None:
    loaded(slapd, 3)
    with over_ldap() as lists:
        lists.nodelist.refresh()
    slapd.stop()
    with over_ldap() as lists:
        assert len(lists.nodelist.members()) == 3
        with pytest.raises(NodelistStoreAway):
            lists.nodelist.refresh()
        assert len(lists.nodelist.members()) == 3


def test_with_the_server_down_commits_go_on_and_the_last_values_are_written_once_it_is_back(
    slapd: SlapdServer, over_ldap: OverLdap
) -> None:
    one, two, three = loaded(slapd, 3)
    with over_ldap() as lists:
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
    slapd: SlapdServer, over_ldap: OverLdap, tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    loaded(slapd, 1)
    with over_ldap() as good:
        good.nodelist.refresh()
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    given, said = {
        "hangs": ({}, "ldap_timeout"),
        "credentials": ({"ldap_password": "wrong"}, "Invalid credentials"),
        "certificate": ({"ldap_url": slapd.tls_url, "ldap_ca_bundle": stranger}, "certificate"),
    }[trouble]
    with over_ldap(ldap_timeout=TIMEOUT, **given) as lists:
        if trouble == "hangs":
            slapd.pause()
        with within(TIMEOUT + 20):
            assert lists.sync(day(1), 1, "urn:node:m00000")
        assert lists.dates("urn:node:m00000").last_harvested == day(1)
        assert lists.document.behind().keys() == {"dates/urn:node:m00000"}
        assert any("is not written to" in line and said in line for line in caplog.messages)
        slapd.resume()
    with over_ldap() as good:
        good.nodelist.refresh()
        good.agree()


def test_a_server_that_hangs_is_waited_for_once_by_a_refresh_whatever_is_pending(
    slapd: SlapdServer, over_ldap: OverLdap
) -> None:
    names = loaded(slapd, 20)
    with over_ldap(ldap_timeout=TIMEOUT) as lists:
        lists.nodelist.refresh()
        with pytest.MonkeyPatch.context() as away:
            away.setattr(lists.nodelist.reconciler, "write_back", lambda member_id: "later")
            for number, member_id in enumerate(names):
                lists.sync(day(1), number + 1, member_id)
            real = lists.nodelist.store.read

            def then_hangs() -> object:
                found = real()
                slapd.pause()
                return found

            away.setattr(lists.nodelist.store, "read", then_hangs)
            with within(12 * TIMEOUT):
                lists.nodelist.refresh()
        assert len(lists.document.behind()) == 20
        slapd.resume()
        lists.nodelist.refresh()
        lists.agree()


@contextmanager
def slowed(slapd: SlapdServer, over_ldap: OverLdap, ldap_timeout: float, delay: float) -> Iterator[tuple[Lists, Proxy]]:
    """Two members were taken in; from now on the server does at once what it is asked, and each answer comes late."""
    loaded(slapd, 2)
    with Proxy(slapd.port) as proxy:
        given: dict[str, Any] = {"ldap_url": f"ldap://127.0.0.1:{proxy.port}", "ldap_timeout": ldap_timeout}
        with over_ldap(**given) as lists:
            lists.nodelist.refresh()
            proxy.delay = delay
            yield lists, proxy


def slowly(lists: Lists, number: int, member_id: str) -> str | None:
    """The store's answer to a node that waits for it; commits of another process beside it do not wait."""
    other = lists.writer("beside", "two")
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        told = pool.submit(lists.sync, day(number), number, member_id)
        wait_until(lambda: lists.dates(member_id).last_harvested == day(number))  # before the store is asked
        beside = 0
        while not told.done() and beside < 50:
            other.document.update({"beside": beside}, write_back=False)
            beside += 1
        assert beside > 1, "the first of them waited for the store"
        said = told.result()
    assert time.monotonic() - began > 2.5
    return said


def written_to(slapd: SlapdServer, mark: int) -> int:
    return len([one for one in slapd.operations(mark) if not one.startswith("SRCH")])


def test_with_a_timeout_above_what_a_slow_server_takes_all_works_only_later(
    slapd: SlapdServer, over_ldap: OverLdap
) -> None:
    one, two = "urn:node:m00000", "urn:node:m00001"
    with slowed(slapd, over_ldap, PATIENT, 2.5) as (lists, proxy):
        mark = slapd.mark()
        assert slowly(lists, 1, one) == WRITTEN
        assert lists.document.behind() == {}
        assert written_to(slapd, mark) == 1
        slapd.replace(dn(two), d1NodeState="down")
        assert lists.nodelist.refresh() == [f"{two}: state: up → down"]
        proxy.delay = 0
        lists.agree()


def test_with_the_default_timeout_what_a_slow_server_was_asked_is_pending_and_done_once_when_it_is_quick_again(
    slapd: SlapdServer, over_ldap: OverLdap
) -> None:
    one, two = "urn:node:m00000", "urn:node:m00001"
    with slowed(slapd, over_ldap, DEFAULT, SLOW) as (lists, proxy):
        mark = slapd.mark()
        for number, member_id in ((1, one), (2, two)):  # an answer that comes too late, and a connection that does
            said = slowly(lists, number, member_id)
            assert f"ldap_timeout ({DEFAULT:g} s)" in str(said)
            assert pending_members(lists.document)[member_id].why == said
        with within(DEFAULT + 20), pytest.raises(NodelistStoreAway, match="ldap_timeout"):
            lists.nodelist.refresh()
        proxy.delay = 0
        lists.nodelist.refresh()
        assert written_to(slapd, mark) == 2
        assert (lists.dates(one).last_harvested, lists.dates(two).last_harvested) == (day(1), day(2))
        lists.agree()


@pytest.mark.timeout(long(300, 600))
def test_many_members_are_taken_in_and_looked_through_in_bounded_time(
    slapd: SlapdServer, over_ldap: OverLdap, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    number, seconds = long((2_000, 60), (10_000, 90))
    names = loaded(slapd, number)
    with over_ldap(ldap_timeout=30) as lists:
        with within(seconds):
            lists.nodelist.refresh()
        assert len(lists.nodelist.listed()) == number
        with within(seconds / 4):
            assert lists.nodelist.refresh() == []
        with within(20):
            for number in range(10):
                assert lists.sync(day(number), number + 1, names[number])
