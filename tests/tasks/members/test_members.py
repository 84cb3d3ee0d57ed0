"""`coordinator members …` changes the list: with who and why, and what could not be synchronized stays out."""

import json
import random
import ssl
from datetime import UTC, datetime
from getpass import getuser
from itertools import product
from pathlib import Path
from socket import gethostname
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from coordinator import Coordinator
from coordinator.local.redis import free_port
from examples.demo.member_server import MemberServer, Reply, Request, failure
from tasks.catalog.catalog import Catalog
from tasks.harvest.silence import after
from tasks.member_node.client import MemberUnreachable
from tasks.member_node.member import Member
from tasks.nodelist.xml_format import parse_nodelist
from tasks.schedules import SYNC, lane_of
from tasks.settings import Settings
from tests.harness.command import IMPORT, Done, Run, argv_of, environment, listed, refused, told
from tests.harness.waiting import wait_until
from tests.harness.warm import python, start
from tests.tasks.catalog.test_catalog import failed, fetched
from tests.tasks.conftest import SAMPLE, at, document, river_with


def last(done: Done) -> str:
    assert done.returncode == 1, done.stdout
    return done.stderr.splitlines()[-1]


@pytest.fixture
def listing(run: Run, tmp_path: Path) -> str:
    """A list of three members, none of them the server's."""
    given = document(tmp_path, *SAMPLE)
    told(run(*IMPORT, given))
    return given


@pytest.mark.usefixtures("listing")
def test_a_member_is_added_as_it_describes_itself_and_synchronized_once_it_is_approved(
    run: Run, server: MemberServer, tmp_path: Path
) -> None:
    server.fill(7)
    member_id = server.member.identifier
    done = run("members", "add", server.member.base_url, "--why", "they asked for it")
    said = told(done).splitlines()
    assert said[0].startswith(f"ok  description: {member_id}")
    assert said[-2].startswith(f"{member_id} is in the list; ")
    assert said[-2].endswith("nodelist.xml has it")
    assert said[-1].endswith(f"to approve it: coordinator members approve {member_id} --why TEXT")
    assert "no place for approval" in done.stderr
    assert member_id in [
        one.identifier for one in parse_nodelist((tmp_path / "data/nodelist.xml").read_bytes()).members
    ]

    (member,) = (one for one in listed(run("members", "--json")) if one["member"] == member_id)
    assert (member["approved"], member["state"], member["next_tick"]) == (False, "it is not approved", None)
    cannot = refused(run("refresh", member_id, "--why", "a test"))
    assert cannot == f"Error: {member_id} cannot be synchronized: it is not approved"
    assert "is already in the list, at http" in last(run("members", "add", server.member.base_url, "--why", "a test"))

    assert told(run("members", "approve", member_id, "--why", "it is fine", "--by", "ann@desk")).startswith(
        f"{member_id} is approved; "
    )
    changes = listed(run("nodelist", "history", "--json"))[:2]
    assert [change["why"] for change in changes] == ["approved: it is fine", "added: they asked for it"]
    assert (changes[0]["who"], changes[1]["who"]) == ("ann@desk", f"{getuser()}@{gethostname()}")
    assert all(f"member/{member_id}" in change["entries"] for change in changes)
    assert changes[0]["version"] > changes[1]["version"]


@pytest.mark.usefixtures("listing")
def test_a_suspended_member_stays_in_the_list_and_is_shown_so(run: Run) -> None:
    river = SAMPLE[1].identifier
    assert told(run("members", "suspend", river, "--why", "it moves")).startswith(f"{river} is suspended; ")
    (line,) = (line for line in told(run("nodelist", "show")).splitlines() if line.startswith(river))
    assert line.endswith("it is not approved")
    assert "suspended: it moves" in told(run("nodelist", "history"))


