from collections.abc import Iterator

import pytest

from examples.demo.member_server import MemberServer
from tests.tasks.conftest import server, settings, slapd

__all__ = ["server", "settings", "slapd"]

A, B = "urn:node:mnA", "urn:node:mnB"
Members = tuple[MemberServer, MemberServer]


@pytest.fixture
def member() -> Iterator[MemberServer]:
    with MemberServer(A) as server:
        server.fill(5)
        yield server


@pytest.fixture
def members() -> Iterator[Members]:
    """A has 30 objects, B has 20."""
    with MemberServer(A) as one, MemberServer(B) as two:
        one.fill(30)
        two.fill(20)
        yield one, two
