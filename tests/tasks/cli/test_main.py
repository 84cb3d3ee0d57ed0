"""The service's commands, each as a process of its own in a folder of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.local.redis import free_port
from examples.demo.member_server import MemberServer, Reply, Request, failure
from tasks.batches import Items
from tasks.member_node.member import MemberSchedule
from tasks.settings import Settings
from tests.harness.command import IMPORT, ROOT, Run, argv_of, environment, refused, told

SAMPLE = Path(__file__).parents[2] / "samples" / "nodelist_v2_sample.xml"


def test_a_nodelist_is_imported_shown_and_told_apart_from_what_is_none(run: Run, tmp_path: Path) -> None:
    assert "nodelist import FILE" in refused(run("members"))
    assert "[document.none]" in run("doctor").stdout
    assert told(run(*IMPORT, str(SAMPLE))) == "3 members, 2 of them can be synchronized"
    assert "[document.none]" not in run("doctor").stdout
    shown = told(run("nodelist", "show"))
    assert "10 0/3 * * * ? *" in shown
    assert "not a member node" in shown
    (tmp_path / "bad.xml").write_text("<nodeList/>")
    assert "types/v2.0 but nodeList" in refused(run(*IMPORT, "bad.xml"))
    assert len(json.loads(told(run("nodelist", "show", "--json")))["members"]) == 3
    assert run(*IMPORT, "nowhere.xml").returncode == 2


def test_an_entry_of_a_nodelist_that_is_none_is_named_and_left_out(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sloppy.xml").write_text(SAMPLE.read_text().replace("http://127.0.0.1:18081", "ftp://nowhere"))
    done = run(*IMPORT, "sloppy.xml")
    assert told(done).startswith("2 members")
    assert "left out: entry" in done.stderr
    assert "urn:node:mnTestB" in done.stderr


def test_a_reader_that_goes_away_is_no_error(run: Run, tmp_path: Path) -> None:
    """As `coordinator items | head -1`."""
    settings = Settings(data_dir=tmp_path / "data")
    Items(settings).register("B1-RT1")
    assert told(run("items")).startswith("ITEM")
    reading, writing = os.pipe()
    os.close(reading)
    env = environment(TASKS_DATA_DIR=str(settings.data_dir))
    done = subprocess.run(argv_of("items"), stdout=writing, stderr=subprocess.PIPE, env=env, cwd=tmp_path, check=False)
    os.close(writing)
    assert done.stderr == b""


@pytest.mark.parametrize("args", [("--most", "9" * 30), ("--after", f"1.{'9' * 30}")])
def test_a_number_that_no_database_can_hold_is_refused_in_one_line(run: Run, args: tuple[str, str]) -> None:
    assert "too large" in refused(run("items", *args))


@pytest.mark.parametrize(
    "args",
    [
        ("refresh", "urn:node:mnNobody", "--why", "a test"),
        ("members", "reset", "urn:node:mnNobody", "--why", "a test"),
        ("catalog", "urn:node:mnNobody"),
    ],
)
def test_an_unknown_member_is_named(run: Run, args: tuple[str, ...]) -> None:
    told(run(*IMPORT, str(SAMPLE)))
    done = run(*args)
    assert ("unknown member urn:node:mnNobody" in refused(done), done.returncode) == (True, 2)


def test_a_member_that_is_not_to_be_synchronized_is_refused_with_the_reason(run: Run) -> None:
    told(run(*IMPORT, str(SAMPLE)))
    assert "it is of type cn" in refused(run("refresh", "urn:node:cnTestA", "--why", "a test"))


def test_a_broker_that_is_away_is_named(run: Run) -> None:
    told(run(*IMPORT, str(SAMPLE)))
    line = refused(
        run("refresh", "urn:node:mnTestA", "--why", "a test", CELERY_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")
    )
    assert "the broker" in line
    assert "CELERY_BROKER_URL" in line


def test_a_catalog_that_cannot_be_opened_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "catalog.sqlite").write_text("this is no database, whatever its name says " * 100)
    assert "the database: file is not a database" in refused(run("nodelist", "show"))


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
    noon = MemberSchedule(sec="0", min="0", hour="12", mday="*", mon="*", wday="?", year="*")
    with MemberServer(schedule=noon) as server:
        for zone, instant in (("UTC", "12:00:00+00:00"), ("Asia/Kolkata", "06:30:00+00:00")):
            assert instant in told(run("members", "check", server.member.base_url, TASKS_TIMEZONE=zone))
    for zone in ("Mars", "", "../x"):
        line = refused(run("nodelist", "show", TASKS_TIMEZONE=zone))
        assert f"TASKS_TIMEZONE: there is no time zone '{zone}'" in line


NOT_OF_HELP = {"sqlalchemy", "httpx", "ldap3", "prometheus_client", "jinja2", "starlette", "alembic", "lxml"}
NOT_OF_HELP |= {f"tasks.{folder}" for folder in ("batches", "catalog", "components", "database", "harvest", "nodelist")}


def test_the_list_of_commands_loads_none_of_what_they_need() -> None:
    """So it is there as fast as Celery's."""
    code = (
        "from coordinator.ops.cli.main import cli; "
        "cli(['--help'], standalone_mode=False); import sys; print(*sys.modules)"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert "Synchronize MEMBER now." in done.stdout, done.stderr
    assert NOT_OF_HELP & set(done.stdout.splitlines()[-1].split()) == set()


def test_each_command_of_the_list_says_there_what_it_says_itself() -> None:
    code = """
from tasks.app import coordinator
from coordinator.ops.cli.later import Later, whole
for one in [command for part in coordinator.extensions for command in part.commands]:
    assert isinstance(one, Later)
    assert (one.name, one.get_short_help_str(200)) == (whole(one).name, whole(one).get_short_help_str(200))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
