"""`coordinator nodelist …` without a node: what is committed is shown, exported and told apart from what is not."""

import json
from pathlib import Path

import pytest

from coordinator.local.redis import free_port
from tasks.nodelist.xml_format import parse_nodelist
from tests.harness.command import IMPORT, Run, listed, refused, told
from tests.harness.slapd import SlapdServer
from tests.tasks.conftest import SAMPLE, document

IN_ORDER = sorted(SAMPLE, key=lambda member: member.identifier)


def test_what_is_committed_is_shown_and_exported_without_those_who_are_not_approved(run: Run, tmp_path: Path) -> None:
    told(run(*IMPORT, document(tmp_path, *SAMPLE)))
    assert parse_nodelist(told(run("nodelist", "export")).encode()).members == IN_ORDER
    told(run("members", "suspend", SAMPLE[0].identifier, "--why", "a test"))
    done = run("nodelist", "export", "out.xml", "--v1")
    assert (told(done), done.stderr) == ("", f"left out, since it is not approved: {SAMPLE[0].identifier}\n")
    written = parse_nodelist((tmp_path / "out.xml").read_bytes())
    assert written.root.nsmap["d1"].endswith("/v1")
    assert [one.identifier for one in written.members] == [one.identifier for one in IN_ORDER if one != SAMPLE[0]]

    shown = json.loads(told(run("nodelist", "show", "--json")))
    changes = listed(run("nodelist", "history", "--json"))
    assert [change["why"].partition(" ")[0] for change in changes] == ["suspended:", "changed"]
    assert shown["version"] == changes[0]["version"]
    assert (shown["stale"], shown["kept_by"], shown["pending"]) == (False, [], {})
    assert shown["store"] == str(tmp_path / "data" / "nodelist.xml")
    assert "no node or beat has a copy of the list" in refused(run("nodelist", "verify"))


def test_a_member_that_no_beat_synchronizes_is_shown_with_the_reason(run: Run, tmp_path: Path) -> None:
    river, alpine = SAMPLE[1:]
    assert river.schedule
    wrong = river.model_copy(update={"schedule": river.schedule.model_copy(update={"sec": "77"})})
    told(run(*IMPORT, document(tmp_path, wrong, alpine.model_copy(update={"schedule": None}))))
    lines = told(run("nodelist", "show")).splitlines()
    ends = {line.split()[0]: line for line in lines if line.startswith("urn:")}
    assert "only on request: seconds '77': 77 is not a value of this field" in ends[river.identifier]
    assert ends[alpine.identifier].endswith("only on request: the nodelist has no schedule for it")
    shown = told(run("members"))
    assert "not scheduled: seconds '77': 77 is not a value of this field" in shown
    assert "not scheduled: the nodelist has no schedule for it" in shown
    for never in ({"mday": "30", "mon": "2"}, {"mday": "31", "mon": "4,6,SEP"}, {"year": "2020"}):
        late = river.schedule.model_copy(update={"wday": "?", "mday": "*"} | never)
        done = run(*IMPORT, document(tmp_path, river.model_copy(update={"schedule": late})))
        assert f"{river.identifier}: only on request: its schedule " in done.stderr
        assert "never fires again" in told(run("members"))
    (found,) = (one for one in json.loads(run("doctor", "--json").stdout)["findings"] if "unscheduled" in one["code"])
    assert found["thing"] == f"member {river.identifier}"
    assert found["message"].endswith(" 2020 never fires again")
    told(run(*IMPORT, document(tmp_path, river)))
    (member,) = json.loads(told(run("nodelist", "show", "--json")))["members"]
    assert member["synchronized"] == "yes"
    assert [one["unscheduled"] for one in listed(run("members", "--json"))] == [None]


def test_an_entry_that_cannot_be_understood_is_shown(run: Run, tmp_path: Path) -> None:
    told(run(*IMPORT, document(tmp_path, *SAMPLE)))
    stored = tmp_path / "data" / "nodelist.xml"
    stored.write_text(stored.read_text().replace('state="up"', 'state="asleep"', 1))
    (problem,) = json.loads(told(run("nodelist", "show", "--json")))["broken"]
    assert SAMPLE[0].identifier in problem
    assert f"broken entries: {problem}" in told(run("nodelist", "show")).splitlines()


def test_where_no_node_lives_a_refresh_and_a_comparison_say_so(run: Run) -> None:
    assert "no node is alive" in refused(run("nodelist", "refresh"))
    assert "nothing is committed yet" in refused(run("nodelist", "verify"))


