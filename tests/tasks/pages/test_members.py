"""People look at members in the dashboard of the service, and act on one there."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from subprocess import PIPE

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import make_url

from coordinator import Coordinator
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from tasks.app import NODELIST
from tasks.documents.document import Document
from tasks.documents.replica import Replica
from tests.harness.browser import away_and_back, hold_sound, tab_of, watched_tab
from tests.harness.command import IMPORT, ROOT, Run, argv_of, environment, told
from tests.harness.hand_node import Puppet
from tests.harness.postgres import PostgresServer
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import start
from tests.tasks.conftest import RIVER, SAMPLE, document

TOKEN = "a-token-for-tests"


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis for this file: it is killed, and started again."""
    with RedisServer(tmp_path_factory.mktemp("redis"), "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture(scope="module")
def between(postgres_server: PostgresServer) -> Iterator[Proxy]:
    """Stands between the service and a PostgreSQL."""
    with Proxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def own(
    redis: RedisServer, between: Proxy, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """The environment of one service for all tests of this file."""
    data = tmp_path_factory.mktemp("data")
    with postgres_server.database() as name:
        yield {
            "COORDINATOR_URL": redis.url(0),
            "COORDINATOR_PREFIX": "members",
            "CELERY_BROKER_URL": redis.url(5),
            "TASKS_DATABASE_URL": str(make_url(postgres_server.url(name)).set(port=between.port)),
            "TASKS_DATA_DIR": str(data / "data"),
            "TASKS_REPLICA_DIR": str(data / "replicas"),
        }


@pytest.fixture
def listing(run: Run, tmp_path: Path) -> None:
    told(run(*IMPORT, document(tmp_path, *SAMPLE)))


@contextmanager
def dashboard(own: dict[str, str], folder: Path) -> Iterator[httpx.Client]:
    """That of the service, which is a process of its own."""
    argv = argv_of("dashboard", "--port", "0", "--token", TOKEN)[1:]
    with start(argv, folder, environment(**own, PYTHONPATH=str(ROOT)), stdout=PIPE) as process:
        try:
            assert process.stdout
            address = process.stdout.readline().split()[-1]
            with httpx.Client(base_url=address.partition("?")[0], timeout=60) as browser:
                browser.get(f"/?token={TOKEN}")
                yield browser
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser(own: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """At one dashboard for all tests of this file: to start one costs more than most of them."""
    with dashboard(own, tmp_path_factory.mktemp("dashboard")) as browser:
        yield browser


@pytest.fixture(scope="module")
def watched(browser: httpx.Client, chromium: Browser) -> Iterator[tuple[Page, list[str]]]:
    """A tab for the tests of this file that is logged in, and what is written to its console."""
    with watched_tab(chromium, str(browser.base_url)) as (tab, wrong):
        ours = {"Origin": str(browser.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
        tab.request.post("/login", form={"token": TOKEN, "name": "ulla"}, headers=ours)
        tab.goto("/")
        yield tab, wrong


def test_before_the_first_list_the_page_says_how_to_give_one(browser: httpx.Client) -> None:
    """It stands first: the later tests give one to the same service."""
    page = browser.get("/members")
    assert (page.status_code, 'class="nothing"' in page.text) == (200, True)
    assert "To give one: coordinator nodelist import FILE" in page.text


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


def test_who_keeps_the_list_is_not_behind_because_the_list_went_on_since_he_was_asked(
    listing: None, run: Run, own: dict[str, str], redis: RedisServer, tmp_path: Path
) -> None:
    """At a dashboard of its own, which asks who keeps the list once in half a minute."""
    store = Store(Settings(url=redis.url(0), prefix=own["COORDINATOR_PREFIX"], timeout=10))
    replica = Replica(store, NODELIST, "cn1@test", tmp_path / "cn1")
    replica.start()
    try:
        wait_until(lambda: any(one.living and one.inside for one in Document(store, NODELIST).replica_set.replicas()))
        seen = []
        with dashboard(own, tmp_path) as browser:
            for verb, why in (("suspend", "its disks are full"), ("approve", "they are not")):
                page = browser.get("/members").text
                assert ("cn1@test" in page, ">behind<" in page) == (True, False)
                seen += re.findall(r'<dt>Version</dt><dd class="mono">(\d+)', page)
                told(run("members", verb, RIVER.identifier, "--why", why))
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
        for verb, done in (("Suspend", "is suspended"), ("Approve", "is approved")):
            tab.get_by_role("link", name=verb).first.click()
            tab.locator("#f-why").wait_for()
            if tab.locator("#f-name").count():  # asked once
                tab.locator("#f-name").fill("ulla")
            tab.locator("#f-why").fill("its disks are full, or are not")
            tab.get_by_role("button", name=verb).click()
            expect(tab.locator(".done")).to_contain_text(done)
            tab.get_by_role("link", name="Back").click()
            tab.get_by_role("link", name="Approve" if verb == "Suspend" else "Suspend").first.wait_for()
            assert ("it is not approved" in tab.locator("main").inner_text()) is (verb == "Suspend")


def test_members_say_that_their_database_is_dead_and_come_back(
    listing: None, watched: tuple[Page, list[str]], between: Proxy
) -> None:
    tab, wrong = watched
    pages = {"/members": f"{len(SAMPLE)} members", f"/member?id={RIVER.identifier}": "Base URL"}
    away_and_back(tab, pages, "Out of reach", between.cut, between.heal)
    wrong.clear()  # a browser says there what an answer of 503 is


def test_a_refresh_is_followed_in_a_browser_until_redis_is_gone_and_when_it_is_back(
    listing: None, browser: httpx.Client, watched: tuple[Page, list[str]], own: dict[str, str], redis: RedisServer
) -> None:
    name, (tab, wrong) = RIVER.identifier, watched
    hold_sound(tab, ["/members", f"/member?id={name}"])
    tab.goto(f"/member?id={name}")
    tab.get_by_text("Refresh", exact=True).click()
    tab.locator("dialog[open] #f-why").fill("they asked")
    tab.locator("dialog[open] button:has-text('Refresh')").click()
    address = tab.locator("dialog .done a").get_attribute("href") or ""
    tab.locator("dialog [data-close]").click()
    with Coordinator(url=redis.url(0), prefix=own["COORDINATOR_PREFIX"]) as coordinator:
        node = Puppet(coordinator.store)
        node.up()
        node.submit(f"sync/{name}", job_id=address.rpartition("=")[2])
        taken = node.must_take()
        for done in (3, 4):
            node.lanes.progress(taken.id, taken.token, done, 10)
            tab.locator(f"p:has-text('{done} of 10')").first.wait_for()
        assert browser.get(address).status_code == 200
        redis.kill()
        tab.get_by_text("Redis does not answer").wait_for()
        redis.start()
        tab.locator("p:has-text('4 of 10')").first.wait_for()
        node.finish(taken)
    assert not [one for one in wrong if "status of 503" not in one]  # so a browser calls a Redis that is away
    wrong.clear()
