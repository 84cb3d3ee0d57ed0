"""A host is without its network for a minute: a network namespace where the machine permits that, else proxies."""

from pathlib import Path

import pytest

from examples.demo.member_server import MemberServer
from tests.fleet.tasks.hosts import namespaces, namespaces_are_permitted, proxied
from tests.fleet.tasks.test_two_hosts import cut_off, members
from tests.harness.postgres import PostgresServer
from tests.harness.redis import RedisServer

__all__ = ["members"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


def test_a_host_that_was_without_its_network_for_a_minute_goes_on(
    own_redis: RedisServer, postgres_server: PostgresServer, members: list[MemberServer], tmp_path: Path
) -> None:
    cables = namespaces if namespaces_are_permitted() else proxied
    cut_off(own_redis, postgres_server, members, tmp_path, cables, 60)