@pytest.mark.usefixtures("listing")
def test_what_could_not_be_synchronized_is_not_added(run: Run, server: MemberServer) -> None:
    def no_listing(request: Request) -> Reply | None:
        return failure(401, "NotAuthorized", "not you") if request.path[0] == "object" else None

    server.hook = no_listing
    said = last(run("members", "add", server.member.base_url, "--why", "a test"))
    assert said.startswith("Error: not added: answers: ")
    assert "401" in said
    assert last(run("members", "add", f"http://127.0.0.1:{free_port()}/mn", "--why", "a test")).startswith(
        "Error: not added: description"
    )
    assert "must be an http or https address" in refused(run("members", "add", "ftp://nowhere", "--why", "a test"))
    assert len(listed(run("members", "--json"))) == 3


@pytest.mark.usefixtures("listing")
@pytest.mark.parametrize("act", ["approve", "suspend", "reset", "remove", "purge"])
def test_whom_the_list_does_not_have_cannot_be_acted_on(run: Run, act: str) -> None:
    assert "unknown member urn:node:mnNobody" in refused(run("members", act, "urn:node:mnNobody", "--why", "a test"))


def checked(run: Run, url: str) -> tuple[int, str]:
    """The exit status, and the line about the base URL."""
    done = run("members", "check", url)
    return done.returncode, next((line for line in done.stdout.splitlines() if "base URL: " in line), "")


def test_an_address_that_a_proxy_has_changed_is_compared_by_its_parts(run: Run, server: MemberServer) -> None:
    server.fill(3)
    named, here = server.member, server.member.base_url
    port = urlsplit(here).port
    assert checked(run, f"HTTP://127.0.0.1:{port}/mn/") == (0, "")

    server.member = named.model_copy(update={"base_url": f"http://localhost:{port}/mn"})
    status, line = checked(run, here)
    assert (status, line[:3]) == (0, "ok ")
    assert line.endswith(
        f"names http://localhost:{port}/mn, another host. It answers there too, and syncs will use that"
    )

    server.member = named.model_copy(update={"base_url": f"https://127.0.0.1:{port}/prefix/mn"})
    status, line = checked(run, here)
    assert (status, line[:3]) == (1, "NO ")
    assert "another scheme and path. Syncs would use that, and there it " in line
    assert "Have the member name the address that you gave" in line

    with MemberServer("urn:node:mnOther") as other:
        server.member = named.model_copy(update={"base_url": other.member.base_url})
        status, line = checked(run, here)
        assert (status, line[:3]) == (1, "NO ")
        assert line.endswith("another port, where urn:node:mnOther answers")


def test_a_schedule_that_never_comes_is_no_good_one(run: Run, server: MemberServer) -> None:
    past = server.member.schedule and server.member.schedule.model_copy(update={"year": "2020"})
    server.member = server.member.model_copy(update={"schedule": past})
    said = run("members", "check", server.member.base_url)
    assert said.returncode == 1
    assert "NO  schedule: 0/10 * * * * ? 2020 never fires again" in said.stdout


