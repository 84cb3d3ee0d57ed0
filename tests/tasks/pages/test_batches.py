"""People look at items and components in the dashboard, and repair an item there."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from celery import Celery
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as Tab
from sqlalchemy import make_url

from coordinator import Coordinator, Extension, Forbidden
from coordinator.core.author import Author, Role, acting
from coordinator.ops.dashboard import Page, Pages, Query, dashboard
from coordinator.ops.dashboard.acts import acts_of
from tasks.cli.extension import batches
from tasks.components import Components, look
from tasks.pages import batches as batch_pages
from tasks.pages import members
from tests.coordinator.ops.dashboard.stage import TestClient, served
from tests.harness.browser import away_and_back, hold_sound, tab_of, watched_tab
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

EVIL = "<script>alert(1)</script>-RT1"


def press() -> Celery:
    return Celery("press", broker="memory://", set_as_current=False)


@contextmanager
def pressed(coordinator: Coordinator, data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Components]:
    """Two components, one behind the other, on no node."""
    monkeypatch.setenv("TASKS_DATA_DIR", str(data))
    components = Components(coordinator)
    components.declare("Checker", "1.0", event="Checked", past=["Data_Received"])(lambda work: None)
    components.declare("Binder", "1.0", event="Bound", past=["Checked"])(lambda work: None)
    components.coordinator.extend(batches(components))
    yield components
    components.items.engine.dispose()
    coordinator.close()
    components.app.close()


@pytest.fixture
def components(
    redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Components]:
    with pressed(Coordinator(press(), url=redis_server.url(0), prefix=prefix), tmp_path, monkeypatch) as components:
        yield components


@pytest.fixture(scope="module")
def watched(chromium: Browser) -> Iterator[tuple[Tab, list[str]]]:
    """A tab for the tests of this file, and what is written to its console."""
    with watched_tab(chromium) as one:
        yield one


@contextmanager
def forgiven(watched: tuple[Tab, list[str]]) -> Iterator[Tab]:
    """The tab, in which a browser may say what an answer of 503 is."""
    tab, wrong = watched
    yield tab
    tab.goto("about:blank")
    wrong.clear()


def visit(components: Components, role: Role = "operator") -> TestClient:
    app = dashboard(components.coordinator, auth=lambda _: Author("ann", role))
    return TestClient(app, follow_redirects=False, headers={"Sec-Fetch-Site": "same-origin"})


def act(client: TestClient, name: str, **values: str) -> str:
    """Post an act's form as a browser does; the text of the answer."""
    form = client.get(f"/act/{name}", params=values)
    token = re.findall(r'name="_token" value="(\w+)"', form.text)
    return client.post(
        f"/act/{name}", data={"_token": token[0] if token else "", "why": "the scan was dark", **values}
    ).text


def test_items_are_a_grid_of_their_events_and_a_filter_stands_in_the_address(components: Components) -> None:
    with visit(components) as client:
        assert "No item is registered" in client.get("/items").text
        for name in ("B1-RT1", EVIL):
            components.items.register(name)
            look.repair(components, "ann").add(name, "Data_Received")
        look.repair(components, "ann").add("B1-RT1", "Checked", success=False)
        grid = client.get("/items").text
        assert re.findall(r'<th scope="col">(?:<span title=")?(\w+)[<"]', grid) == [
            "Item",
            "Priority",
            "Data_Received",
            "Checked",
        ]
        assert "<script>alert(1)" not in grid
        assert re.findall(r'aria-label="(Checked: .*?)"', grid) == ["Checked: failed", "Checked: not there"]
        assert "B1-RT1" in client.get("/items?event=Checked&outcome=failed").text
        assert "No item is like this" in client.get("/items?event=Checked&outcome=succeeded").text
        wrong = client.get("/items?outcome=odd")
        assert (wrong.status_code, "outcome is one of" in wrong.text) == (400, True)
        assert client.get("/item", params={"id": EVIL}).status_code == 200
        assert client.get("/item?id=nobody").status_code == 404


