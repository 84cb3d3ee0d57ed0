"""Documents as nodes, beats and the permanent store use them."""

import multiprocessing
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from coordinator import Coordinator
from tasks.documents.document import Document
from tasks.documents.on_disk import Copies
from tasks.documents.registry import Documents
from tasks.documents.replica import Replica
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import start
from tests.tasks.documents.replica_set import NAME, Residents


@pytest.fixture
def coordinator(redis_server: RedisServer, prefix: str) -> Coordinator:
    return Coordinator(url=redis_server.url(0), prefix=prefix)


@pytest.fixture
def beats(coordinator: Coordinator, tmp_path: Path) -> Iterator[list[Documents]]:
    """Two of one host."""
    both = [Documents(coordinator, tmp_path / "beats") for _ in range(2)]
    replicas: list[Replica] = []
    for documents in both:
        documents.keep(NAME)
        replicas += documents.serve()
    yield both
    for replica in replicas:
        replica.stop()


def test_two_beats_of_one_host_are_two_members(beats: list[Documents], members: Residents) -> None:
    wait_until(lambda: len(members.set()) == 2)
    first, second = members.set()
    assert second == f"{first}.2"
    members.store._client.delete(members.store.key("grace", NAME))
    members.put("x", 1)
    for documents, name in zip(beats, (first, second), strict=True):
        read = documents[NAME].read()
        assert (read.stale, read.value("x")) == (False, 1)
        assert documents[NAME].copies
        assert documents[NAME].copies.folder.parent.name == name


BEAT = """
import sys
from pathlib import Path
from coordinator import Coordinator
from tasks.documents import Documents
documents = Documents(Coordinator(url=sys.argv[1], prefix=sys.argv[2]), Path(sys.argv[3]))
documents.keep("list")
documents.serve()
sys.stdin.read()
"""


def test_a_beat_that_ends_is_waited_for_by_nobody(coordinator: Coordinator, members: Residents, tmp_path: Path) -> None:
    members.ready("a")
    argv = ["-c", BEAT, coordinator.settings.url, coordinator.settings.prefix, str(tmp_path / "beats")]
    with start(argv, stdin=PIPE) as beat:
        wait_until(lambda: len(members.set()) == 2)
        beat.communicate()
    assert beat.returncode == 0
    assert members.set() == ["a"]


def test_a_beat_without_a_disk_goes_on_and_reads_from_redis(
    coordinator: Coordinator, members: Residents, tmp_path: Path
) -> None:
    (tmp_path / "beats").write_text("in the way")
    documents = Documents(coordinator, tmp_path / "beats")
    documents.keep(NAME)
    (replica,) = documents.serve()
    members.ready("a")
    members.put("x", 1)
    assert documents[NAME].read().value("x") == 1
    (tmp_path / "beats").unlink()
    wait_until(lambda: len(members.set()) == 2)
    wait_until(lambda: (read := documents[NAME].read()).value("x") == 1 and not read.stale)
    replica.stop()


def test_what_the_permanent_store_lacks_is_listed_until_it_has_it(members: Residents) -> None:
    members.ready("a")
    first = members.put("x", 1)
    members.document.update({"y": 1}, fence=members.document.fence(), write_back=False)
    assert members.document.behind() == {"x": first}
    second = members.put("x", 2)
    assert not members.document.followed("x", first)
    assert members.document.behind() == {"x": second}
    assert members.document.followed("x", second)
    assert members.document.behind() == {}


MANY = 10_000


def test_ten_thousand_entries_are_changed_fetched_and_read_again_in_bounded_time(members: Residents) -> None:
    members.ready("a")
    entries = {f"urn:node:{number:05}": {"name": "a member node", "number": number} for number in range(MANY)}
    members.document.update(entries, fence=members.document.fence(), timeout=30)
    began = time.monotonic()
    members.put("urn:node:00007", None)
    assert time.monotonic() - began < 10
    began = time.monotonic()
    members.ready("b")
    assert members.agree().value("urn:node:00008") == {"name": "a member node", "number": 8}
    assert time.monotonic() - began < 30
    members.all.pop(0).kill()
    members.start("a")
    members.put("x", 1)
    members.expect("a", "b")
    assert len(members.agree().entries("urn:")) == MANY - 1


def test_an_update_of_a_large_document_sends_what_changes_only(members: Residents) -> None:
    members.ready("a", "b")
    members.document.update(dict.fromkeys(map(str, range(MANY)), "text" * 10), fence=members.document.fence())
    members.agree()
    sent = traffic(members)
    for number in range(10):
        members.put("x", number)
    assert traffic(members) - sent < 100_000


def traffic(members: Residents) -> int:
    """Bytes that Redis sent."""
    return int(members.store._client.info("stats")["total_net_output_bytes"])


def test_reads_of_many_threads_and_a_forked_process_are_each_the_newest(members: Residents) -> None:
    (only,) = members.ready("a")
    members.put("x", 0)
    members.agree()
    wrong: list[Any] = []
    over = threading.Event()

    def read() -> None:
        last = 0
        while not over.is_set():
            copy = only.document.read()
            if not copy.stale:
                if copy.version < last:
                    wrong.append(copy)
                last = copy.version

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 51):
        version = members.put("x", number)
        fresh = Document(members.store, NAME, Copies(only.copies.folder.parent, NAME)).read()
        assert (fresh.version >= version, fresh.stale) == (True, False)
    over.set()
    for reader in readers:
        reader.join()
    assert not wrong
    only.kill()  # a process with threads cannot be forked safely
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_value, (only.document,)) == 50


def _value(document: Document) -> Any:
    return document.read().value("x")