@pytest.mark.parametrize(
    "args",
    [("nodelist", "show"), ("nodelist", "export"), ("members", "approve", "urn:node:mnTestA", "--why", "a test")],
    ids=" ".join,
)
def test_a_redis_that_is_away_is_named(run: Run, tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "data").mkdir()
    Path(document(tmp_path / "data", *SAMPLE)).rename(tmp_path / "data" / "nodelist.xml")
    line = refused(run(*args, COORDINATOR_URL=f"redis://127.0.0.1:{free_port()}/0"))
    assert "COORDINATOR_URL names this Redis" in line


def test_what_a_directory_lacks_since_it_is_away_is_pending_with_the_reason(
    run: Run, slapd: SlapdServer, tmp_path: Path
) -> None:
    river = SAMPLE[1].identifier
    ldap = slapd.environ
    slapd.stop()
    assert f"LDAP at {slapd.url}: Can't contact" in refused(run("nodelist", "show", **ldap))
    slapd.start()
    told(run(*IMPORT, document(tmp_path, *SAMPLE), **ldap))
    slapd.stop()
    done = told(run("members", "suspend", river, "--why", "a test", **ldap))
    assert done.startswith(
        f"{river} is suspended; {slapd.url} does not have it yet: LDAP at {slapd.url}: Can't contact"
    )
    found = [
        one
        for one in json.loads(run("doctor", "--json", **ldap).stdout)["findings"]
        if one["code"] == "document.pending"
    ]
    assert [(one["level"], f"lacks the newest version of {river}: LDAP at" in one["message"]) for one in found] == [
        ("warning", True)
    ]
    shown = json.loads(told(run("nodelist", "show", "--json", **ldap)))
    assert shown["pending"][river]["version"] == shown["version"]
    assert "Can't contact" in shown["pending"][river]["why"]
    assert shown["broken"] is None
    slapd.start()
    assert (
        told(run("members", "approve", river, "--why", "a test", **ldap)) == f"{river} is approved; {slapd.url} has it"
    )
    assert json.loads(told(run("nodelist", "show", "--json", **ldap)))["pending"] == {}
    assert "document.pending" not in run("doctor", **ldap).stdout


def test_an_import_shows_before_what_it_would_change_asks_before_a_member_leaves_and_stands_in_the_trail(
    run: Run, tmp_path: Path
) -> None:
    why = ("--why", "a new year", "--by", "ann", "--ticket", "T1")
    given = document(tmp_path, *SAMPLE)
    assert "Missing option '--why'" in run("nodelist", "import", given).stderr
    assert told(run("nodelist", "import", given, "--dry-run", *why)).splitlines() == [
        f"{member.identifier} is new" for member in IN_ORDER
    ]
    told(run("nodelist", "import", given, *why))
    assert told(run("nodelist", "import", given, "--dry-run", *why)) == "nothing would change"
    fewer = document(tmp_path, SAMPLE[0].model_copy(update={"name": "Another"}), SAMPLE[1])
    lines = [f"{SAMPLE[0].identifier}: name: {SAMPLE[0].name} → Another", f"{SAMPLE[2].identifier} is gone"]
    assert sorted(told(run("nodelist", "import", fewer, "--dry-run", *why)).splitlines()) == sorted(lines)
    done = run("nodelist", "import", fewer, *why)
    assert (done.returncode, f"1 member leaves the list: {SAMPLE[2].identifier}. Go on?" in done.stderr) == (1, True)
    assert len(json.loads(told(run("nodelist", "show", "--json")))["members"]) == 3
    told(run("nodelist", "import", fewer, "--yes", *why))
    assert len(json.loads(told(run("nodelist", "show", "--json")))["members"]) == 2
    acts = listed(run("actions", "--thing", "nodelist", "--json"))
    assert [(act["act"], act["by"], act["why"], act["ticket"]) for act in acts] == [
        ("import", "ann", "a new year", "T1")
    ] * 2
    assert [act["after"] for act in acts] == ["2 members of given.xml, 1 gone", "3 members of given.xml, 0 gone"]


def test_a_document_of_which_no_entry_can_be_understood_is_refused_with_the_reasons(run: Run, tmp_path: Path) -> None:
    (tmp_path / "given.xml").write_text(
        Path(document(tmp_path, *SAMPLE)).read_text().replace("<baseURL>http", "<baseURL>ftp")
    )
    said = refused(run(*IMPORT, "given.xml"))
    assert "names no member that can be understood; entry 1 (" in said
    assert all(f"({member.identifier}): base_url: " in said for member in SAMPLE)
