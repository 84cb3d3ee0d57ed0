"""Each step asked a second time, since its reply was lost: the same answer, and nothing twice."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordinator import Coordinator
from coordinator.core.store.client import Store
from tasks.documents.library import with_documents
from tasks.documents.replica import SILENCE_MS

NAME = "list"


@pytest.fixture
def store(coordinator: Coordinator) -> Iterator[Store]:
    """Grace is over; what is under way at the end has no members who would end it."""
    found = with_documents(coordinator.store)
    found._client.set(found.key("server", NAME), found._client.info("server")["run_id"])
    yield found
    for name in found._client.scan_iter(found.prefix + "*", 1000):
        found._client.delete(name)


def state(store: Store) -> dict[str, Any]:
    """All that is there, but for what tells when."""
    kinds = ("pointer", "document", "asked", "replicas", "acked", "history", "behind", "stored", "prepare")
    client, found = store._client, dict[str, Any]()
    whole = {b"hash": client.hgetall, b"set": client.smembers, b"string": client.get}
    whole[b"list"] = lambda key: client.lrange(key, 0, -1)
    for kind in kinds:
        key = store.key(kind, NAME)
        found[kind] = whole[what](key) if (what := client.type(key)) != b"none" else None
    (found["prepare"] or {}).pop(b"heard", None)
    return found


def twice(store: Store, script: str, *args: Any) -> Any:
    first = store.step(script, NAME, *args)
    after = state(store)
    assert store.step(script, NAME, *args) == first
    assert state(store) == after
    return first


def asked(update_id: str, fence: int, entry: str = "x") -> str:
    changes = [[entry, "1", ""]]
    return json.dumps({"id": update_id, "fence": str(fence), "changes": changes, "follow": True, "who": "", "why": ""})


def report(store: Store, member: str, version: int = 0, sha: str = "", ready: int = 0, ready_sha: str = "") -> Any:
    return store.step("document_report", NAME, member, version, sha, ready, ready_sha, SILENCE_MS)


def begun(store: Store, members: str) -> int:
    """A version that these are to prepare."""
    for member in members:
        report(store, member)
    store.step("document_ask", NAME, asked("u", 5))
    return int(report(store, members[0])[3])


@contextmanager
def living(store: Store, members: str) -> Iterator[None]:
    """Their own channels are heard."""
    with store._client.pubsub() as heard:
        heard.subscribe(*(store.key("member", NAME, member) for member in members))
        for _ in members:
            heard.get_message(timeout=20)
        yield


def test_asking_twice(store: Store) -> None:
    assert twice(store, "document_ask", asked("u", 5)) == b"asked"
    assert twice(store, "document_ask", asked("v", 6)) == b"asked"
    assert store._client.llen(store.key("asked", NAME)) == 1


def test_an_acknowledgement_said_twice_commits_once(store: Store) -> None:
    report(store, "a")
    store.step("document_ask", NAME, asked("u", 5))
    what, *_, version, _, _ = report(store, "a")
    assert what == b"prepare"
    args = ("a", 0, "", int(version), "sum", 2000)
    assert twice(store, "document_report", *args)[:3] == [b"commit", version, b"sum"]
    assert len(store._client.lrange(store.key("history", NAME), 0, -1)) == 1
    assert store.step("document_ask", NAME, asked("u", 5)) == b"committed " + version


def test_an_acknowledgement_of_one_of_two_said_twice_is_one(store: Store) -> None:
    version = begun(store, "ab")
    with living(store, "ab"):
        assert twice(store, "document_report", "a", 0, "", version, "sum", 2000)[0] == b"kept"
        assert report(store, "b", 0, "", version, "sum")[0] == b"commit"


def test_one_whose_channel_nobody_hears_is_waited_for_no_longer(store: Store) -> None:
    version = begun(store, "abc")
    with living(store, "ab"):
        assert report(store, "a", 0, "", version, "sum")[5] == [b"c"]
        assert sorted(store._client.smembers(store.key("replicas", NAME))) == [b"a", b"b"]
        assert report(store, "b", 0, "", version, "sum")[0] == b"commit"


@pytest.mark.parametrize(
    ("begun_ago", "first_ago", "heard_ago", "out"),
    [(2000, 600, 100, [b"b"]), (100, 600, 100, []), (2000, -60_000, 100, []), (60_000, 600, 60_000, [])],
    ids=["silent", "begun just now", "acknowledged by the first just now", "Redis was away"],
)
def test_a_living_member_is_put_out_once_it_was_silent_for_two_seconds(
    store: Store, begun_ago: int, first_ago: int, heard_ago: int, out: list[bytes]
) -> None:
    version = begun(store, "ab")
    with living(store, "ab"):
        report(store, "a", 0, "", version, "sum")
        times = {"begun": begun_ago, "first": first_ago, "heard": heard_ago}
        now = store.now()
        store._client.hset(store.key("prepare", NAME), mapping={name: now - ago for name, ago in times.items()})
        assert report(store, "a", 0, "", version, "sum")[5] == out


def test_one_with_another_checksum_than_most_is_put_out(store: Store) -> None:
    version = begun(store, "abc")
    with living(store, "abc"):
        for member, sha in (("a", "sum"), ("b", "other"), ("c", "sum")):
            report(store, member, 0, "", version, sha)
    assert store._client.get(store.key("pointer", NAME)) == b"%d sum" % version
    assert sorted(store._client.smembers(store.key("replicas", NAME))) == [b"a", b"c"]
    assert report(store, "b", 0, "", version, "other")[0] == b"behind"


def test_leaving_twice(store: Store) -> None:
    report(store, "a")
    report(store, "b")
    assert store.step("document_leave", NAME, "a", "") == 1
    after = state(store)
    assert store.step("document_leave", NAME, "a", "") == 0
    assert state(store) == after


def test_a_redis_that_lost_its_end_in_the_middle_of_a_version_grants_its_time_once(store: Store) -> None:
    report(store, "a")
    store.step("document_ask", NAME, asked("u", 5))
    server, grace = store.key("server", NAME), store.key("grace", NAME)
    store._client.set(server, "the run before")
    assert report(store, "a", 7, "sum")[0] == b"ahead"
    store.step("document_restore", NAME, "a", 7, "sum", 7, "sum", "x", "4 2")
    assert store._client.delete(grace) == 1
    report(store, "a", 7, "sum")
    assert not store._client.exists(grace)


def test_putting_forward_twice(store: Store) -> None:
    store.step("document_ask", NAME, asked("u", 5))
    assert report(store, "a", 7, "sum")[0] == b"ahead"
    assert store.step("document_restore", NAME, "a", 7, "sum", 7, "sum", "x", "6 2") == 1
    after = state(store)
    assert store.step("document_restore", NAME, "a", 7, "sum", 7, "sum", "x", "6 2") == 0
    assert state(store) == after
    assert store._client.hgetall(store.key("document", NAME)) == {b"x": b"6 2"}
    assert store.step("document_ask", NAME, asked("u", 5)) == b"asked"  # in grace: what becomes of it is told later
    store._client.delete(store.key("grace", NAME))
    report(store, "a", 7, "sum")
    assert store.step("document_ask", NAME, asked("u", 5)) == b"stale 6 x"


def test_a_note_is_changed_only_as_it_was_read_and_twice_is_once(store: Store) -> None:
    assert twice(store, "document_note", "n", "", "1") == 1
    assert twice(store, "document_note", "n", "0", "2") == 0
    assert twice(store, "document_note", "n", "1", "2") == 1
    assert twice(store, "document_note", "n", "2", "") == 1
    assert store._client.exists(store.key("stored", NAME)) == 0


def test_what_changed_since_is_not_followed_yet(store: Store) -> None:
    store._client.hset(store.key("behind", NAME), "x", "9007199254740991")
    assert store.step("document_followed", NAME, "x", 5) == 0
    assert store.step("document_followed", NAME, "x", 9007199254740991) == 1
    assert store.step("document_followed", NAME, "x", 9007199254740991) == 0


def restore(store: Store, member: str, version: int, base: int, *entries: str) -> int:
    return int(store.step("document_restore", NAME, member, version, f"sum{version}", base, f"sum{base}", *entries))


def test_what_is_prepared_upon_another_version_than_is_committed_is_never_put_forward(store: Store) -> None:
    """Redis lost version 7. One member prepared 9 upon 4 after that, and then the one that has 7 came back."""
    assert restore(store, "c", 4, 4, "x", "4 1") == 1
    assert report(store, "a", 7, "sum7")[0] == b"ahead"
    assert restore(store, "a", 7, 7, "x", "7 2") == 1
    assert report(store, "c", 4, "sum4", 9, "sum9")[0] == b"behind"
    assert restore(store, "c", 9, 4, "x", "9 1") == 0, "its answer was on its way meanwhile"
    assert store._client.get(store.key("pointer", NAME)) == b"7 sum7"
    assert store._client.hgetall(store.key("document", NAME)) == {b"x": b"7 2"}


def test_what_is_prepared_upon_what_is_committed_is_put_forward(store: Store) -> None:
    assert restore(store, "c", 7, 7, "x", "7 2") == 1
    assert report(store, "c", 7, "other", 9, "sum9")[0] == b"behind"
    assert report(store, "c", 7, "sum7", 9, "sum9")[0] == b"ahead"
    assert restore(store, "c", 9, 7, "x", "9 1") == 1
    assert store._client.get(store.key("pointer", NAME)) == b"9 sum9"


def answers(store: Store, update_id: str) -> list[bytes]:
    """What wakes the author of an update; it is not kept for ever."""
    key = store.key("answer", update_id)
    assert 0 < store._client.pttl(key) <= 60_000
    return store._client.lrange(key, 0, -1)


def test_authors_are_woken_when_their_updates_are_made_or_refused_or_to_be_asked_for_again(store: Store) -> None:
    version = begun(store, "a")
    assert store.step("document_ask", NAME, asked("late", 3)) == b"asked"
    report(store, "a", 0, "", version, "sum")
    assert answers(store, "u") == [b"committed %d" % version]
    assert answers(store, "late") == [b"stale 5 x"]
    store.step("document_ask", NAME, asked("under-way", 6))
    store.step("document_ask", NAME, asked("waits", 7))
    store.step("document_restore", NAME, "a", version + 9, "sum", version + 9, "sum", "x", "9 2")
    assert [answers(store, one) for one in ("under-way", "waits")] == [[b"asked"], [b"asked"]]


def test_members_are_told_at_once_what_there_is_to_prepare_and_what_is_committed(store: Store) -> None:
    report(store, "a")
    with store._client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(store.key("replica", NAME))
        heard.get_message(timeout=20)

        def told() -> str:
            notice = heard.get_message(timeout=20)
            return notice["data"].decode() if notice else "nothing"

        store.step("document_ask", NAME, asked("u", 5))
        assert told() == "prepare"
        version = int(report(store, "a")[3])
        report(store, "a", 0, "", version, "sum")
        assert told() == "commit"
        store.step("document_restore", NAME, "a", version + 9, "sum", version + 9, "sum", "x", "9 2")
        assert told() == "commit"
