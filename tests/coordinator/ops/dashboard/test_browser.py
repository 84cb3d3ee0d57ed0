"""The dashboard as people meet it: in a real Chromium."""

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest
from celery import Celery
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from coordinator import Coordinator
from coordinator.core.author import Author
from coordinator.ops.dashboard import dashboard
from coordinator.ops.dashboard.views import VIEWS
from coordinator.scheduler.entry import Entry
from tests.coordinator.ops.dashboard.stage import EVIL, PAGES, TOKEN, Stage, flowered, served
from tests.harness.browser import STILL, hold_sound, serious, watched_tab
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

LOGIN = {"username": "ulla", "password": "right"}


@pytest.fixture(scope="module")
def url(stage: Stage) -> Iterator[str]:
    with served(dashboard(stage.coordinator, token=TOKEN)) as address:
        yield address


@pytest.fixture(scope="module")
def tab(chromium: Browser, url: str) -> Iterator[tuple[Page, list[str]]]:
    """One that is logged in, and what is written to its console: a new one costs more than most tests do in it, and one
    in a context of its own twice as much.
    """
    with watched_tab(chromium, url, timezone_id="Asia/Tokyo", http_credentials=LOGIN) as (page, wrong):
        ours = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
        page.request.post("/login", form={"token": TOKEN, "name": "ulla"}, headers=ours)
        page.goto("/")
        yield page, wrong


@pytest.fixture
def page(tab: tuple[Page, list[str]]) -> Iterator[Page]:
    """The tab; a test writes nothing to its console."""
    page, wrong = tab
    yield page
    assert not wrong


def test_each_page_is_sound_wide_and_narrow_light_and_dark(page: Page) -> None:
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    hold_sound(page, [*PAGES, f"/lane?{urlencode({'key': EVIL})}"])
    assert page.request.get("/nope").status == 404


def look_through(address: str, ours: str) -> None:
    """Each page answers, and leads only to what is below this path."""
    with httpx.Client(base_url=address, auth=("ulla", "right"), timeout=20) as client:
        for path in [*(one for one in PAGES if one != "/refused")]:
            answer = client.get(path)
            assert (answer.status_code, PAGES[path] in answer.text) == (200, True), path
            leads = re.findall(r'(?:href|src|action|hx-\w+)="(/[^"]*)"', answer.text)
            assert {one for one in leads if not one.startswith(ours)} == set(), path
            assert leads, path


@pytest.mark.parametrize("door", ["flower", "mounted"])
def test_pages_and_acts_work_below_a_path(page: Page, shop: Celery, stage: Stage, door: str) -> None:
    """In Flower with a login and a prefix, and in an application of others."""
    mounted = Starlette(routes=[Mount("/at/home", dashboard(shop.coordinator, auth=lambda _: Author("ulla")))])
    served_by = flowered(shop, basic_auth=["ulla:right"], url_prefix="watch") if door == "flower" else served(mounted)
    below, ours = ("/watch/coordinator", "/watch/") if door == "flower" else ("/at/home", "/at/home/")
    with served_by as site:
        look_through(site + below, ours)
        page.goto(f"{site}{below}/lane?key=door")
        assert not serious(page)
        page.locator("[data-pulse]:has-text('live')").wait_for()
        page.locator("main a:has-text('Pause')").click()
        page.locator("dialog[open] #f-why").fill("by ulla")
        page.locator("dialog[open] button:has-text('Pause')").click()
        page.locator("dialog .done").wait_for()
        pause = stage.coordinator.lane("door").pause
        assert pause
        assert pause["by"] == "ulla"
        stage.coordinator.resume("door")
        page.goto("about:blank")  # else it would say that this server has ended


def test_instants_are_the_viewers_and_utc_on_hover(page: Page) -> None:
    page.goto("/entry?name=nightly")
    first = page.locator("time:not(.ago)").first
    expect(first).to_contain_text("11:00:00")  # 02:00 UTC in Tokyo
    assert "02:00:00Z" in (first.get_attribute("title") or "")


