"""The service's commands, each as a process of its own in a folder of its own."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.member import Schedule
from tasks.memberserver import EVERY_TEN_SECONDS, MemberServer, Reply, Request, failure
from tests.commands import Command
from tests.servers import free_port
from tests.tasks.calls import Done, Run, called, document, refused, told

SAMPLE = Path(__file__).parent.parent / "samples" / "nodelist_v2_sample.xml"


def test_a_nodelist_is_imported_shown_and_told_apart_from_what_is_none(run: Run, tmp_path: Path) -> None:
    assert "nodelist import FILE" in refused(run("members"))
    assert told(run("nodelist", "import", str(SAMPLE))) == "3 members, 2 of them to be synchronized\n"
    shown = told(run("nodelist", "show"))
    assert "10 0/3 * * * ? *" in shown
    assert "not a member node" in shown
    (tmp_path / "bad.xml").write_text("<html/>")
    assert "not a node list" in refused(run("nodelist", "import", "bad.xml"))
    assert len(json.loads(told(run("nodelist", "show", "--json")))["members"]) == 3
    assert run("nodelist", "import", "nowhere.xml").returncode == 2


def test_an_entry_of_a_nodelist_that_is_none_is_named_and_left_out(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sloppy.xml").write_text(SAMPLE.read_text().replace("http://127.0.0.1:18081", "ftp://nowhere"))
    done = run("nodelist", "import", "sloppy.xml")
    assert told(done).startswith("2 members")
    assert "left out: entry" in done.stderr
    assert "urn:node:mnTestB" in done.stderr


@pytest.mark.parametrize(
    "args",
    [("refresh", "urn:node:mnNobody"), ("members", "reset", "urn:node:mnNobody"), ("catalog", "urn:node:mnNobody")],
)
def test_an_unknown_member_is_named(run: Run, args: tuple[str, ...]) -> None:
    told(run("nodelist", "import", str(SAMPLE)))
    assert "unknown member urn:node:mnNobody" in refused(run(*args))


def test_a_member_that_is_not_to_be_synchronized_is_refused_with_the_reason(run: Run) -> None:
    told(run("nodelist", "import", str(SAMPLE)))
    assert "it is of type cn" in refused(run("refresh", "urn:node:cnTestA"))


def test_a_broker_that_is_away_is_named(run: Run) -> None:
    told(run("nodelist", "import", str(SAMPLE)))
    line = refused(run("refresh", "urn:node:mnTestA", CELERY_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0"))
    assert "the broker" in line
    assert "CELERY_BROKER_URL" in line


def test_a_catalog_that_cannot_be_opened_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "catalog.sqlite").write_text("this is no database, whatever its name says " * 100)
    assert "the catalog" in refused(run("nodelist", "show"))


def test_a_setting_with_a_slip_is_named_with_the_right_one(run: Run) -> None:
    assert "did you mean TASKS_MARGIN?" in refused(run("nodelist", "show", TASKS_MARGN="3"))


def test_check_tells_what_a_member_offers(run: Run, server: MemberServer) -> None:
    server.fill(7)
    said = told(run("members", "check", server.member.base_url))
    assert [line.split(":")[0] for line in said.splitlines()] == [
        f"ok  {what}" for what in ("description", "services", "schedule", "ping", "listing", "system metadata")
    ]
    assert "7 objects" in said


def test_check_tells_what_a_member_lacks(run: Run, server: MemberServer) -> None:
    def no_listing(request: Request) -> Reply | None:
        return failure(401, "NotAuthorized", "not you") if request.path[0] == "object" else None

    server.hook = no_listing
    done = run("members", "check", server.member.base_url)
    assert done.returncode == 1
    assert "NO  answers: " in done.stdout
    assert "401" in done.stdout
    nobody = run("members", "check", f"http://127.0.0.1:{free_port()}/mn")
    assert nobody.returncode == 1
    assert nobody.stdout.startswith("NO  description: ")


def test_schedules_are_meant_in_the_zone_that_is_set(run: Run) -> None:
    noon = Schedule(sec="0", min="0", hour="12", mday="*", mon="*", wday="?", year="*")
    with MemberServer(schedule=noon) as server:
        for zone, instant in (("UTC", "12:00:00+00:00"), ("Asia/Kolkata", "06:30:00+00:00")):
            assert instant in told(run("members", "check", server.member.base_url, TASKS_TIMEZONE=zone))
    for zone in ("Mars", "", "../x"):
        line = refused(run("nodelist", "show", TASKS_TIMEZONE=zone))
        assert f"TASKS_TIMEZONE: there is no time zone '{zone}'" in line


@pytest.fixture
def fleet(tmp_path: Path, server: MemberServer) -> Iterator[Run]:
    """One node with one member of 30 objects, one of them broken; the commands as another terminal calls them."""
    server.fill(30)
    server.hook = lambda request: failure(500, "ServiceFailure", "torn") if request.path[-1] == broken else None
    broken = sorted(server.pids)[3]
    seldom = server.member.model_copy(update={"schedule": EVERY_TEN_SECONDS.model_copy(update={"year": "2099"})})
    given = ("--nodelist", document(tmp_path, seldom), "--no-flower", "--nodes", "1", "--beats", "1")
    own = {"TASKS_TRIES": "1", "TASKS_TRY_PAUSE": "0.01"}
    with Command(tmp_path / "up", "up", "--data", str(tmp_path / "data"), *given, env=own) as up:
        up.says("up: Ctrl-C ends all of it")
        lines = (tmp_path / "data" / "environment").read_text().splitlines()
        found = dict(shlex.split(line)[1].split("=", 1) for line in lines)

        def call(*args: str) -> Done:
            return called(tmp_path, found, *args)

        yield call


def test_a_refresh_is_watched_to_its_end_and_what_it_did_can_be_seen(fleet: Run, server: MemberServer) -> None:
    node_id = server.member.identifier
    done = fleet("refresh", node_id, "--wait")
    assert told(done) == f"{node_id}: succeeded: 30 listed, 29 stored, 0 unchanged, 1 failed\n"
    assert done.stderr.splitlines()[-1].startswith("succeeded on cn1@")

    (member,) = json.loads(told(fleet("members", "--json")))
    assert (member["objects"], member["failed"], member["state"], member["outcome"]) == (29, 1, "idle", "succeeded")
    assert member["next_tick"]
    ((reason, count),) = member["failures"].items()
    assert ("500" in reason, count) == (True, 1)
    assert "1 × " in told(fleet("members"))

    objects: list[dict[str, Any]] = json.loads(told(fleet("catalog", node_id, "--json")))
    assert len(objects) == 29
    assert objects[0]["pid"] in told(fleet("catalog", node_id, "--most", "1"))
    assert "torn" in told(fleet("catalog", node_id, "--failed"))

    assert told(fleet("members", "reset", node_id)).startswith(node_id)
    assert json.loads(told(fleet("members", "--json")))[0]["last_harvested"] is None
    pid = objects[0]["pid"]
    assert "1 listed, 1 stored" in told(fleet("refresh", node_id, "--pid", pid, "--wait"))
