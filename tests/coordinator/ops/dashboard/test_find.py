"""The search in the bar."""

import pytest

from coordinator import Coordinator, Entry
from tests.coordinator.ops.dashboard.conftest import Visit
from tests.harness.hand_node import Puppet

CHANCE = "0b9a7c39-1111-4222-8333-444400000039"
LONG = "report-2026-11-29T02:00:00.000-of-everything"


@pytest.fixture
def named(coordinator: Coordinator, node: Puppet) -> Coordinator:
    node.submit("tenant/acme/7", job_id=CHANCE)
    node.submit("tenant/zeta", job_id=LONG)
    node.submit("one", job_id="lone")
    coordinator.quota("api/acme", concurrency=1)
    coordinator.event("approved/7").set("yes")
    return coordinator


@pytest.mark.parametrize(
    ("q", "address"),
    [
        (CHANCE, f"/job?id={CHANCE}"),
        ("0b9a7c39…", f"/job?id={CHANCE}"),
        ("report-202…f-everything", "/job?id=report-2026-11-29T02%3A00%3A00.000-of-everything"),
        ("tenant/acme/7", "/lane?key=tenant%2Facme%2F7"),
        ("tenant/a", "/lane?key=tenant%2Facme%2F7"),
        ("api/", "/quota?name=api%2Facme"),
        ("approved/7", "/event?name=approved%2F7"),
        ("SHOP.W", "/jobs?task=shop.work"),
    ],
)
def test_a_name_or_its_begin_leads_to_its_page(named: Coordinator, visit: Visit, q: str, address: str) -> None:
    answer = visit(named).get("/find", params={"q": q})
    assert (answer.status_code, answer.headers.get("location")) == (303, address)


def test_an_id_is_found_as_the_list_shows_it(named: Coordinator, visit: Visit) -> None:
    page = visit(named).get("/jobs").text
    assert ">0b9a7c39…</a>" in page
    assert ">report-202…f-everything</a>" in page


def test_what_two_things_have_is_listed_and_what_nothing_has_leads_on(named: Coordinator, visit: Visit) -> None:
    client = visit(named)
    both = client.get("/find", params={"q": "one"})
    assert both.status_code == 200, "a lane and a node"
    assert all(link in both.text for link in ("/lane?key=one", "/node?name=one"))
    many = client.get("/find", params={"q": "tenant/"}).text
    assert all(link in many for link in ("/lanes?prefix=tenant%2F", "/lane?key=tenant%2Fzeta"))
    none = client.get("/find", params={"q": "no such thing"}).text
    assert all(link in none for link in ("/jobs?error=no+such+thing", "/jobs?text=no+such+thing"))


def test_an_entry_of_the_schedule_is_found(named: Coordinator, visit: Visit) -> None:
    named.entries.put(Entry("nightly", "0 0 2 * * ?", "shop.work", key="night"))
    assert visit(named).get("/find?q=night").headers["location"] == "/entry?name=nightly"


@pytest.mark.parametrize("q", ["*…", "[0-9]…", "\\…", "…", "x…*"])
def test_letters_that_mean_something_to_redis_mean_themselves(named: Coordinator, visit: Visit, q: str) -> None:
    page = visit(named).get("/find", params={"q": q})
    assert (page.status_code, "/job?id=" in page.text) == (200, q == "…")