def test_an_item_is_restarted_after_a_look_at_what_that_removes(components: Components) -> None:
    components.items.register("B1-RT1")
    for kind, good in (("Data_Received", True), ("Checked", False)):
        look.repair(components, "ann").add("B1-RT1", kind, success=good)
    with visit(components) as client:
        page = client.get("/item?id=B1-RT1").text
        assert "failed in the component Checker, which made Checked of it" in page
        form = client.get("/act/item-restart?id=B1-RT1").text
        assert "Checked FAILED of" in form
        assert "would remove Checked" in form
        assert "then starts Checker" in form
        assert [event.type for event in components.items.events("B1-RT1")] == ["Data_Received", "Checked"]
        assert "removed Checked FAILED of" in act(client, "item-restart", id="B1-RT1")
        assert [event.type for event in components.items.events("B1-RT1")] == ["Data_Received"]
        assert components.items.events("B1-RT1", history=True)[1].removed_why == "the scan was dark"
        assert "B1-RT1 has priority 2" in act(client, "item-priority", id="B1-RT1", priority="2")
        assert "B1-RT1 is stopped" in act(client, "item-stop", id="B1-RT1")
    assert components.items.item("B1-RT1").priority == 2
    trail = [(one.act, one.thing, one.by, one.why) for one in components.coordinator.actions()]
    assert trail[:3] == [
        (name, "item B1-RT1", "ann", "the scan was dark") for name in ("stop", "prioritise", "restart")
    ]


def test_items_and_components_are_json_too(components: Components) -> None:
    components.items.register("B1-RT1")
    look.repair(components, "ann").add("B1-RT1", "Data_Received")
    with visit(components) as client:
        assert [item["id"] for item in client.get("/api/items").json()] == ["B1-RT1"]
        assert client.get("/api/item?id=B1-RT1").json()["id"] == "B1-RT1"
        assert [event["type"] for event in client.get("/api/events?id=B1-RT1").json()] == ["Data_Received"]
        assert [one["component"] for one in client.get("/api/components").json()] == ["Checker", "Binder"]
        assert "/items" in client.get("/api/openapi.json").json()["paths"]


def test_a_viewer_sees_all_and_changes_nothing(components: Components) -> None:
    components.items.register("B1-RT1")
    with visit(components, "viewer") as client:
        assert "/act/item-stop" not in client.get("/item?id=B1-RT1").text
        assert "You may not do this" in act(client, "item-stop", id="B1-RT1")
    assert components.items.events("B1-RT1") == []