def test_an_instant_on_a_page_is_taken_by_a_filter_as_it_is_shown(page: Page, stage: Stage) -> None:
    page.goto(f"/job?id={stage.run}")
    ended = page.locator("ol.course time:not(.ago)").first.text_content() or ""
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", ended)
    page.goto("/jobs?key=till")
    page.fill("[name=since]", ended)
    page.click("form.filter button")
    page.wait_for_url(re.compile("since=.*Z"))
    expect(page.locator("form.filter [name=since]")).to_have_value(ended)
    expect(page.locator(f'th a[title="{stage.run}"]')).to_have_count(1)


def test_one_zone_is_chosen_for_what_is_shown_and_typed_and_is_remembered(page: Page, stage: Stage) -> None:
    page.goto("/entry?name=nightly")
    shown = page.locator("time:not(.ago)").first
    page.get_by_label("Time zone").select_option("UTC")
    expect(shown).to_contain_text("02:00:00")
    page.goto("/jobs")
    expect(page.get_by_label("Time zone")).to_have_value("UTC")
    page.fill("[name=since]", "00:00")
    page.fill("[name=until]", "2030-01-01 10:00")
    page.click("form.filter button")
    page.wait_for_url(re.compile("since=.*T00%3A00%3A00.000Z.*until=2030-01-01T10%3A00%3A00.000Z"))
    page.get_by_label("Time zone").select_option("local")
    expect(page.locator("form.filter [name=until]")).to_have_value("2030-01-01 19:00:00")  # in Tokyo
    page.fill("[name=since]", "today")
    page.click("form.filter button")
    page.wait_for_url(re.compile("since=.*T15%3A00%3A00.000Z"))
    expect(page.locator("td time.ago").first).to_have_attribute("title", re.compile("."))


def test_a_server_in_a_zone_of_its_own_may_be_followed(
    page: Page, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    coordinator.entries.put(Entry("nightly", "0 0 2 1 7 ?", "shop.work"))
    with served(dashboard(coordinator, auth=lambda _: Author("ulla"))) as address:
        page.goto(f"{address}/entry?name=nightly")
        page.get_by_label("Time zone").select_option("server")
        expect(page.locator("time:not(.ago)").first).to_contain_text("06-30 22:00:00")
        page.goto("about:blank")


def test_a_chart_shows_the_last_hour_or_day_and_large_numbers_whole(page: Page) -> None:
    minutes = [1_790_000_000 + 60 * number for number in range(1440)]
    series = [[5.0] * 1380 + [1_234_567.0] * 60, [1.0] * 1440]
    chart = {"labels": [["ended a minute", "succeeded"], ["failed a minute", "failed"]], "columns": [minutes, *series]}
    page.route("**/api/chart", lambda route: route.fulfill(json=chart))
    page.goto("/")
    plot = page.locator(".chart .u-over")
    plot.wait_for()
    assert plot.evaluate("one => one.offsetLeft") >= 80  # 1,200,000
    ranges = page.get_by_role("group", name="The last").get_by_role("button")
    expect(ranges).to_have_text(["1 h", "6 h", "1 d"])
    plot.hover(position={"x": 3, "y": 10})
    begun = page.locator(".u-legend .u-value").first.inner_text()
    ranges.first.click()
    expect(ranges.first).to_have_attribute("aria-pressed", "true")
    plot.hover(position={"x": 4, "y": 10})
    assert page.locator(".u-legend .u-value").first.inner_text()[:10] > begun[:10]
    page.reload()
    expect(ranges.first).to_have_attribute("aria-pressed", "true")
    page.unroute("**/api/chart")


def test_a_telephone_says_who_holds_a_lane_and_why_a_job_failed(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 780})
    page.goto("/lanes")
    row = page.locator("tr:has(a[title='customer/7'])")
    expect(row.get_by_role("link", name="n1@alpha")).to_be_visible()
    page.goto("/locks")
    expect(page.locator("tr:has(a[title='door']) td a.id")).to_be_visible()
    page.goto("/jobs?state=held")
    expect(page.get_by_text("Lost").first).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 800})


