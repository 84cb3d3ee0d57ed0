"""The files of one document on one machine: what a commit writes, and what a torn or full disk leaves."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.documents import on_disk as module
from tasks.documents.copy import sum_of
from tasks.documents.on_disk import SMALL_LOG, Copies

NAME = "list"
MANY = {f"member/{number:05}": f'{number} {{"name":"{"m" * 700}"}}' for number in range(2_000)}


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    with kept(tmp_path) as made:
        yield made


@contextmanager
def kept(tmp_path: Path) -> Iterator[Copies]:
    """As the keeper of the folder has it."""
    made = Copies(tmp_path / "a", NAME)
    lock = made.lock()
    assert lock
    with lock:
        made.begin()
        yield made


def again(copies: Copies) -> Copies:
    """As another process reads the folder."""
    return Copies(copies.folder.parent, NAME)


def put(copies: Copies, version: int, **changes: str) -> None:
    copies.prepare(version, changes)
    copies.commit(version)


def written(copies: Copies) -> int:
    return sum(path.stat().st_size for path in copies.folder.iterdir())


def test_a_commit_writes_what_it_changes(copies: Copies) -> None:
    copies.replace(1, MANY)
    before = written(copies)
    for version in range(2, 22):
        put(copies, version, **{"member/00007": f'{version} {{"name":"{"n" * 800}"}}'})
    assert written(copies) - before < 20 * 2_000
    assert again(copies).read(21) == copies.read(21)
    found = again(copies).read(21)
    assert found
    assert (found.value("member/00007")["name"][:1], found.sha) == ("n", sum_of(found.state))


def test_a_log_longer_than_the_snapshot_becomes_the_next_snapshot_and_readers_go_over_to_it(copies: Copies) -> None:
    reader, version = again(copies), 0
    names = {path.name for path in copies.folder.iterdir()}
    while names & {path.name for path in copies.folder.glob("*.log")} or not version:
        version += 1
        put(copies, version, x=f'{version} "{"x" * 5_000}"')
        found = reader.read(version)
        assert found
        assert found.fence("x") == version
        names = names or {path.name for path in copies.folder.iterdir()}
        assert version < 100
    assert written(copies) < SMALL_LOG
    fresh = again(copies)
    assert fresh.committed() == copies.committed()
    assert (fresh.committed().version, fresh.committed().sha) == (version, sum_of({"x": f'{version} "{"x" * 5_000}"'}))
    assert len(list(copies.folder.glob("*.snapshot"))) == 1


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_torn_line_counts_as_none_and_the_next_takes_its_place(copies: Copies, cut: int) -> None:
    put(copies, 1, x="1 1")
    (log,) = copies.folder.glob("*.log")
    copies.prepare(2, {"x": "2 2"})
    os.truncate(log, log.stat().st_size - cut)
    after = again(copies)
    after.begin()
    assert (after.committed().version, after.prepared()) == (1, None)
    put(after, 3, x="3 3")
    assert again(after).read(3) == after.read(3)
    assert after.versions() == [1, 3]


def test_a_disk_that_is_full_in_the_middle_of_a_line_leaves_what_was_there(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(copies, 1, x="1 1")
    (log,) = copies.folder.glob("*.log")
    before = log.read_bytes()

    def full(file: module.BinaryIO, line: bytes) -> None:
        file.write(line[:20])
        file.flush()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "write", full)
        with pytest.raises(OSError, match="No space"):
            copies.prepare(2, {"x": "2 2"})
    assert log.read_bytes() == before
    put(copies, 3, x="3 3")
    assert again(copies).committed().version == 3


@pytest.mark.parametrize("value", ["1", '"a longer text than the one before"'])
def test_a_reader_sees_the_line_that_took_the_place_of_one_that_could_not_be_flushed(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    put(copies, 1, x="1 1")
    reader = again(copies)

    def read_meanwhile(descriptor: int) -> None:
        assert reader.read(2), "it lies there, and is not durable"
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(module.os, "fsync", read_meanwhile)
        with pytest.raises(OSError, match="Input/output"):
            copies.prepare(2, {"x": '2 "a text"'})
    put(copies, 3, x=f"3 {value}")
    assert reader.read(3) == copies.read(3)
    assert reader.committed().version == 3


def test_a_version_that_was_prepared_upon_another_one_counts_as_none(copies: Copies) -> None:
    put(copies, 1, x="1 1")
    copies.prepare(2, {"x": "2 2"})
    copies.prepare(3, {"y": "3 3"})
    copies.commit(3)
    found = again(copies).read(3)
    assert found
    assert found.entries() == {"x": 1, "y": 3}
    assert again(copies).read(2) is None


def test_a_snapshot_whose_entries_somebody_changed_counts_as_none(copies: Copies) -> None:
    copies.replace(1, {"x": "1 1"})
    (snapshot,) = copies.folder.glob("*.snapshot")
    snapshot.write_bytes(snapshot.read_bytes().replace(b",1,1]", b",1,7]"))
    assert again(copies).committed().version == 0
    assert again(copies).read(1) is None


def test_a_line_of_the_log_that_somebody_changed_counts_as_none(copies: Copies) -> None:
    put(copies, 1, x="1 1")
    (log,) = copies.folder.glob("*.log")
    log.write_bytes(log.read_bytes().replace(b",1]", b",7]"))
    assert again(copies).read(1) is None


def test_an_identity_is_made_once_and_stays(copies: Copies) -> None:
    copies.identify()
    first = copies.member
    assert first.startswith("a#")
    copies.identify()
    copies.begin()
    assert again(copies).member == first
    copies.identify(anew=True)
    assert again(copies).member not in (first, "a")
