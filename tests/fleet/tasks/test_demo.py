"""The demo, as a program and as a person at a terminal sees it."""

import re
import signal
from pathlib import Path

from tests.harness.command import IMPORT, Command, called, refused, told
from tests.harness.redis import RedisServer
from tests.harness.terminal import on_a_terminal
from tests.harness.waiting import wait_until

SAMPLE = Path(__file__).parents[2] / "samples" / "nodelist_v2_sample.xml"
DEMO = ("-m", "examples.demo", "--no-flower", "--objects", "40")
MEMBERS = {"mnMEADOW", "mnRIVER", "mnSUMMIT"}


def test_without_a_terminal_it_prints_lines_and_a_summary_and_replaces_nobodys_nodelist(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.xml"
    theirs.write_bytes(SAMPLE.read_bytes())
    named = {"TASKS_NODELIST_PATH": str(theirs), "TASKS_LDAP_URL": "ldap://127.0.0.1:1", "TASKS_DATABASE_URL": "no://"}
    with Command(tmp_path / "demo", *DEMO, env={"COLUMNS": "140", **named}) as demo:
        done = r":(mn[A-Z]+) +succeeded .* last harvested \d\d:"
        wait_until(lambda: {*re.findall(done, demo.out)} == MEMBERS, 60, lambda: demo.out)
        assert demo.end() == 0, demo.out + demo.err
        assert demo.family() == []
    for name in MEMBERS:
        (row,) = (line for line in demo.out.splitlines() if line.startswith(name))
        assert re.search(r" \d+ +\d\d:\d\d:\d\d .* cn[12] +\d{16} *$", row), row
    summary = re.search(r"(\d+) objects of 3 members in \d+ s", demo.out)
    assert summary
    assert int(summary[1]) > 100, "all but what changed in the last second"
    data = re.search(r"^data +(\S+)", demo.out, re.MULTILINE)
    assert data
    assert not Path(data[1]).exists()
    assert theirs.read_bytes() == SAMPLE.read_bytes()


def test_it_refuses_an_installation_that_has_a_nodelist(tmp_path: Path, redis_server: RedisServer, prefix: str) -> None:
    own = {
        "COORDINATOR_URL": redis_server.url(0),
        "COORDINATOR_PREFIX": prefix,
        "TASKS_DATA_DIR": str(tmp_path / "data"),
    }
    told(called(tmp_path, own, *IMPORT, str(SAMPLE)))
    assert "which the demo would replace. Unset COORDINATOR_URL" in refused(called(tmp_path, own, *DEMO))


def test_it_fails_where_a_member_was_never_harvested(tmp_path: Path) -> None:
    with Command(tmp_path, *DEMO, "--for", "1") as demo:
        assert demo.process.wait(60) == 1
    assert "never harvested: urn:node:mnMEADOW, urn:node:mnRIVER, urn:node:mnSUMMIT" in demo.out


def test_on_a_terminal_one_table_shows_the_members_at_work_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with on_a_terminal(*DEMO, "--data", str(tmp_path)) as (terminal, process):

        def rows(pattern: str) -> list[str]:
            return [line for line in terminal.lines if re.search(pattern, line)]

        for name in MEMBERS:
            done = rf"{name} +succeeded +━+ \d+/\d+ +\d+ \d\d:\d\d:\d\d .* cn[12] …\d{{8}}"
            wait_until(lambda: rows(done), what=lambda: "\n".join(terminal.lines[-10:]))  # noqa: B023
        assert rows("nodes alive: cn[12]")
        assert max(map(len, rows("^mn"))) <= 80
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        wait_until(lambda: rows("objects of 3 members"))
