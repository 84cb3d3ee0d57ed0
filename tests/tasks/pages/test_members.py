"""People look at members in the dashboard of the service, and act on one there."""

import re
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser
from sqlalchemy import make_url

from coordinator import Coordinator
from coordinator.settings import Settings
from coordinator.store.client import Store
from tasks.app import NODELIST
from tasks.documents.document import Document
from tasks.documents.replica import Replica
from tests.harness.browser import away_and_back, hold_sound, tab_of
from tests.harness.command import ROOT, Run, argv_of, environment, told
from tests.harness.hand_node import Puppet
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.tasks.conftest import RIVER, SAMPLE, document

TOKEN = "a-token-for-tests"


@pytest.fixture
def between(database: str) -> Iterator[Proxy]:
    """Stands between the service and a PostgreSQL of its own."""
    with Proxy(make_url(database).port or 0) as proxy:
        yield proxy


@pytest.fixture
def own(own: dict[str, str], own_redis: RedisServer, request: pytest.FixtureRequest) -> dict[str, str]:
    own = own | {"COORDINATOR_URL": own_redis.url(0), "CELERY_BROKER_URL": own_redis.url(5)}
    if not hasattr(request, "param"):
        return own
    port = request.getfixturevalue("between").port
    return own | {"TASKS_DATABASE_URL": str(make_url(request.getfixturevalue("database")).set(port=port))}


@pytest.fixture
def listing(run: Run, tmp_path: Path) -> None:
    told(run("nodelist", "import", document(tmp_path, *SAMPLE)))


@pytest.fixture
def browser(own: dict[str, str], tmp_path: Path) -> Iterator[httpx.Client]:
    """At the dashboard of the service, which is a process of its own."""
    argv = argv_of("dashboard", "--port", "0", "--token", TOKEN)
    env = environment(**own, PYTHONPATH=str(ROOT))
    with subprocess.Popen(argv, env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            address = process.stdout.readline().split()[-1]
            with httpx.Client(base_url=address.partition("?")[0], timeout=60) as browser:
                browser.get(f"/?token={TOKEN}")
                yield browser
        finally:
            process.terminate()


def test_members_are_found_read_and_acted_on(listing: None, browser: httpx.Client) -> None:
    name = RIVER.identifier
    page = browser.get("/members").text
    assert f"{len(SAMPLE)} members" in page
    assert RIVER.schedule
    assert " ".join(RIVER.schedule.parts) in unescape(page)
    assert "No node or beat keeps it." in page
    found = browser.get("/members", params={"text": name.rpartition(":")[2].upper()}).text
    assert set(re.findall(r'href="/member\?id=([^"]+)"', found)) == {name.replace(":", "%3A")}
    assert "No member has this" in browser.get("/members?text=nobody").text
    assert browser.get("/api/member", params={"id": name}).json()["member"] == name
    assert len(browser.get("/api/members").json()) == len(SAMPLE)
    form = browser.get("/act/member-reset", params={"id": name}).text
    token = re.search(r'name="_token" value="(\w+)"', form)
    assert token
    sent = {"_token": token[1], "why": "a wrong base", "id": name}
    said = browser.post("/act/member-reset", data=sent, headers={"Sec-Fetch-Site": "same-origin"}).text
    assert 'class="done"' in said, said
    assert "a wrong base" in browser.get("/actions").text


def test_before_the_first_list_the_page_says_how_to_give_one(browser: httpx.Client) -> None:
    page = browser.get("/members")
    assert (page.status_code, 'class="nothing"' in page.text) == (200, True)
    assert "To give one: coordinator nodelist import FILE" in page.text


def test_who_keeps_the_list_is_not_behind_because_the_list_went_on_since_he_was_asked(
    listing: None, browser: httpx.Client, run: Run, own: dict[str, str], own_redis: RedisServer, tmp_path: Path
) -> None:
    store = Store(Settings(url=own_redis.url(0), prefix=own["COORDINATOR_PREFIX"], timeout=10))
    replica = Replica(store, NODELIST, "cn1@test", tmp_path / "cn1")
    replica.start()
    try:
        wait_until(lambda: any(one.living and one.inside for one in Document(store, NODELIST).replica_set.keepers()))
        seen = []
        for why in ("its disks are full", "they are not"):
            page = browser.get("/members").text
            assert ("cn1@test" in page, ">behind<" in page) == (True, False)
            seen += re.findall(r'<dt>Version</dt><dd class="mono">(\d+)', page)
            told(run("members", "suspend", RIVER.identifier, "--why", why))
        assert seen[0] < seen[1]
    finally:
        replica.stop()
        store.close()


def test_members_and_their_acts_need_no_javascript(listing: None, browser: httpx.Client, chromium: Browser) -> None:
    with tab_of(chromium, str(browser.base_url), java_script_enabled=False) as tab:
        tab.goto(f"/members?token={TOKEN}")
        tab.locator("[name=text]").fill(RIVER.identifier)
        tab.get_by_role("button", name="Show").click()
        tab.get_by_role("link", name=RIVER.identifier).click()
        tab.get_by_role("link", name="Suspend").click()
        tab.locator("#f-why").fill("its disks are full")
        tab.get_by_role("button", name="Suspend").click()
        assert "is suspended" in tab.locator(".done").inner_text()
        tab.get_by_role("link", name="Back").click()
        assert "it is not approved" in tab.locator("main").inner_text()
        assert tab.get_by_role("link", name="Approve").count()


@pytest.mark.parametrize("own", ["dead", "silent"], indirect=True)
def test_members_say_that_their_database_is_away_and_come_back(
    listing: None, browser: httpx.Client, chromium: Browser, between: Proxy, request: pytest.FixtureRequest
) -> None:
    silent = "silent" in request.node.name
    with chromium.new_context(base_url=str(browser.base_url)) as context:
        context.new_page().goto(f"/?token={TOKEN}")
        pages = {"/members": f"{len(SAMPLE)} members", f"/member?id={RIVER.identifier}": "Base URL"}
        away_and_back(context, pages, "Out of reach", between.swallow if silent else between.cut, between.heal)


def test_a_refresh_is_followed_in_a_browser_until_redis_is_gone(
    listing: None, browser: httpx.Client, chromium: Browser, own: dict[str, str], own_redis: RedisServer
) -> None:
    name = RIVER.identifier
    with tab_of(chromium, str(browser.base_url)) as tab:
        tab.goto(f"/?token={TOKEN}")
        for path in ("/members", f"/member?id={name}"):
            hold_sound(tab, path)
        tab.get_by_text("Refresh", exact=True).click()
        tab.locator("dialog[open] #f-why").fill("they asked")
        tab.locator("dialog[open] button:has-text('Refresh')").click()
        address = tab.locator("dialog .done a").get_attribute("href") or ""
        tab.locator("dialog [data-close]").click()
        with Coordinator(url=own_redis.url(0), prefix=own["COORDINATOR_PREFIX"]) as coordinator:
            node = Puppet(coordinator.store)
            node.up()
            node.submit(f"sync/{name}", job_id=address.rpartition("=")[2])
            taken = node.must_take()
            for done in (3, 4):
                node.lanes.progress(taken.id, taken.token, done, 10)
                tab.locator(f"p:has-text('{done} of 10')").first.wait_for()
            assert browser.get(address).status_code == 200
            own_redis.kill()
            tab.get_by_text("Redis does not answer").wait_for()
