"""The library goes on with what a real server has kept, and who looks says where it does not."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.power.going import goes_on
from proof.power.load import Written
from proof.power.server import PREFIX, Server


@pytest.fixture
def server(written: Written, program: str, tmp_path: Path) -> Iterator[Server]:
    shutil.copytree(written.data, tmp_path / "data", ignore=shutil.ignore_patterns("log", "socket"))
    server = Server(tmp_path / "data", program)
    assert server.starts()
    yield server
    server.kill()


def test_all_jobs_end_with_greater_fences_and_nothing_is_left(server: Server, written: Written) -> None:
    assert written.fence
    assert goes_on(server.url(0), written.fence) == ""


def test_a_fence_that_is_not_greater_is_seen(server: Server) -> None:
    assert "is not above" in goes_on(server.url(0), 2**62)


def test_a_job_that_stands_in_no_line_is_seen(server: Server, written: Written) -> None:
    with server.raw() as client:
        client.hset(f"{{{PREFIX}}}:job:half", mapping={"state": "ready", "keys": "g/a"})
    assert goes_on(server.url(0), written.fence) == "left: ['half']"