def test_a_form_is_closed_and_only_what_it_does_is_called_so(page: Page, stage: Stage) -> None:
    page.goto(f"/job?id={stage.jobs[1]}")
    page.locator("main a.button:text-is('Cancel job')").first.click()
    page.locator("dialog[open]").wait_for()
    assert page.locator("dialog .buttons > *").all_inner_texts() == ["Cancel job", "Close"]
    page.locator("dialog").get_by_text("Close", exact=True).click()
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_an_act_opens_above_the_page_and_others_see_it(page: Page, stage: Stage) -> None:
    other = page.context.new_page()
    for tab in (page, other):
        tab.goto("/lane?key=door")
        tab.locator("[data-pulse]:has-text('live')").wait_for()
    page.get_by_text("Pause", exact=True).click()
    page.locator("dialog[open] #f-why").fill("two of us")
    page.locator("dialog[open] button:has-text('Pause')").click()
    page.locator("dialog .done").wait_for()
    assert stage.coordinator.lane("door").paused
    other.get_by_text("two of us").wait_for()
    page.locator("dialog [data-close]").click()
    expect(page.locator("dialog[open]")).to_have_count(0)
    other.close()
    stage.coordinator.resume("door")


def test_what_is_wrong_with_an_act_is_said_where_it_was_begun(tab: tuple[Page, list[str]]) -> None:
    page, wrong = tab
    page.goto("/quota?name=licence")
    page.get_by_text("Change", exact=True).click()
    page.locator("dialog[open] #f-concurrency").fill("many")
    page.locator("dialog[open] #f-why").fill("so")
    page.locator("dialog button:has-text('Declare quota')").click()
    page.locator("dialog[open] [role=alert]:has-text('whole number')").wait_for()
    assert page.locator("dialog #f-why").input_value() == "so"
    page.locator("dialog #f-concurrency").fill("2")
    page.locator("dialog button:has-text('Declare quota')").click()
    page.locator("dialog .done").wait_for()
    page.locator("dialog [data-close]").click()
    page.evaluate(  # in one turn: a live page may put the link back as it was
        "link = document.querySelector('main [href*=\"act/quota\"]');"
        "link.setAttribute('hx-get', '/act/cancel?id=nobody'); link.click()"
    )
    page.locator("dialog[open]:has-text('Not there')").wait_for()
    page.locator("dialog [data-close]").click()
    expect(page.locator("dialog[open]")).to_have_count(0)
    assert [re.findall(r"status of (\d+)", one) for one in wrong] == [["400"], ["404"]]  # a browser writes these
    wrong.clear()


def test_all_of_it_works_without_javascript(chromium: Browser, url: str, stage: Stage) -> None:
    with chromium.new_context(java_script_enabled=False, base_url=url, **STILL) as context:
        tab = context.new_page()
        tab.goto("/lane?key=stock")
        tab.locator("#token").fill(TOKEN)
        tab.locator("#name").fill("ulla")
        tab.get_by_text("Log in").click()
        assert "key=stock" in tab.url
        tab.get_by_text("Resume", exact=True).first.click()
        tab.locator("#f-why").fill("counted")
        tab.locator("button:has-text('Resume')").click()
        assert "stock goes on." in tab.locator(".done").inner_text()
        assert not stage.coordinator.lane("stock").paused
        tab.get_by_text("Lanes", exact=True).click()
        tab.locator("input[name=prefix]").fill("custo")
        tab.get_by_text("Show").click()
        assert "prefix=custo" in tab.url
        expect(tab.locator("tbody tr")).to_have_count(1)
        tab.get_by_text("Log out").click()
        tab.locator("#token").wait_for()
        tab.goto(f"/lane?key=stock&token={TOKEN}")
        tab.get_by_text("Pause", exact=True).first.click()
        tab.locator("#f-name").fill("ann")
        tab.locator("#f-why").fill("it is counted")
        tab.locator("button:has-text('Pause')").click()
        pause = stage.coordinator.lane("stock").pause
        assert pause
        assert pause["by"] == "ann", "who came by the address is asked at the first act"
    stage.coordinator.pause("stock", why="it is counted", by="ulla")


