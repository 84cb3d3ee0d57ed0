"""Members that are silent, full, or killed: nobody waits long for them, and they come back right."""

import time

import pytest

from proof.members import STEPS, Members
from tasks.documents.library import with_documents
from tasks.documents.replica import SILENCE_MS
from tasks.documents.replica_set import name_of
from tests.harness.waiting import wait_until
from tests.tasks.documents.replica_set import NAME

SILENCE = SILENCE_MS / 1000
"""s that an update waits for a silent member, before that is out."""
LONGEST = 10 * SILENCE


def timed(members: Members, entry: str, value: object) -> float:
    began = time.monotonic()
    members.put(entry, value)
    return time.monotonic() - began


def out(members: Members) -> dict[str, str]:
    """Why the members of these names are out."""
    client, begin = members.store._client, members.store.key("out", NAME) + ":"
    return {
        name_of(key.decode().removeprefix(begin)): (client.get(key) or b"").decode()
        for key in client.scan_iter(begin + "*")
    }


def test_a_silent_member_is_put_out_nobody_waits_long_and_it_comes_back_with_the_newest(members: Members) -> None:
    a, silent = members.ready("a", "silent")
    members.put("x", 0)
    members.agree()
    silent.pause()
    waited = timed(members, "x", 1)
    assert 0.95 * SILENCE < waited < LONGEST
    assert (members.set(), out(members)) == (["a"], {"silent": "it was silent"})
    assert "silent has not reported and is out of the replica set" in a.log.read_text()
    assert sum(timed(members, "x", 2) for _ in range(10)) < 10 * SILENCE, "each waited for it again"
    read = silent.document.read()
    assert (read.stale, read.value("x")) == (True, 0)
    silent.resume()
    members.expect("a", "silent")
    assert not silent.document.read().stale
    assert silent.document.read().value("x") == 2


def test_one_that_is_killed_is_waited_for_by_nobody(members: Members) -> None:
    _, other = members.ready("a", "b")
    members.put("x", 0)
    other.kill()
    assert timed(members, "x", 1) < LONGEST
    assert (members.set(), out(members)) == (["a"], {"b": "it was gone"})


def test_one_that_cannot_write_its_disk_is_out_at_once_and_back_once_it_can(members: Members) -> None:
    _, full = members.ready("a", "full")
    members.put("x", 0)
    members.agree()
    full.fill()
    assert timed(members, "x", 1) < LONGEST
    assert members.set() == ["a"]
    assert "File too large" in out(members)["full"]
    read = full.document.read()
    assert (read.stale, read.value("x")) == (True, 0)
    assert timed(members, "x", 2) < LONGEST
    full.fill(False)
    members.expect("a", "full")
    assert full.document.read().value("x") == 2


@pytest.mark.parametrize("step", STEPS)
def test_one_killed_at_any_step_comes_back_right(members: Members, step: str) -> None:
    members.ready("a")
    members.start("dies", fatal=step)
    members.expect("a", "dies")
    dies = members.all[-1]
    assert timed(members, "x", 1) < LONGEST
    wait_until(lambda: not dies.living())
    assert timed(members, "x", 2) < LONGEST
    dies.start()
    members.expect("a", "dies")
    assert members.agree().value("x") == 2
    assert not dies.document.read().stale
    (log,) = dies.copies.folder.glob("*.log")
    assert {path.name for path in dies.copies.folder.iterdir()} == {
        "lock",
        "identity",
        log.name,
        f"{log.stem}.snapshot",
    }


@pytest.mark.parametrize("step", STEPS[1:])
def test_the_only_one_killed_at_any_step_finishes_what_was_asked_for(members: Members, step: str) -> None:
    members.start("dies", fatal=step)
    members.expect("dies")
    members.store._client.delete(members.store.key("grace", NAME))
    (dies,) = members.all
    fence = members.document.fence()
    with_documents(members.store).step("document_ask", NAME, _asked("x", fence))
    wait_until(lambda: not dies.living())
    dies.start()
    wait_until(lambda: members.document.pointer()[0])
    assert members.agree().value("x") == 1
    assert len(members.document.history()) == 1


def _asked(entry: str, fence: int) -> str:
    return f'{{"id":"u","fence":"{fence}","changes":[["{entry}","1",""]],"follow":true,"who":"","why":""}}'


def test_a_second_process_of_one_name_keeps_nothing_and_says_so(members: Members) -> None:
    members.ready("a")
    (second,) = members.start("a")
    wait_until(lambda: "another process owns" in second.log.read_text())
    assert timed(members, "x", 1) < LONGEST
    assert out(members) == {}, "nobody waited for it"
    second.end()
    assert members.set() == ["a"]
    third, _ = *members.start("a"), members.all[0].kill()
    wait_until(lambda: third.disk() and members.set() == ["a"])
    assert members.put("x", 2)
    assert third.document.read().value("x") == 2
