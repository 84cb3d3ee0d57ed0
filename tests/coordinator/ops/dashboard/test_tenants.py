"""The page that says which tenant floods: its rows lead to lanes, jobs, acts, and what is below them."""

import re
from html import unescape

import pytest

from coordinator import Author, Coordinator
from coordinator.ops.search import tenants
from tests.coordinator.ops.dashboard.conftest import Visit
from tests.harness.hand_node import Puppet, sketch


@pytest.fixture
def two(node: Puppet, coordinator: Coordinator) -> Coordinator:
    """The jobs of two tenants, of which one has a quota and a weight, a failure and a paused lane."""
    coordinator.quota("tenant/*", concurrency=2, why="fair")
    coordinator.weight("acme", 3, why="they pay")
    node.submit("acme/a/0")
    node.finish(node.must_take(), "failed")
    for number in range(3):
        node.submit(f"acme/a/{number}", uses="tenant/acme")
    node.submit("beta/1")
    node.take_all()
    coordinator.pause("acme/a/2", why="so")
    return coordinator


def addresses(text: str) -> set[str]:
    return {unescape(one) for one in re.findall(r'href="([^"]*)"', text)}


def test_a_row_leads_to_what_is_below_it_to_its_lanes_and_jobs_and_to_the_acts_on_all_of_them(
    two: Coordinator, visit: Visit
) -> None:
    client = visit(two)
    page = client.get("/tenants").text
    every = "acme%2F%2A"
    assert {
        "/tenants?prefix=acme%2F", "/lanes?prefix=acme%2F&sort=waiting", f"/jobs?key={every}&state=running",
        f"/jobs?key={every}&state=bad&since=1h", f"/act/pause-all?key={every}", f"/act/resume-all?key={every}",
        "/act/weight?group=acme&weight=3", "/act/quota?name=tenant%2Facme&concurrency=2", "/quota?name=tenant%2Facme",
        "/tenants?sort=failed",
    } <= addresses(page)  # fmt: skip
    assert {
        one for one in addresses(page) if not one.startswith("/static") and client.get(one).status_code != 200
    } == set()
    below = client.get("/tenants?prefix=acme/a/&sort=prefix").text
    assert {
        "/tenants?prefix=acme%2F&sort=prefix", "/tenants?sort=prefix", "/lane?key=acme%2Fa%2F1",
        "/act/pause?key=acme%2Fa%2F1", "/act/resume?key=acme%2Fa%2F2",
    } <= addresses(below)  # fmt: skip
    assert "/act/pause?key=acme%2Fa%2F2" not in addresses(below)


def test_a_viewer_sees_the_numbers_and_no_act(two: Coordinator, visit: Visit) -> None:
    page = visit(two, Author("vera", "viewer")).get("/tenants").text
    assert ("acme/" in page, "/act/" in page) == (True, False)


def test_a_page_of_too_many_lanes_says_that_each_number_is_at_least_that(
    two: Coordinator, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = visit(two)
    assert "at least" not in client.get("/tenants").text
    monkeypatch.setattr(tenants, "_PORTION", 100)
    monkeypatch.setattr(tenants._Look, "_late", lambda *_: True)
    Puppet(two.store).lanes.submit_many(sketch(f"t{number}/x") for number in range(200))
    page = visit(two).get("/tenants").text
    assert "each number is at least that" in page
    assert "<dd>at least 20" in page


def test_what_has_no_room_is_counted_and_one_click_away(two: Coordinator, visit: Visit) -> None:
    Puppet(two.store).lanes.submit_many(sketch(f"t{number}/x") for number in range(60))
    client = visit(two)
    page = client.get("/tenants").text
    assert "and 12 more" in page
    assert "/tenants?sort=waiting&most=1000" in addresses(page)
    whole = client.get("/tenants?sort=waiting&most=1000").text
    assert ("t59/" in page, "t59/" in whole, "more<" in whole) == (False, True, False)
    listed = client.get("/api/tenants?prefix=t1&sort=prefix&most=2").json()
    assert [one["prefix"] for one in listed["tenants"]] == ["t1/", "t10/"]
    assert (listed["more"], listed["complete"]) == (9, True)
