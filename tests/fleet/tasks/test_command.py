"""The service's commands beside a real node."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo.member_server import EVERY_TEN_SECONDS, MemberServer, failure
from tests.harness.command import Command, Done, Run, called, exported, listed, told
from tests.tasks.conftest import document


@pytest.fixture
def terminal(tmp_path: Path, server: MemberServer) -> Iterator[Run]:
    """One node with one member of 30 objects, one of them broken; the commands as another terminal calls them."""
    server.fill(30)
    server.hook = lambda request: failure(500, "ServiceFailure", "torn") if request.path[-1] == broken else None
    broken = sorted(server.pids)[3]
    seldom = server.member.model_copy(update={"schedule": EVERY_TEN_SECONDS.model_copy(update={"year": "2099"})})
    given = ("--nodelist", document(tmp_path, seldom), "--no-flower", "--nodes", "1", "--beats", "1")
    own = {"TASKS_TRIES": "1", "TASKS_TRY_PAUSE": "0.01"}
    with Command(tmp_path / "up", "up", "--data", str(tmp_path / "data"), *given, env=own) as up:
        up.says("up. Ctrl-C ends the service")
        found = exported(tmp_path / "data" / "environment")

        def call(*args: str) -> Done:
            return called(tmp_path, found, *args)

        yield call


def test_a_refresh_is_watched_to_its_end_and_what_it_did_can_be_seen(terminal: Run, server: MemberServer) -> None:
    member_id = server.member.identifier
    done = terminal("refresh", member_id, "--why", "a test", "--wait")
    assert told(done) == f"{member_id}: succeeded: 30 listed, 29 stored, 0 unchanged, 1 failed"
    assert done.stderr.splitlines()[-1].startswith("succeeded on cn1@")

    (member,) = listed(terminal("members", "--json"))
    assert (member["objects"], member["failed"], member["state"], member["outcome"]) == (29, 1, "idle", "succeeded")
    assert member["next_tick"]
    ((reason, count),) = member["failures"].items()
    assert ("500" in reason, count) == (True, 1)
    assert "1 × " in told(terminal("members"))

    objects: list[dict[str, Any]] = listed(terminal("catalog", member_id, "--json"))
    assert len(objects) == 29
    assert objects[0]["pid"] in told(terminal("catalog", member_id, "--most", "1"))
    assert "torn" in told(terminal("catalog", member_id, "--failed"))

    assert told(terminal("members", "reset", member_id, "--why", "a test")).startswith(member_id)
    assert listed(terminal("members", "--json"))[0]["last_harvested"] is None
    pid = objects[0]["pid"]
    assert (
        told(terminal("refresh", member_id, "--why", "a test", "--pid", pid, "--wait"))
        == f"{member_id}: {pid} is stored"
    )
