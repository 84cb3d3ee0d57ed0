"""A service with one node that the tests of a file share: each has members of its own."""

import uuid
from collections.abc import Iterator
from datetime import datetime

import pytest

from examples.demo.member_server import MemberServer
from tests.fleet.tasks.conftest import Members
from tests.fleet.tasks.service import Service
from tests.harness.command import IMPORT, told
from tests.harness.redis import RedisServer
from tests.tasks.conftest import document


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("standing")
    with RedisServer(folder / "redis") as redis, Service(redis, folder, [], TASKS_TRIES="1") as service:
        service.node("one")
        yield service


@pytest.fixture
def members() -> Iterator[Members]:
    """The first has 30 objects, the other 20; nobody knew them before."""
    own = uuid.uuid4().hex[:8]
    with MemberServer(f"urn:node:mnA{own}") as one, MemberServer(f"urn:node:mnB{own}") as two:
        one.fill(30)
        two.fill(20)
        yield one, two


@pytest.fixture
def service(standing: Service, members: Members) -> Service:
    """Its nodelist has these members, and no other."""
    told(standing.call(*IMPORT, document(standing.folder, *(one.member for one in members))))
    return standing


def ids(members: Members) -> list[str]:
    return [one.member.identifier for one in members]


def harvested(service: Service, member_id: str) -> datetime:
    state = service.nodelist.read_one(member_id)
    assert state
    return state.listed.member.harvested_until
