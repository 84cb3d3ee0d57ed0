"""An installation has one database and one permanent store: who comes with another is refused, until it has moved."""

import json
from pathlib import Path

import pytest

from tests.harness.command import IMPORT, ROOT, Run, environment, listed, refused, told
from tests.harness.slapd import SlapdServer
from tests.harness.warm import python
from tests.tasks.conftest import SAMPLE, document

WHY = ("--why", "a test")
MEMBER = SAMPLE[1].identifier


def test_who_names_another_permanent_store_is_refused_and_changes_nothing(
    run: Run, slapd: SlapdServer, tmp_path: Path
) -> None:
    told(run(*IMPORT, document(tmp_path, *SAMPLE), **slapd.environ))
    said = refused(run("members", "suspend", MEMBER, *WHY))
    assert f"has its nodelist in {slapd.url}, and this process has {tmp_path}/data/nodelist.xml" in said
    assert said.endswith("with the settings of the new place: coordinator nodelist moved --why TEXT")
    assert "has its nodelist in" in refused(run(*IMPORT, document(tmp_path, *SAMPLE)))
    shown = json.loads(told(run("nodelist", "show", "--json", **slapd.environ)))
    assert [member["approved"] for member in shown["members"]] == [True] * len(SAMPLE)
    assert not (tmp_path / "data" / "nodelist.xml").exists()
    under_another_name = slapd.environ | {"TASKS_LDAP_URL": slapd.url.replace("127.0.0.1", "localhost")}
    assert f"{MEMBER} is suspended" in told(run("members", "suspend", MEMBER, *WHY, **under_another_name))


@pytest.mark.parametrize("what", [("worker", "-n", "far@test"), ("beat", "--pidfile=")], ids=["node", "beat"])
def test_a_node_or_beat_with_another_permanent_store_does_not_start(
    run: Run, own: dict[str, str], slapd: SlapdServer, tmp_path: Path, what: tuple[str, ...]
) -> None:
    told(run(*IMPORT, document(tmp_path, *SAMPLE)))
    done = python(["-m", "celery", "-A", "tasks", *what], ROOT, environment(**own, **slapd.environ))
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert f"has its nodelist in {tmp_path}/data/nodelist.xml, and this process has {slapd.url}" in done.stderr


def test_who_names_another_database_is_refused_until_it_has_moved(run: Run, tmp_path: Path) -> None:
    told(run("items", "add", "B1"))
    elsewhere = {"TASKS_DATABASE_URL": f"sqlite:///{tmp_path}/other.sqlite"}
    for args in (("items", "add", "B2"), ("catalog", MEMBER), ("items",)):
        said = refused(run(*args, **elsewhere))
        assert f"has its database in sqlite:///{tmp_path}/data/catalog.sqlite" in said
        assert f"this process has sqlite:///{tmp_path}/other.sqlite." in said
        assert said.endswith("coordinator items moved --why TEXT")
    (tmp_path / "data" / "catalog.sqlite").rename(tmp_path / "data" / "moved.sqlite")
    moved = {"TASKS_DATABASE_URL": f"sqlite:///{tmp_path}/data/moved.sqlite"}
    assert [item["id"] for item in listed(run("items", "--json", **moved))] == ["B1"]  # it is the same one
    assert "the database is sqlite:" in told(run("items", "moved", *WHY, "--by", "ann", **elsewhere))
    told(run("items", "add", "B2", **elsewhere))
    assert "has its database in" in refused(run("items", **moved))
    [act] = listed(run("actions", "--thing", "database", "--json"))
    assert (act["by"], act["why"], act["act"]) == ("ann", "a test", "move")
    assert (act["before"][-14:], act["after"][-12:]) == ("catalog.sqlite", "other.sqlite")


REFRESH = "from tasks.service import service; print(*service().nodelist.refresh())"


def test_a_permanent_store_that_has_moved_is_looked_at_as_for_the_first_time_and_gets_what_it_lacks(
    run: Run, own: dict[str, str], slapd: SlapdServer, tmp_path: Path
) -> None:
    def refreshed(**ldap: str) -> str:
        done = python(["-c", REFRESH], ROOT, environment(**own, **ldap))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    told(run(*IMPORT, document(tmp_path, *SAMPLE)))
    refreshed()
    told(run("nodelist", "moved", *WHY, **slapd.environ))
    assert refreshed(**slapd.environ) == ""
    told(run("members", "suspend", MEMBER, *WHY, **slapd.environ))
    told(run("nodelist", "moved", *WHY))  # and back: the document still has what it had
    assert "has its nodelist in" in refused(run("members", "approve", MEMBER, *WHY, **slapd.environ))
    (tmp_path / "data" / "nodelist.xml").write_text(
        (tmp_path / "data" / "nodelist.xml").read_text().replace(f">{SAMPLE[0].name}<", ">A new name<")
    )
    assert refreshed() == f"{SAMPLE[0].identifier}: name: {SAMPLE[0].name} → A new name"
    shown = json.loads(told(run("nodelist", "show", "--json")))
    assert [member["identifier"] for member in shown["members"] if not member["approved"]] == [MEMBER]
    assert shown["pending"] == {}
    assert [act["before"] for act in listed(run("actions", "--thing", "nodelist", "--json"))][:2] == [
        slapd.url, f"{tmp_path}/data/nodelist.xml",
    ]  # fmt: skip
