"""What a member says of itself is taken in, waits for an operator, or is none of its business."""

import json
from typing import Any

import httpx

from coordinator import Job
from examples.demo.member_server import MemberServer, failure
from tasks.member_node.member import MemberSchedule, Property
from tests.coordinator.ops.dashboard.stage import TOKEN
from tests.fleet.tasks.conftest import Members
from tests.fleet.tasks.service import Service
from tests.fleet.tasks.standing import ids, members, service, standing
from tests.harness.command import IMPORT, ROOT, Command, loaded, refused, told
from tests.tasks.conftest import document

__all__ = ["members", "service", "standing"]

WHY = ("--why", "a test", "--by", "ann")
HOURLY = MemberSchedule(sec="0", min="42", hour="*", mday="*", mon="*", wday="?", year="*")


def says(server: MemberServer, **fields: Any) -> None:
    server.member = server.member.model_copy(update=fields)


def read(service: Service, member_id: str) -> Job:
    """Have the description read; the job once it has ended."""
    return service.coordinator.wait(told(service.call("members", "refresh", member_id)).split()[-1], 60)


def condition(service: Service, member_id: str) -> dict[str, Any]:
    (found,) = (one for one in loaded(service.call("members", "--json"))["members"] if one["member"] == member_id)
    return dict(found)


def listed(service: Service, member_id: str) -> Any:
    """The member as the permanent store has it."""
    return service.nodelist.read().states[member_id].listed.member


def acts(service: Service, member_id: str) -> list[tuple[str, str]]:
    return [(one.act, one.by) for one in service.coordinator.actions() if one.name == member_id]


def test_what_a_member_may_change_is_taken_in_and_the_rest_waits_for_an_operator(
    service: Service, members: Members
) -> None:
    a, _ = ids(members)
    server, before = members[0], listed(service, a)
    assert (read(service, a).result or {})["taken"] == []
    says(server, state="down", name="Renamed", schedule=HOURLY, properties=(Property(key="CN_x", value="mine"),))
    says(server, subjects=("CN=new",), base_url=f"{server.member.base_url}/")
    says(server, base_url=server.member.base_url.rstrip("/").replace("127.0.0.1", "localhost"))
    result = read(service, a).result or {}
    assert {line.split(": ")[1] for line in result["taken"]} == {"state", "name", "schedule"}
    assert result["waiting"] == ["base_url", "subjects"]
    now = listed(service, a)
    assert (now.state, now.name, now.schedule, now.properties) == ("down", "Renamed", HOURLY, ())
    assert (now.base_url, now.subjects) == (before.base_url, before.subjects)
    assert acts(service, a) == [("describe", a)]

    shown = condition(service, a)["proposes"]
    assert shown["subjects"] == {"before": [], "after": ["CN=new"]}
    assert "proposes base_url, subjects" in told(service.call("members"))
    causes = {one["code"]: one for one in loaded(service.call("why", "--member", a, "--json"))["causes"]}
    assert causes["member.proposes"]["frees"] == f"coordinator members accept {a} subjects --why TEXT"
    assert told(service.call("members", "accept", a, "subjects", *WHY)).startswith(f"{a} has its own subjects")
    assert told(service.call("members", "refuse", a, *WHY)) == f"{a} keeps the list's base_url"
    assert (listed(service, a).subjects, listed(service, a).base_url) == (("CN=new",), before.base_url)
    assert acts(service, a) == [("refuse", "ann"), ("accept", "ann"), ("describe", a)]
    assert (condition(service, a)["proposes"], refused(service.call("members", "accept", a, *WHY))) == (
        {},
        f"Error: {a} proposes nothing",
    )

    says(server, state="up")
    assert (read(service, a).result or {})["waiting"] == []  # still refused: it says the same
    assert (condition(service, a)["proposes"], listed(service, a).state) == ({}, "up")
    says(server, base_url=server.member.base_url + "/other")
    assert (read(service, a).result or {})["waiting"] == ["base_url"]
    says(server, base_url=before.base_url)
    assert (read(service, a).result or {})["waiting"] == []
    assert condition(service, a)["proposes"] == {}


def test_doctor_says_which_members_propose_changes_until_an_operator_decides(
    service: Service, members: Members
) -> None:
    a, _ = ids(members)
    says(members[0], replicate=True, subjects=("CN=new",))
    read(service, a)
    found = {one["code"]: one for one in json.loads(service.call("doctor", "--json").stdout)["findings"]}
    proposes = found["member.proposes"]
    assert (proposes["level"], proposes["thing"]) == ("warning", f"member {a}")
    assert proposes["message"] == "changes wait for an operator: 2, of replicate, subjects"
    assert proposes["fix"] == f"coordinator members accept {a} --why …  # or refuse"
    told(service.call("members", "refuse", a, *WHY))
    assert "member.proposes" not in service.call("doctor").stdout