@pytest.mark.usefixtures("listing")
def test_a_member_that_wants_a_certificate_is_asked_with_the_row_of_the_id_that_was_named(
    run: Run, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("urn.node.CN").private_key_and_cert_chain_pem.write_to_path(tmp_path / "me.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("127.0.0.1").configure_cert(context)
    mine = {"ca_bundle": str(tmp_path / "ca.pem"), "client_cert": str(tmp_path / "me.pem")}
    rows = {"urn:node:mnSafe": mine, "urn:node:mnOther": mine, "urn:node:mnBare": {"ca_bundle": mine["ca_bundle"]}}
    (tmp_path / "access.json").write_text(json.dumps(rows))
    access = {"TASKS_ACCESS": str(tmp_path / "access.json")}

    def first(*args: str) -> tuple[int, str]:
        done = run("members", *args, **access)
        return done.returncode, done.stdout.splitlines()[0]

    with MemberServer("urn:node:mnSafe", tls=context) as safe:
        url = safe.member.base_url
        status, line = first("check", url)
        assert (status, line[:3]) == (1, "NO ")
        assert line.endswith("; no row of TASKS_ACCESS was used; if it has a row of its own, name its id with --as")
        names = "ca_bundle, client_cert, client_key, proxy"
        assert first("check", url, "--as", "urn:node:mnNobody")[1].endswith(
            f"; no row of TASKS_ACCESS was used; its own may have {names}"
        )
        assert first("check", url, "--as", "urn:node:mnBare")[1].endswith(
            f"; its row of TASKS_ACCESS was used, which has ca_bundle, and may have {names}"
        )
        assert first("check", url, "--as", "urn:node:mnOther") == (
            1,
            "NO  description: the member there is urn:node:mnSafe, not urn:node:mnOther",
        )
        assert "certificate" in last(run("members", "add", url, "--why", "a test", **access))
        assert first("add", url, "--as", "urn:node:mnSafe", "--why", "a test")[0] == 0
        assert first("check", "urn:node:mnSafe") == (0, f"ok  description: urn:node:mnSafe, {safe.member.name}, API v2")


@pytest.mark.usefixtures("listing")
def test_a_member_that_left_keeps_its_objects_in_the_catalog_until_they_are_purged(run: Run, tmp_path: Path) -> None:
    river, other = SAMPLE[1].identifier, SAMPLE[0].identifier
    catalog = Catalog(Settings(data_dir=tmp_path / "data"))
    for member in (river, other):
        catalog.store(member, fence=1, fetched=fetched(["a", "b"]), failed=[failed("c")], now=at(9))
    told(run("submit", lane_of(river), SYNC, "--args", json.dumps([river]), "--id", "waits"))

    purge = "members", "purge", river, "--why", "they asked for it"
    assert refused(run(*purge)).endswith(
        f"{river} is in the list; first: coordinator members remove {river} --why TEXT"
    )
    said = told(run("members", "remove", river, "--why", "it closed")).splitlines()
    assert said == [
        f"{river} is not in the list; {tmp_path / 'data' / 'nodelist.xml'} has it",
        "1 of its syncs is cancelled",
        f"the catalog keeps its 2 objects; to delete them: coordinator members purge {river}",
    ]
    assert json.loads(told(run("job", "waits", "--json")))["state"] == "cancelled"
    assert river not in (tmp_path / "data" / "nodelist.xml").read_text()
    assert told(run("members", "remove", river, "--why", "once more")).splitlines() == [said[0], said[2]]
    (left,) = (one for one in listed(run("members", "--json")) if one["member"] == river)
    assert (left["state"], left["objects"], left["failed"], left["approved"]) == ("it left the list", 2, 1, False)
    assert "unknown member" in refused(run("refresh", river, "--why", "a test"))

    for objects in (2, 0):
        assert told(run(*purge)) == f"{river}: {objects} objects are deleted from the catalog"
    assert [one["objects"] for one in listed(run("members", "--json"))] == [2, 0]
    whys = [change["why"] for change in listed(run("nodelist", "history", "--json"))]
    assert whys[:3] == ["purged: they asked for it", "purged: they asked for it", "removed: it closed"]
    catalog.engine.dispose()


def test_a_former_member_whose_lane_is_held_is_not_purged(run: Run, listing: str) -> None:
    river = SAMPLE[1].identifier
    told(run("members", "remove", river, "--why", "it closed"))
    told(run("submit", lane_of(river), SYNC, "--args", json.dumps([river]), "--id", "waits"))
    assert "waits" in refused(run("members", "purge", river, "--why", "a test"))
    assert "removed: it closed" in listed(run("nodelist", "history", "--json"))[0]["why"]


@pytest.mark.usefixtures("listing")
def test_why_a_member_is_not_synchronized(run: Run, server: MemberServer) -> None:
    server.fill(7)
    member_id = server.member.identifier
    assert refused(run("why", "--member", "urn:node:nobody")).endswith("coordinator members lists them all")
    told(run("members", "add", server.member.base_url, "--why", "they asked for it"))
    why = json.loads(told(run("why", "--member", member_id, "--json")))
    [cause] = why["causes"]
    assert cause["code"] == "member.obstacle"
    assert cause["text"] == f"member {member_id} is not synchronized: it is not approved"
    assert (cause["act"], cause["values"]) == ("member-approve", {"id": member_id})
    assert cause["frees"] == f"coordinator members approve {member_id} --why …"
    told(run("members", "approve", member_id, "--why", "checked"))
    assert [cause["code"] for cause in json.loads(told(run("why", "--member", member_id, "--json")))["causes"]] == [
        "member.unseen"
    ]
    told(run("members", "remove", member_id, "--why", "it left"))
    assert f"member {member_id} is not synchronized: it left the list" in told(run("why", "--member", member_id))


def test_two_members_with_one_subject_are_a_finding_and_a_third_is_not_added(
    run: Run, server: MemberServer, tmp_path: Path
) -> None:
    river, subject = SAMPLE[1], SAMPLE[1].subjects[0]
    other = river_with(identifier="urn:node:other", subjects=(f" {subject.replace(',', ' , ')} ",))
    told(run(*IMPORT, document(tmp_path, river, other)))
    found = {one["code"]: one for one in json.loads(run("doctor", "--json").stdout)["findings"]}
    assert found["member.subject"]["thing"] == f"member {river.identifier}"
    assert found["member.subject"]["message"].endswith(
        f"subject {subject} admits no member, since urn:node:other has the same subject"
    )
    server.member = server.member.model_copy(update={"subjects": (subject,)})
    said = last(run("members", "add", server.member.base_url, "--why", "a test"))
    assert f"has the subject {subject}" in said


@pytest.mark.usefixtures("listing")
def test_why_names_what_went_wrong_with_a_member(run: Run, tmp_path: Path) -> None:
    river, settings = SAMPLE[1].identifier, Settings(data_dir=tmp_path / "data")
    catalog = Catalog(settings)
    catalog.store(river, fence=1, fetched=fetched(["a"]), failed=[failed("c")], now=at(9))
    silent = MemberUnreachable("no route", river, "https://r")
    after(silent, False, catalog, river, fence=1, now=datetime.now(UTC), settings=settings)
    catalog.ran(river, fence=1, now=at(9), outcome="failed", error=str(silent))
    causes = {cause["code"]: cause for cause in json.loads(told(run("why", "--member", river, "--json")))["causes"]}
    assert causes["member.silent"]["frees"] == f"coordinator refresh {river} --why …"
    assert causes["member.failed"]["text"] == f"member {river} failed in its last run: {silent}"
    assert causes["member.objects"]["facts"]["failures"] == {failed("c").reason: 1}
    catalog.store(river, fence=1, failed=[failed(f"x/{number}") for number in range(3)], now=at(9))
    catalog.ran(river, fence=1, now=at(9), outcome="succeeded", error="it counts too many")
    causes = {cause["code"]: cause for cause in json.loads(told(run("why", "--member", river, "--json")))["causes"]}
    assert causes["member.listing"]["text"].endswith("its listing has faults: it counts too many")
    assert "member.failed" not in causes
    assert "none of its 3 pids with a slash (404): does its server refuse %2F" in causes["member.slashes"]["text"]
    assert "none of its 3 pids with a slash is found" in told(run("members"))

    told(run("submit", lane_of(river), SYNC, "--args", json.dumps([river]), "--id", "waits"))
    causes = {cause["code"]: cause for cause in json.loads(told(run("why", "--member", river, "--json")))["causes"]}
    assert causes["waiting.fleet"]["thing"] == "job waits"


def test_why_says_that_a_member_has_no_schedule_that_can_be_read(run: Run, tmp_path: Path) -> None:
    odd = SAMPLE[1].model_copy(update={"schedule": None})
    told(run(*IMPORT, document(tmp_path, odd)))
    assert "[member.unscheduled]" in told(run("why", "--member", odd.identifier))


def test_why_says_in_one_line_that_the_list_cannot_be_read(run: Run) -> None:
    assert "nodelist.xml" in refused(run("why", "--member", "urn:node:any"))


def acts(run: Run, member: str) -> list[tuple[str, str, str, str]]:
    trail = listed(run("actions", "--thing", f"member {member}", "--json"))
    return [(one["act"], one["before"], one["after"], one["ticket"]) for one in trail[::-1]]


@pytest.mark.usefixtures("listing")
def test_each_act_on_a_member_stands_in_the_trail_once(run: Run) -> None:
    river, why = SAMPLE[1].identifier, ("--why", "it moves", "--by", "ann", "--ticket", "OPS-7")
    since = "harvested until 2024-05-14 09:31:07Z"
    for verb in ("suspend", "approve", "reset", "remove"):
        for _ in range(1 if verb == "reset" else 2):  # a second reset begins anew
            told(run("members", verb, river, *why))
    assert acts(run, river) == [
        ("suspend", f"approved, {since}", f"not approved, {since}", "OPS-7"),
        ("approve", f"not approved, {since}", f"approved, {since}", "OPS-7"),
        ("reset", f"approved, {since}", "approved", "OPS-7"),
        ("remove", "approved", "not in the list", "OPS-7"),
    ]


@pytest.mark.usefixtures("listing")
def test_a_killed_act_is_done_or_not_and_the_trail_agrees(
    run: Run, own: dict[str, str], coordinator: Coordinator, tmp_path: Path
) -> None:
    """Without nodes, a version is under way for a second. What was asked for goes on without its author."""
    river, why = SAMPLE[1].identifier, ("--why", "it moves", "--by", "ann")
    before = [*acts(run, river)]
    dying = start(argv_of("members", "suspend", river, *why)[1:], tmp_path, environment(**own))
    under_way = coordinator.store.key("prepare", "nodelist")
    wait_until(lambda: coordinator.store._client.exists(under_way))
    dying.kill()
    dying.wait(60)
    assert (acts(run, river), shown(run, river)["approved"]) == (before, True)
    for _ in range(2):
        told(run("members", "suspend", river, *why))
        assert (len(acts(run, river)), shown(run, river)["approved"]) == (len(before) + 1, False)


def shown(run: Run, member: str) -> dict[str, Any]:
    return next(one for one in listed(run("members", "--json")) if one["member"] == member)


BY_A_VIEWER = """
import asyncio, sys
from coordinator import Author, Forbidden, InvalidJob
from coordinator.core.author import acting
from tasks import aio, members
from tasks.app import coordinator

def refused(call, error=Forbidden):
    try:
        call()
    except error:
        return True

member, said = sys.argv[1], {"why": "so", "by": "ann"}
for name in ("refresh", "approve", "suspend", "reset", "remove", "purge", "backfill", "add"):
    act, awaited = getattr(members, name), getattr(aio, name)
    with acting(Author("eve", "viewer")):
        assert refused(lambda: act(member, **said)), name
        assert refused(lambda: asyncio.run(awaited(member, **said))), name
    assert refused(lambda: act(member, why="so", by=Author("eve", "viewer"))), name
assert [one.act for one in coordinator.actions()] == ["import"]
for _ in range(2):
    assert asyncio.run(aio.refresh(member, job_id="asked", **said)) == "asked"
assert [(one.act, one.after) for one in coordinator.actions(thing="member")] == [("refresh", "changes")]
print("all were refused")
"""


@pytest.mark.usefixtures("listing")
def test_the_months_of_a_member_are_instants_of_an_entry_that_only_backfills_run(run: Run) -> None:
    member = next(one.identifier for one in SAMPLE if one.obstacle is None)
    asked = "members", "backfill", member, "2024-11-20", "2025-02-01", "--why", "objects are missing"
    said = told(run(*asked)).splitlines()
    assert said[0] == "3 of 3 months to run"
    assert said[1] == f"how far it is: coordinator schedule months/{member}"
    assert told(run(*asked)).splitlines()[0] == "0 of 3 months to run, 3 were to run before"
    entry = json.loads(told(run("schedule", f"months/{member}", "--json")))
    assert (entry["next"], entry["key"], entry["backfill"]["to_come"]) == (None, f"sync/{member}", 3)
    assert [entry["backfill"][end][:10] for end in ("since", "until")] == ["2024-11-20", "2025-02-01"]
    assert "unknown member" in refused(run("members", "backfill", "nobody", "2024-11-20", "--why", "a test"))
    assert "not a date and time: 'soon'" in refused(run("members", "backfill", member, "soon", "--why", "a test"))


@pytest.mark.usefixtures("listing")
def test_a_viewer_does_nothing_to_a_member_and_a_sync_is_asked_for_under_its_id(
    own: dict[str, str], tmp_path: Path
) -> None:
    done = python(["-c", BY_A_VIEWER, SAMPLE[1].identifier], tmp_path, environment(**own))
    assert (done.stdout, done.returncode) == ("all were refused\n", 0), done.stderr


WHYS = """
import json
from tasks import members
from tasks.description import propose
from tasks.service import service
ways = json.loads({ways!r})
for member, (listing, proposes) in ways.items():
    if proposes:
        propose(member, service().nodelist.listed()[member].member.model_copy(update={{"name": "Another"}}))
    if listing == "suspended":
        members.suspend(member, why="a test", by="ann")
    if listing == "left":
        members.remove(member, why="a test", by="ann")
print(json.dumps({{member: members.why(member).codes for member in ways}}))
"""


def test_whatever_befalls_a_member_its_causes_are_those_of_what_was_done_to_it(
    run: Run, own: dict[str, str], tmp_path: Path
) -> None:
    ways = list(product(("approved", "suspended", "left"), *[(False, True)] * 5))
    random.Random(7).shuffle(ways)
    known, given, expected = dict[str, tuple[str, bool]](), list[Member](), dict[str, list[str]]()
    catalog = Catalog(Settings(data_dir=tmp_path / "data"))
    settings = Settings(failure_delay=86400)  # none of them is asked again before the end
    for number, (listing, unscheduled, silent, fails, misses, proposes) in enumerate(ways[:24]):
        member = f"urn:node:m{number}"
        known[member] = listing, proposes
        given.append(river_with(identifier=member, **({"schedule": None} if unscheduled else {})))
        catalog.store(
            member, fence=1, fetched=fetched([f"a{number}"]), failed=[failed("c")] if misses else [], now=at(9)
        )
        if silent:
            error = MemberUnreachable("no route", member, "https://r")
            after(error, False, catalog, member, fence=1, now=datetime.now(UTC), settings=settings)
        if fails:
            catalog.ran(member, fence=1, now=at(9), outcome="failed", error="no route")
        codes = {
            "member.obstacle": listing != "approved",
            "member.unscheduled": unscheduled and listing == "approved",
            "member.silent": silent,
            "member.failed": fails,
            "member.objects": misses,
            "member.proposes": proposes and listing != "left",
        }
        expected[member] = [code for code, there in codes.items() if there] or ["member.unseen"]
    catalog.engine.dispose()
    told(run(*IMPORT, document(tmp_path, *given)))
    done = python(["-c", WHYS.format(ways=json.dumps(known))], tmp_path, environment(**own))
    assert json.loads(told(done)) == expected
    assert len({tuple(codes) for codes in expected.values()}) > 15
