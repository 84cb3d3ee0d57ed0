import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from examples.demo.member_server import MemberServer
from tasks import instants
from tasks.member_node.client import MemberNode
from tasks.member_node.member import Member
from tasks.settings import Settings
from tests.tasks.conftest import at


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Member]]:
    command = [sys.executable, "-m", "examples.demo.member_server", *arguments]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    with running.stdout as output:
        try:
            yield running, Member.model_validate_json(output.readline())
        finally:
            running.kill()
            running.wait()


def test_as_a_process_it_says_who_it_is_serves_and_ends_when_told(settings: Settings) -> None:
    with (
        process("--id", "urn:node:mnMine", "--objects", "20") as (running, member),
        MemberNode(member, settings) as client,
    ):
        assert client.describe() == member
        assert client.objects(instants.NEVER).total == 20
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0


def test_it_keeps_changing_when_asked_to(server: MemberServer, settings: Settings) -> None:
    server.fill(5, first=at(0))
    server.keep_changing(200)
    deadline = time.monotonic() + 20
    with MemberNode(server.member, settings) as client:
        while client.objects(at(100)).total < 3 or len(server) < 7:
            assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("query", "status", "total"),
    [
        ("fromDate=2024-05-14T09:00:00Z", 200, 'count="5" start="0" total="5"'),
        ("fromDate=2024-05-14T11:00:00%2B02:00", 200, 'total="5"'),
        ("fromDate=2024-05-14T11:00:00+02:00", 400, "InvalidRequest"),
        ("fromDate=2024-05-14T09:00:00&start=5", 400, "InvalidRequest"),
        ("fromDate=2030-05-14T09:00:00&start=5", 200, 'total="0"'),
        ("fromDate=2024-05-14&count=0", 200, 'count="0" start="0" total="5"'),
        ("toDate=2024-05-14T09:00:04Z&fromDate=2024-05-14T09:00:01Z", 200, 'total="3"'),
        ("start=-1", 400, "InvalidRequest"),
        ("count=many", 400, "InvalidRequest"),
    ],
)
def test_its_listings_behave_as_measured(server: MemberServer, query: str, status: int, total: str) -> None:
    server.fill(5, first=at(0))
    answer = httpx.get(f"{server.member.base_url}/v2/object?{query}", timeout=60)
    assert answer.status_code == status
    assert total in answer.text
