"""A member describes itself in the newest API that it speaks, and what is wrong with that one is told."""

import pytest

from examples.demo.member_server import MemberServer, Reply, Request, failure
from tasks.member_node.check import describe
from tasks.member_node.client import MemberNodeError
from tasks.settings import Settings


@pytest.mark.parametrize(
    ("v2", "v1", "speaks", "told"),
    [
        (500, 404, "v2", "answers 500"),
        (401, 404, "v2", "answers 401"),
        (500, 200, "v2", "answers 500"),
        (404, 500, "v1", "answers 500"),
        (404, 200, "v1", ""),
        (400, 200, "v1", ""),
        (200, 200, "v2", ""),
    ],
)
def test_a_description_in_v1_stands_for_one_in_v2_only_where_the_member_speaks_no_v2(
    server: MemberServer, settings: Settings, v2: int, v1: int, speaks: str, told: str
) -> None:
    services = tuple(service for service in server.member.services if service.version in ("v1", speaks))
    server.member = server.member.model_copy(update={"services": services})

    def answer(request: Request) -> Reply | None:
        status = v2 if request.version == "v2" else v1
        return None if status == 200 else failure(status, "Name", request.version)

    server.hook = answer
    if told:
        with pytest.raises(MemberNodeError, match=told):
            describe(server.member.base_url, settings, server.member.identifier)
    else:
        assert describe(server.member.base_url, settings, server.member.identifier).api == speaks