def test_an_operator_sees_and_accepts_what_a_member_proposes_in_the_dashboard(
    service: Service, members: Members
) -> None:
    a, _ = ids(members)
    says(members[0], replicate=True, subjects=("CN=<new>",))
    read(service, a)
    env = {**service.environ, "PYTHONPATH": str(ROOT)}  # with all that FastAPI loads
    with Command(service.folder / "pages", "dashboard", "--port", "0", "--token", TOKEN, env=env) as pages:
        pages.says("token=")
        url = pages.out.split()[-1].partition("/?")[0]
        login = {"Authorization": f"Bearer {TOKEN}"}
        text = httpx.get(f"{url}/member?id={a}", headers=login, timeout=60).text
        assert all(part in text for part in ("It proposes", "replicate", "CN=&lt;new&gt;", "/act/member-refuse"))
        assert "proposes replicate, subjects" in httpx.get(f"{url}/members", headers=login, timeout=60).text
        done = httpx.post(f"{url}/api/act/member-accept", json={"id": a, "why": "fine"}, headers=login, timeout=60)
        assert done.json()["done"].startswith(f"{a} has its own replicate, subjects"), done.text
    assert (listed(service, a).replicate, listed(service, a).subjects) == (True, ("CN=<new>",))


def test_a_proposal_upon_what_the_list_no_longer_says_is_not_taken(service: Service, members: Members) -> None:
    a, b = ids(members)
    says(members[0], replicate=True)
    read(service, a)
    new = listed(service, a).model_copy(update={"replicate": True, "subjects": ("CN=x",)})
    told(service.call(*IMPORT, document(service.folder, new, listed(service, b))))
    assert "was changed meanwhile" in refused(service.call("members", "accept", a, *WHY))
    assert (read(service, a).result or {})["waiting"] == ["subjects"]


def test_a_description_that_cannot_be_read_is_told_at_the_member_until_it_can(
    service: Service, members: Members
) -> None:
    a, _ = ids(members)
    says(members[0], replicate=True)
    read(service, a)
    members[0].hook = lambda request: failure(500, "Broken", "no words") if request.path == ("node",) else None
    assert read(service, a).state == "failed"
    reason = f"{a}: answers 500 Broken: no words ({members[0].member.base_url}/v2/node)"
    assert condition(service, a)["undescribed"] == reason
    assert f"could not be read: {reason}" in told(service.call("why", "--member", a))
    assert [*condition(service, a)["proposes"]] == ["replicate"]
    members[0].hook = lambda request: None
    read(service, a)
    assert condition(service, a)["undescribed"] is None


def test_the_subject_of_another_member_is_not_accepted(service: Service, members: Members) -> None:
    a, b = ids(members)
    says(members[1], subjects=("CN=b,DC=org",))
    read(service, b)
    told(service.call("members", "accept", b, *WHY))
    says(members[0], subjects=("cn=b, dc=org",), replicate=True)
    assert (read(service, a).result or {})["waiting"] == ["replicate", "subjects"]
    said = refused(service.call("members", "accept", a, *WHY))
    assert f"not accepted: {b} has the subject cn=b, dc=org; a subject of two members would admit neither" in said
    assert listed(service, a).subjects == ()


def test_a_schedule_that_fires_too_often_and_one_that_is_none_wait(service: Service, members: Members) -> None:
    a, _ = ids(members)
    for schedule in (HOURLY.model_copy(update={"min": "0/4"}), HOURLY.model_copy(update={"min": "99"}), None):
        says(members[0], schedule=schedule)
        assert (read(service, a).result or {})["waiting"] == ["schedule"]
    says(members[0], schedule=HOURLY.model_copy(update={"min": "0/5"}))
    assert (read(service, a).result or {})["waiting"] == []


def test_a_stranger_at_the_address_or_a_flood_of_words_changes_nothing(service: Service, members: Members) -> None:
    a, b = ids(members)
    before = service.settings.nodelist.read_bytes()
    for wrong, said in (
        ({"identifier": b}, f"describes itself as {b}"),
        ({"description": "x" * 70_000}, "65536 bytes"),
    ):
        kept = members[0].member
        says(members[0], name="Renamed", **wrong)
        job = read(service, a)
        assert (job.state, said in str(job.error)) == ("failed", True)
        members[0].member = kept
    assert service.settings.nodelist.read_bytes() == before


def test_every_approved_member_is_read_also_one_that_is_down_and_no_other(service: Service, members: Members) -> None:
    a, b = ids(members)
    says(members[0], state="down")
    read(service, a)
    told(service.call("members", "suspend", b, *WHY))
    for server in members:
        says(server, name="Renamed", state="up")
    job = service.coordinator.wait(told(service.call("members", "refresh")).split()[-1], 60)
    assert job.result == [a]
    lane = service.coordinator.lane(f"describe/{a}")
    for job_id in lane.jobs:
        service.coordinator.wait(job_id, 60)
    assert (listed(service, a).name, listed(service, a).state) == ("Renamed", "up")
    assert "unknown member urn:node:x" in refused(service.call("members", "refresh", "urn:node:x"))


def test_a_member_that_leaves_takes_its_token_and_its_proposals_along(service: Service, members: Members) -> None:
    a, _ = ids(members)
    says(members[0], replicate=True)
    read(service, a)
    told(service.call("members", "token", a, *WHY))
    entries = "from tasks.service import service; print([*service().nodelist.document.fetch().entries('kept/')])"
    assert f"kept/{a}" in json.loads(service.shell(entries).replace("'", '"'))
    told(service.call("members", "remove", a, *WHY))
    assert f"kept/{a}" not in service.shell(entries)
    assert ("make-token", "ann") in acts(service, a)
