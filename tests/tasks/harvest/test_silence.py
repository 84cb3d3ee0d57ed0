"""A member that does not answer at all is left alone for longer and longer."""

import socket
from collections.abc import Iterator
from datetime import datetime

import pytest

from examples.demo.member_server import Request, failure
from tasks.catalog.catalog import Superseded
from tasks.harvest.silence import Silence, silence
from tasks.harvest.sync_request import SyncRequest
from tasks.member_node.client import Failing, MemberNodeError, MemberTimedOut, MemberUnreachable
from tests.harness.waiting import within
from tests.tasks.conftest import Federation, at


@pytest.fixture
def hanging() -> Iterator[str]:
    """The address of a member that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/mn"


def kept(federation: Federation) -> Silence | None:
    return silence(federation.catalog, federation.member_id)


def drop(request: Request) -> None:
    raise ConnectionAbortedError


def fails_at(federation: Federation, now: datetime, kind: type[MemberNodeError] = MemberUnreachable) -> Silence:
    with pytest.raises(kind):
        federation.harvest(clock=lambda: now)
    found = kept(federation)
    assert found
    return found


def test_a_member_that_hangs_keeps_no_slot_for_as_long_as_it_may_take_to_answer(
    federation: Federation, hanging: str
) -> None:
    federation = federation.with_settings(connect_timeout=0.5, read_timeout=60)
    federation.server.member = federation.server.member.model_copy(update={"base_url": hanging})
    with within(30), pytest.raises(MemberTimedOut):
        federation.harvest()
    assert kept(federation)
    assert federation.catalog.summary(federation.member_id).outcome == "failed"


def test_the_time_for_which_it_is_left_alone_doubles_up_to_fifteen_minutes(federation: Federation) -> None:
    federation.server.hook = drop
    began = now = at(0)
    waits = []
    for _ in range(8):
        found = fails_at(federation, now)
        assert found.since == began
        waits.append((found.until - now).total_seconds())
        now = found.until
    assert waits == [30, 60, 120, 240, 480, 900, 900, 900]


def test_the_first_silence_costs_a_member_of_each_minute_no_tick(federation: Federation) -> None:
    federation.server.hook = drop
    assert fails_at(federation, at(2)).until < at(60)


def test_an_answer_ends_it(federation: Federation) -> None:
    federation.server.fill(3, first=at(0))
    federation.server.hook = drop
    fails_at(federation, at(0))
    federation.server.hook = lambda request: None
    assert federation.harvest().stored == 3
    assert kept(federation) is None


def test_a_member_that_only_answers_pings_is_silent_too(federation: Federation) -> None:
    def deaf(request: Request) -> None:
        if request.path[0] != "monitor":
            raise ConnectionAbortedError

    federation.server.hook = deaf
    first = fails_at(federation, at(0))
    assert fails_at(federation, at(100)).since == first.since


def test_a_member_that_answers_with_errors_is_not_silent(federation: Federation) -> None:
    federation.server.hook = lambda request: failure(503, "ServiceFailure", "later")
    with pytest.raises(MemberNodeError) as error:
        federation.harvest()
    assert error.value.status == 503
    assert kept(federation) is None


def test_one_that_delivered_before_it_fell_silent_is_tried_at_its_next_tick(federation: Federation) -> None:
    federation.server.fill(450, first=at(0))
    federation.server.hook = drop
    fails_at(federation, at(0))
    asked: list[Request] = []

    def die(request: Request) -> None:
        asked.append(request)
        if len(asked) > 60:
            raise ConnectionAbortedError

    federation.server.hook = die
    with pytest.raises((MemberUnreachable, Failing)):
        federation.harvest()
    assert kept(federation) is None


def test_who_was_succeeded_leaves_nobody_alone(federation: Federation) -> None:
    def succeed(request: Request) -> None:
        federation.catalog.ran(federation.member_id, fence=99, now=at(0), outcome="the successor's")
        raise ConnectionAbortedError

    federation.server.hook = succeed
    with pytest.raises((Superseded, MemberUnreachable)):
        federation.harvest(fence=1)
    assert kept(federation) is None


def test_only_a_tick_is_no_request_by_hand() -> None:
    assert SyncRequest.of(["tick"]) == SyncRequest(by_hand=False)
    assert SyncRequest.of(["tick", "pid a"]) == SyncRequest(pids=("a",))
    assert SyncRequest.of(["tick", "increment"]).by_hand