def test_a_slow_query_of_a_page_is_stopped_and_its_thread_reads_the_next_page(
    components: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.ops.dashboard.app.PATIENCE", 0.5)
    monkeypatch.setattr("coordinator.ops.dashboard.app.READERS", 1)

    def slow(_: Query) -> Page:
        with components.items.engine.connect() as connection:
            numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
            connection.exec_driver_sql(numbers)
        return Page("items.html", "Items")

    components.coordinator.extend(Extension("slow", pages=lambda: Pages([], {"/slow": slow})))
    with visit(components) as client:
        answer = client.get("/slow")
        assert (answer.status_code, "This page took too long" in answer.text) == (503, True)
        wait_until(lambda: client.get("/components").status_code == 200)


def test_each_act_of_the_service_refuses_a_viewer(components: Components) -> None:
    components.items.register("B1-RT1")
    query = Query(components.coordinator, {"id": "B1-RT1", "why": "so", "priority": "2"}, Author("vera", "viewer"))
    for act in acts_of([*members.pages().verbs, *batch_pages.pages(components).verbs]).values():
        with acting(query.author), pytest.raises(Forbidden):
            [*act.do(query)]
    assert components.coordinator.actions() == []


def test_items_and_components_are_sound_in_a_browser(components: Components, watched: tuple[Tab, list[str]]) -> None:
    app, (tab, wrong) = dashboard(components.coordinator, auth=lambda _: Author("ann")), watched
    with served(app) as address:
        hold_sound(tab, [f"{address}/items", f"{address}/components"])
        for name in ("B1-RT1", EVIL):
            components.items.register(name)
            look.repair(components, "ann").add(name, "Data_Received")
        look.repair(components, "ann").add("B1-RT1", "Checked", success=False)
        own = ("/item?id=B1-RT1", f"/item?{urlencode({'id': EVIL})}", "/component?name=Checker")
        grid = f"{address}/items"
        hold_sound(tab, [grid, *(address + path for path in own)], scrolls=[grid])
        tab.goto(f"{address}/item?id=B1-RT1")
        tab.locator(".head").get_by_text("Restart", exact=True).click()
        tab.get_by_text("would remove Checked").wait_for()
        tab.locator("dialog[open] #f-why").fill("the scan was dark")
        tab.locator("dialog[open] button:has-text('Restart')").click()
        tab.get_by_text("removed Checked").wait_for()
        tab.locator("dialog [data-close]").click()
        tab.get_by_text("removed now by ann").or_(tab.get_by_text("s ago by ann")).wait_for()
        tab.goto("about:blank")
    assert not wrong


def test_items_and_their_acts_need_no_javascript(components: Components, chromium: Browser) -> None:
    for name in ("B1-RT1", "B2-RT1"):
        components.items.register(name)
        look.repair(components, "ann").add(name, "Data_Received")
    look.repair(components, "ann").add("B1-RT1", "Checked", success=False)
    app = dashboard(components.coordinator, auth=lambda _: Author("ann"))
    with served(app) as address, tab_of(chromium, address, java_script_enabled=False) as tab:
        tab.goto("/")
        tab.get_by_role("link", name="Items").click()
        tab.locator("[name=event]").fill("Checked")
        tab.locator("[name=outcome]").select_option("failed")
        tab.get_by_role("button", name="Show").click()
        expect(tab.locator("tbody th")).to_have_text(["B1-RT1"])
        tab.get_by_role("link", name="B1-RT1").click()
        tab.locator(".head").get_by_text("Restart", exact=True).click()
        expect(tab.locator(".plan")).to_contain_text("would remove Checked")
        tab.locator("#f-why").fill("the scan was dark")
        tab.get_by_role("button", name="Restart").click()
        expect(tab.locator(".done")).to_contain_text("removed Checked")
        tab.get_by_role("link", name="Back").click()
        expect(tab.locator(".course")).to_contain_text("removed")
        tab.get_by_role("link", name="Components").click()
        tab.get_by_role("link", name="Checker").click()
        expect(tab.locator(".why")).to_contain_text("no node is alive")


def test_pages_say_that_their_database_is_silent_and_come_back(
    components: Components, watched: tuple[Tab, list[str]], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_url(database)
    with Proxy(url.port or 0) as proxy:
        monkeypatch.setenv("TASKS_DATABASE_URL", url.set(port=proxy.port).render_as_string(hide_password=False))
        components.items.register("B1-RT1")
        app = dashboard(components.coordinator, auth=lambda _: Author("ann"))
        with served(app) as address, forgiven(watched) as tab:
            pages = {f"{address}/items": "B1-RT1", f"{address}/components": "Checker"}
            away_and_back(tab, pages, "Out of reach", proxy.swallow, proxy.heal)


def test_a_silent_postgresql_holds_no_reader_for_longer_than_a_page_may_take(
    components: Components, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_url(database)
    with Proxy(url.port or 0) as proxy, visit(components) as client:
        monkeypatch.setenv("TASKS_DATABASE_URL", url.set(port=proxy.port).render_as_string(hide_password=False))
        components.items.register("B1-RT1")
        assert "B1-RT1" in client.get("/items").text
        proxy.swallow()
        answer = client.get("/items")  # else it would be a page that took too long
        assert (answer.status_code, "the database: connection timeout" in answer.text) == (503, True)


def test_components_say_that_redis_is_away_and_come_back(
    own_redis: RedisServer, watched: tuple[Tab, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items stand in the database alone."""
    with pressed(Coordinator(press(), url=own_redis.url(0), timeout=0.5), tmp_path, monkeypatch) as components:
        components.items.register("B1-RT1")
        app = dashboard(components.coordinator, auth=lambda _: Author("ann"))
        with served(app) as address, forgiven(watched) as tab:
            tab.goto(f"{address}/items")

            def take() -> None:
                own_redis.kill()
                answer = tab.goto(f"{address}/items")
                assert answer
                assert (answer.status, tab.locator("tbody th").inner_text()) == (200, "B1-RT1")

            pages = {f"{address}/components": "Checker"}
            away_and_back(tab, pages, "Redis does not answer", take, own_redis.start)


def test_components_say_what_they_work_on_or_why_they_are_idle(components: Components) -> None:
    with visit(components) as client:
        for path in ("/components", "/component?name=Checker"):
            assert "no node is alive" in client.get(path).text
        assert client.get("/component?name=Chekcer").status_code == 404
