"""One bad member never delays another."""

import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from celery import signature

from examples.demo.member_server import MemberServer, Request
from tasks.member_node.member import Member, MemberSchedule
from tests.fleet.tasks.service import Service, beat
from tests.harness.command import listed, told
from tests.harness.long import long
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

A, LANE = "urn:node:mnA", "sync/urn:node:mnA"
EVERY_FIVE_SECONDS = MemberSchedule(sec="0/5", min="*", hour="*", mday="*", mon="*", wday="?", year="*")


class Named:
    """A member that another server stands for."""

    def __init__(self, member: Member, name: str, **changed: str) -> None:
        self.member = member.model_copy(update={"identifier": name, **changed})


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def hanging(stack: ExitStack) -> str:
    """The address of a member that accepts connections and never answers."""
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
    return f"http://127.0.0.1:{server.getsockname()[1]}/mn"


def drop(request: Request) -> None:
    raise ConnectionAbortedError


def test_a_tick_leaves_a_silent_member_alone_and_a_request_by_hand_does_not(
    own_redis: RedisServer, tmp_path: Path, stack: ExitStack
) -> None:
    member = stack.enter_context(MemberServer(A, hook=drop))
    service = stack.enter_context(Service(own_redis, tmp_path, [member]))
    service.node("one")
    sync = signature("tasks.sync.sync_member_node", (A,), {"asked": ["tick"]})

    def tick(name: str) -> str:
        service.coordinator.collect(LANE, sync, how="merge", job_id=name)
        job = service.ended(name)
        return f"{job.state} {(job.result or {}).get('outcome')}"

    assert tick("first") == "failed None"
    member.hook = lambda request: None
    member.fill(3)
    assert tick("second") == "succeeded left alone"
    reason = service.coordinator.job("second").result["reason"]
    assert "has not answered since" in reason
    (shown,) = listed(service.call("members", "--json"))
    until = datetime.fromisoformat(shown["left_alone_until"])
    assert until.isoformat(" ", "seconds") in reason
    assert "left alone until 20" in told(service.call("members"))
    assert "3 stored" in told(service.call("refresh", A, "--why", "a test", "--wait"))
    (shown,) = listed(service.call("members", "--json"))
    assert shown["left_alone_until"] is None
    assert tick("third") == "succeeded succeeded"


def test_the_well_members_keep_their_ticks_beside_those_that_hang_drop_and_flap(
    own_redis: RedisServer, tmp_path: Path, stack: ExitStack
) -> None:
    begun = time.monotonic()

    def flap(request: Request) -> None:
        if (time.monotonic() - begun) % 7 > 4:
            raise ConnectionAbortedError

    well = stack.enter_context(MemberServer(schedule=EVERY_FIVE_SECONDS))
    well.fill(3)
    bad = (MemberServer(hook=hook, schedule=EVERY_FIVE_SECONDS) for hook in (drop, flap))
    dropping, flapping = map(stack.enter_context, bad)
    flapping.fill(3)
    names = [f"urn:node:mnWell{number}" for number in range(long(12, 24))]
    members = [
        *(Named(well.member, f"urn:node:mnHangs{number}", base_url=hanging(stack)) for number in range(6)),
        *(Named(dropping.member, f"urn:node:mnDrops{number}") for number in range(3)),
        *(Named(flapping.member, f"urn:node:mnFlaps{number}") for number in range(3)),
        *(Named(well.member, name) for name in names),
    ]
    given = {"TASKS_CONNECT_TIMEOUT": "2", "TASKS_READ_TIMEOUT": "120"}
    service = stack.enter_context(Service(own_redis, tmp_path, members, **given))  # type: ignore[arg-type]
    service.node("one", 4)
    stack.enter_context(beat(service, "beat"))
    runs: dict[str, list[datetime]] = defaultdict(list)

    def seen() -> bool:
        for name, summary in service.catalog.summaries(names).items():
            if summary.ran_at is not None and summary.ran_at not in runs[name][-1:]:
                runs[name].append(summary.ran_at)
        return all(len(runs[name]) >= 4 for name in names)

    wait_until(seen, 120, lambda: str({name: len(found) for name, found in runs.items()}))
    gaps = [(later - one).total_seconds() for found in runs.values() for one, later in pairwise(found)]
    assert max(gaps) < 60, sorted(gaps)[-10:]  # a hanging member alone would cost 120
    assert {summary.outcome for summary in service.catalog.summaries(names).values()} == {"succeeded"}
