"""Redis away, killed, set back and emptied: no number twice, nothing back, nobody put out for it."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from proof.members import Members
from tasks.documents.document import Document
from tasks.documents.on_disk import Copies
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.tasks.documents.replica_set import NAME


def saved(tmp_path: Path) -> Path:
    """The append-only file as it is now."""
    return Path(shutil.copytree(tmp_path / "redis", tmp_path / "saved"))


def set_back(server: RedisServer, tmp_path: Path) -> None:
    """Redis killed, its end cut off back to `saved`, and started again."""
    server.kill()
    shutil.rmtree(tmp_path / "redis")
    shutil.copytree(tmp_path / "saved", tmp_path / "redis")
    server.start()


def empty(apart: Members) -> None:
    for name in apart.store._client.scan_iter("*", 1000):
        apart.store._client.delete(name)


def test_with_redis_away_the_last_committed_copy_is_given_marked_stale(apart: Members, own_redis: RedisServer) -> None:
    (only,) = apart.ready("a")
    apart.put("x", 1)
    apart.agree()
    own_redis.kill()
    read = only.document.read()
    assert (read.stale, read.value("x")) == (True, 1)
    fresh = Document(apart.store, NAME, Copies(only.copies.folder.parent, NAME)).read()
    assert (fresh.stale, fresh.value("x")) == (True, 1)
    own_redis.start()
    assert not only.document.read().stale


def test_the_first_report_after_a_long_absence_of_redis_puts_nobody_out(apart: Members, own_redis: RedisServer) -> None:
    """In the middle of a version that one had acknowledged."""
    a, b = apart.ready("a", "b")
    apart.put("x", 1)
    b.pause()
    prepared = apart.store.key("prepare", NAME)
    author = threading.Thread(target=lambda: apart.put("x", 2, "two", timeout=30))
    author.start()
    wait_until(lambda: apart.store._client.hget(prepared, "first"))
    own_redis.kill()
    b.resume()
    time.sleep(3)  # as long as it takes to be silent
    own_redis.start()
    author.join()
    assert apart.agree().value("x") == 2
    assert "is out of the replica set" not in a.log.read_text() + b.log.read_text()


def cut(apart: Members, own_redis: RedisServer, tmp_path: Path, updates: int) -> list[int]:
    """Versions of which Redis forgot all but the first."""
    versions = [apart.put("x", 0)]
    apart.agree()
    saved(tmp_path)
    versions += [apart.put("x", number) for number in range(1, updates + 1)]
    apart.agree()
    set_back(own_redis, tmp_path)
    return versions


@pytest.mark.parametrize("updates", [1, 10])
def test_a_redis_that_lost_its_end_is_put_forward_before_anything_new(
    apart: Members, own_redis: RedisServer, tmp_path: Path, updates: int
) -> None:
    started = apart.ready("a", "b", "c")
    before = [member.document.read().version for member in started]
    versions = cut(apart, own_redis, tmp_path, updates)
    for member, version in zip(started, before, strict=True):
        read = member.document.read()
        assert read.stale or read.version >= version
    began = time.monotonic()
    after = apart.put("y", 1)
    assert time.monotonic() - began < 10
    assert after > max(versions)
    assert apart.agree().entries() == {"x": updates, "y": 1}


def test_one_that_was_out_when_redis_lost_its_end_does_not_win_alone(
    apart: Members, own_redis: RedisServer, tmp_path: Path
) -> None:
    """What Redis remembers is a set of one, whose disk is as old; the others have what was committed since."""
    (old,) = apart.ready("old")
    apart.put("x", 0)
    apart.agree()
    saved(tmp_path)
    new = apart.ready("new")[0]
    old.pause()
    newest = apart.put("x", 1)
    new.pause()  # comes a little later than the old one
    old.resume()
    set_back(own_redis, tmp_path)
    timer = threading.Timer(0.7, new.resume)
    timer.start()
    assert apart.put("y", 1) > newest
    assert apart.agree().entries() == {"x": 1, "y": 1}


def test_an_emptied_redis_is_filled_from_the_disks_though_a_fresh_member_reports_first(apart: Members) -> None:
    a, b = apart.ready("a", "b")
    apart.put("x", 1)
    version = apart.agree().version
    a.pause()
    b.pause()
    empty(apart)
    (fresh,) = apart.start("fresh")
    apart.expect("fresh")
    a.resume()
    b.resume()
    assert apart.put("y", 1) > version
    assert apart.agree().entries() == {"x": 1, "y": 1}
    assert fresh.document.read().value("x") == 1


def test_a_client_without_copies_marks_what_goes_back(apart: Members) -> None:
    (only,) = apart.ready("a")
    apart.put("x", 1)
    apart.agree()
    assert not apart.document.read().stale
    only.pause()
    empty(apart)
    assert apart.document.read().stale
    assert (only.document.read().stale, only.document.read().value("x")) == (True, 1)
    only.resume()
    wait_until(lambda: not apart.document.read().stale)
    assert apart.document.read().value("x") == 1


def test_an_update_that_redis_forgot_is_made_once(apart: Members, own_redis: RedisServer, tmp_path: Path) -> None:
    """Its author asks again with its id and what it had read, also where Redis remembers that it was under way."""
    (only,) = apart.ready("a")
    apart.put("x", 0)
    read, fence = apart.document.read(), apart.document.fence()
    only.pause()
    thread = threading.Thread(target=lambda: apart.put("other", 1, timeout=30))
    thread.start()
    wait_until(lambda: apart.store._client.exists(apart.store.key("prepare", NAME)))
    saved(tmp_path)
    only.resume()
    thread.join()
    first = apart.document.update({"x": 1}, fence=fence, expect=read, update_id="one")
    second = apart.document.update({"x": 2}, fence=fence, update_id="two")
    apart.agree()
    set_back(own_redis, tmp_path)
    wait_until(lambda: apart.document.pointer()[0] == second)
    assert first < second
    assert apart.document.update({"x": 2}, fence=fence, expect=read, update_id="two") == second
    assert apart.put("y", 1) > second
    assert apart.agree().entries() == {"x": 2, "y": 1, "other": 1}


def test_what_the_permanent_store_may_lack_after_a_loss_is_listed_again(apart: Members) -> None:
    apart.ready("a")
    apart.put("x", 1)
    version = apart.agree().version
    assert apart.document.followed("x", version)
    empty(apart)
    wait_until(lambda: apart.document.pointer()[0] == version)
    wait_until(lambda: apart.document.behind() == {"x": version})