def test_jobs_are_ticked_and_stay_so_while_the_page_is_live(page: Page, coordinator: Coordinator, node: Puppet) -> None:
    for number in range(4):
        node.submit(f"k/{number}", job_id=f"job {number}")
    app = dashboard(coordinator, auth=lambda _: Author("ulla"))
    with served(app) as address:
        page.goto(f"{address}/jobs?key=k/*")
        for number in (0, 2):
            page.check(f"[aria-label='Tick job {number}']")
        node.submit("k/9", job_id="job 9")
        page.wait_for_selector("text=job 9")  # which came by the event stream
        ticked = page.locator("[name=ids]:checked").all()
        assert [box.get_attribute("value") for box in ticked] == ["job 0", "job 2"]
        page.select_option("[name=which]", "others")
        page.click("[formaction='/act/cancel-all']")
        assert "but not job 0 or job 2" in page.inner_text("#act")
        page.fill("#f-why", "so")
        page.click("#act button")
        page.wait_for_selector("text=Done, on 3 jobs.")
        page.goto("about:blank")
    assert [job.id for job in coordinator.jobs(state="cancelled").jobs] == ["job 9", "job 3", "job 1"]
    assert [job.id for job in coordinator.jobs(state="ready").jobs] == ["job 0", "job 2"]


def test_the_keyboard_finds_and_goes(page: Page, stage: Stage) -> None:
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("n")
    page.wait_for_url("**/nodes")
    for name in ("lanes", "locks", "lanes"):  # two pages begin with it
        page.keyboard.press("g")
        page.keyboard.press("l")
        page.wait_for_url(f"**/{name}")
    page.keyboard.press("/")
    page.keyboard.type(stage.jobs[1])
    page.keyboard.press("Enter")
    page.wait_for_url("**/job?id=*")


def test_each_page_of_an_empty_installation_is_sound(page: Page, coordinator: Coordinator) -> None:
    app = dashboard(coordinator, auth=lambda _: Author("ulla"))
    with served(app) as address:
        pages = [
            f"{address}{path}" for path in sorted(set(VIEWS) - {"/lane", "/job", "/node", "/entry", "/quota", "/event"})
        ]
        hold_sound(page, pages)
        assert page.locator(".columns:has(.nothing)").count() == len(pages)
        page.goto("about:blank")


def test_a_tab_rests_while_it_is_hidden(page: Page) -> None:
    page.goto("/locks")
    page.locator("[data-pulse]:has-text('live')").wait_for()
    hide = "h => { Object.defineProperty(document, 'hidden', {value: h, configurable: true}); "
    hide += "document.dispatchEvent(new Event('visibilitychange')) }"
    looks: list[str] = []
    page.on("requestfailed", lambda request: looks.append(request.url))
    page.on("requestfinished", lambda request: looks.append(request.url))
    page.evaluate(hide, True)
    wait_until(lambda: page.wait_for_timeout(50) or any("/live" in look for look in looks))
    with page.expect_request("**/live*"):
        page.evaluate(hide, False)
    page.locator("[data-pulse]:has-text('live')").wait_for()


def test_a_page_says_that_redis_is_gone_and_comes_back_by_itself(page: Page, own_redis: RedisServer) -> None:
    with Coordinator(url=own_redis.url(0), timeout=0.5) as coordinator:
        coordinator.pause("stock", why="so")
        with served(dashboard(coordinator, auth=lambda _: Author("ulla"))) as address:
            page.goto(f"{address}/lanes")
            page.locator("[data-pulse]:has-text('live')").wait_for()
            own_redis.kill()
            page.get_by_text("Redis does not answer").wait_for()
            own_redis.start()
            wait_until(lambda: coordinator.lane("stock").paused)
            page.locator("tbody").get_by_text("stock").wait_for()
            page.goto("about:blank")
