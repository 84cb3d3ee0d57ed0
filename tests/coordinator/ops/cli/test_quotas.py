"""The commands that declare and show quotas, and a submit that uses one."""

from collections.abc import Iterator

import pytest

from coordinator import Coordinator
from tests.harness.command import Call, loaded, refused, told
from tests.harness.hand_node import Puppet

WHY = ("--why", "fair", "--by", "ann")


@pytest.fixture
def busy(node: Puppet, coordinator: Coordinator) -> Iterator[Coordinator]:
    """A quota of one unit, which one job uses, and for which two wait."""
    coordinator.quota("api/acme", concurrency=1, by="ann", why="fair")
    coordinator.quota("tenant/*", rate="100/m", by="ann")
    node.submit("one", job_id="one", uses="api/acme")
    taken = node.must_take()
    for job_id in ("two", "three"):
        node.submit(job_id, job_id=job_id, uses={"api/acme": "all" if job_id == "three" else 1})
    yield coordinator
    coordinator.drop_quota("api/acme")
    node.finish(taken)
    assert node.order() == ["two", "three"]


def test_a_quota_is_declared_once(call: Call) -> None:
    bounds = ("--concurrency", "1", "--rate", "1000000/s", "--burst", "1000000")
    declared = told(call("quota", "api/acme", *bounds, *WHY))
    assert declared == "quota api/acme is declared"
    assert told(call("quota", "api/acme", *bounds, *WHY)) == "quota api/acme was declared so before"
    wrong = refused(call("quota", "api/acme", *WHY))
    assert wrong == "Error: quota 'api/acme': give --concurrency N, --rate 100/m, or both"


def test_an_error_about_a_quota_speaks_the_words_of_the_command_line(call: Call, busy: Coordinator) -> None:
    unknown = "nobody declared the quota 'api/acne' (did you mean 'api/acme'?)"
    declare = "coordinator quota api/acne --concurrency N --why … does"
    assert refused(call("quotas", "api/acne")) == f"Error: {unknown}: {declare}"
    looked = call("quota", "api/acme")
    assert looked.exit_code == 2
    assert "Missing option '--why'; quota declares one; to look at one: coordinator quotas NAME" in looked.stderr


def test_quotas_and_defaults_are_listed_and_one_is_shown_with_its_users_and_its_queue(
    call: Call, busy: Coordinator
) -> None:
    heads, row, _, title, names, default = told(call("quotas")).splitlines()
    assert heads.split()[:5] == ["QUOTA", "USED", "OF", "RATE", "WAITING"]
    assert row.split()[:5] == ["api/acme", "1", "1", "-", "2"]
    assert "by ann 20" in row
    assert (title, names.split()) == ("defaults", ["NAMES", "HAVE", "DECLARED"])
    assert default.startswith("tenant/*  100/m, burst 1  by ann 20")
    whole = told(call("quotas", "api/acme"))
    for line in (
        "bounds    1 at once",
        "used      1",
        "free      0",
        "waiting   2",
        "one      1  running  one",
        "    1  two    1",
        "    2  three  all",
    ):
        assert line in whole, whole
    shown = loaded(call("quotas", "show", "api/acme", "--json"))
    assert (shown["quota"]["used"], [one["job_id"] for one in shown["users"]]) == (1, ["one"])
    assert [(one["job_id"], one["units"]) for one in shown["queue"]] == [("two", 1), ("three", "all")]
    listed = loaded(call("quotas", "--json", "--prefix", "api/"))
    assert ([one["name"] for one in listed["quotas"]], listed["after"]) == (["api/acme"], None)
    assert [one["name"] for one in listed["defaults"]] == ["tenant/*"]


def test_a_quota_is_raised_cooled_down_and_dropped(call: Call, busy: Coordinator) -> None:
    dry = told(call("quota", "api/acme", "--concurrency", "2", *WHY, "--dry-run"))
    assert "quota api/acme  1 at once  2 at once" in dry
    assert dry.endswith("starts then: two")
    assert told(call("cool-down", "api/acme", "--until", "60", *WHY)) == "quota api/acme starts nothing until 60"
    assert "cools down  for in 60 s" in told(call("quotas", "api/acme")).replace("59 s", "60 s")
    assert told(call("cool-down", "api/acme", *WHY)) == "quota api/acme goes on"
    assert "two waits for 1 unit of quota api/acme: 0 free, 1 used by one" in told(call("why", "two"))
    assert told(call("drop-quota", "api/acme", *WHY)).startswith("quota api/acme is dropped")


def test_groups_are_weighed_and_the_weights_listed(call: Call) -> None:
    assert told(call("weight", "acme", "3", *WHY)) == "group acme has weight 3, 1 before"
    assert told(call("quotas", "weights")).splitlines()[1].split() == ["acme", "3.0"]
    assert loaded(call("quotas", "weights", "--json"))["weights"] == [{"group": "acme", "weight": 3.0}]
    assert "no group is named 'acme/1'" in refused(call("weight", "acme/1", "2", *WHY))
    told(call("weight", "acme", "1", *WHY))


def test_a_job_that_uses_a_quota_is_submitted_without_a_key(call: Call, node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("licence", concurrency=3)
    coordinator.quota("api=v2", concurrency=1)
    uses = ("--uses", "licence=2", "--uses", "api=v2")
    assert told(call("submit", "shop.work", "--id", "j", *uses, "--if-unknown", "wait")) == "j is in front"
    job = coordinator.job("j")
    assert (job.keys, {name: use.units for name, use in job.uses.items()}) == ((), {"api=v2": 1, "licence": 2})
    assert "uses       api=v2, licence: 2" in told(call("job", "j"))
    told(call("submit", "k", "shop.work", "--id", "all", "--uses", "licence=all", "--if-unknown", "wait"))
    assert coordinator.job("all").uses["licence"].units == "all"
    rows = told(call("jobs")).splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [["j", "ready"], ["all", "ready"]]
    for job_id in ("j", "all"):
        coordinator.cancel(job_id)
    assert "nobody declared quota nobodys" in told(call("drop-quota", "nobodys", *WHY))
    assert "nobody declared the quota 'licenc' (did you mean 'licence'?)" in refused(call("quotas", "licenc"))
