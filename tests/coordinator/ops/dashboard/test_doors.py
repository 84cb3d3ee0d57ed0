"""The dashboard inside Flower, alone, and inside the applications of others."""

import logging
import re
import runpy
import subprocess
import threading
from pathlib import Path
from socket import gethostname
from typing import Any

import flower.views
import httpx
import pytest
from celery import Celery
from flower.urls import settings
from tornado.web import create_signed_value

from coordinator import Coordinator
from coordinator.core.celery_patches import flower as patch
from tests.coordinator.ops.dashboard.stage import TOKEN, Stage, TestClient, flowered
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import start

ROOT = Path(__file__).parents[4]


def test_flower_without_a_login_shows_pages_that_are_read_only(shop: Celery) -> None:
    with flowered(shop) as url, httpx.Client(base_url=url, follow_redirects=True, timeout=60) as browser:
        assert 'href="/coordinator/">Coordinator</a>' in browser.get("/").text
        page = browser.get("/coordinator")
        assert (page.url.path, "read only" in page.text) == ("/coordinator/", True)
        assert 'href="/workers"' in page.text
        assert "/act/" not in browser.get("/coordinator/lane?key=customer/7").text
        form = browser.get("/coordinator/act/pause?key=customer/7").text
        token = re.findall(r'name="_token" value="(\w+)"', form)[0]
        sent = {"_token": token, "key": "customer/7", "why": "so"}
        ours = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
        assert browser.post("/coordinator/act/pause", data=sent, headers=ours).status_code == 403


def test_flowers_login_is_the_pages_login_under_its_prefix(shop: Celery) -> None:
    about: dict[str, Any] = {"basic_auth": ["ulla:right"], "url_prefix": "watch"}
    with (
        flowered(shop, **about) as url,
        httpx.Client(base_url=f"{url}/watch/coordinator", auth=("ulla", "right"), timeout=60) as me,
    ):
        assert httpx.get(f"{url}/watch/coordinator/", timeout=60).status_code == 401
        assert httpx.get(f"{url}/watch/coordinator/", auth=("ulla", "wrong"), timeout=60).status_code == 401
        assert me.get("/static/dashboard.css").status_code == 200
        form = me.get("/act/quota?name=doors")
        assert ">ulla</span>" in form.text
        assert 'action="/watch/coordinator/act/quota"' in form.text
        token = re.findall(r'name="_token" value="(\w+)"', form.text)[0]
        sent = {"_token": token, "name": "doors", "why": "by a test", "concurrency": "3"}
        assert me.post("/act/quota", data=sent, headers={"Origin": "http://evil.example"}).status_code == 403
        assert "quota doors is declared" in me.post("/act/quota", data=sent, headers={"Origin": url}).text
        with me.stream("GET", "/live?at=/locks") as events:
            assert "door" in next(text for text in events.iter_lines() if "door" in text)


@pytest.mark.parametrize("user", ["ulla@example.com", "eve@example.org"])
def test_who_logged_in_at_flower_by_oauth_acts_under_that_name(shop: Celery, user: str) -> None:
    cookie = create_signed_value(settings["cookie_secret"], "user", user).decode()
    with flowered(shop, auth=".*@example.com") as url:
        answer = httpx.get(f"{url}/coordinator/lane?key=ledger", cookies={"user": cookie}, timeout=60)
    known = user == "ulla@example.com"
    assert answer.status_code == (200 if known else 302)
    assert (f">{user}</span>" in answer.text, "/act/pause" in answer.text) == (known, known)


def test_flower_hands_on_no_more_of_a_body_than_the_pages_take(shop: Celery) -> None:
    with flowered(shop) as url:
        for body in (b"x" * 100_000, iter([b"x" * 60_000] * 3)):
            ours = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
            assert httpx.post(f"{url}/coordinator/act/pause", content=body, headers=ours, timeout=60).status_code == 413


@pytest.mark.parametrize("about", [{"read_only": True}, {}])
def test_flowers_read_only_and_the_setting_operators_are_obeyed(
    redis_server: RedisServer, stage: Stage, about: dict[str, Any]
) -> None:  # fmt: skip
    app = Celery("shop", broker=redis_server.url(1), set_as_current=False)
    own = stage.coordinator.settings
    with (
        Coordinator(app, url=own.url, prefix=own.prefix, operators="" if about else "somebody"),
        flowered(app, basic_auth=["ulla:right"], **about) as url,
    ):
        assert "read only" in httpx.get(f"{url}/coordinator/", auth=("ulla", "right"), timeout=60).text


def test_a_flower_with_another_bar_has_pages_and_no_tab(
    shop: Celery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    monkeypatch.setattr(patch, "LAST_TAB", ">Gone</a>")
    with flowered(shop) as url:
        assert "Coordinator" not in httpx.get(url, timeout=60).text
        assert httpx.get(f"{url}/coordinator/", timeout=60).status_code == 200
    assert [r.levelno for r in caplog.records if "no tab" in r.getMessage()] == [logging.WARNING]


def test_a_slow_redis_does_not_stop_flower(shop: Celery, own_redis: RedisServer) -> None:
    app = Celery("slow", broker=own_redis.url(1), set_as_current=False)
    with Coordinator(app, url=own_redis.url(0), timeout=5) as coordinator, flowered(app) as url:
        coordinator.counts()
        own_redis.pause()
        try:
            waiting = threading.Thread(target=httpx.get, args=(f"{url}/coordinator/",), kwargs={"timeout": 30})
            waiting.start()
            assert httpx.get(f"{url}/coordinator/static/icon.svg", timeout=2).status_code == 200
        finally:
            own_redis.resume()
            waiting.join()


@pytest.mark.parametrize("name", ["in_fastapi", "in_starlette"])
def test_another_application_has_it_under_a_path(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:  # fmt: skip
    own = stage.coordinator.settings
    monkeypatch.setenv("COORDINATOR_URL", own.url)
    monkeypatch.setenv("COORDINATOR_PREFIX", own.prefix)
    app = runpy.run_path(str(ROOT / f"examples/mounted/{name}.py"))["app"]
    client = TestClient(app, base_url="http://localhost")
    assert client.get("/coordinator/lanes").status_code == 401
    if name == "in_fastapi":
        client.cookies.set("session", "look")
    else:
        client.get(f"/coordinator/?token={caplog.records[-1].getMessage().rpartition(' ')[2]}")
    page = client.get("/coordinator/lanes").text
    assert 'href="/coordinator/lane?key=customer%2F7"' in page
    assert ("read only" in page) is (name == "in_fastapi")
    assert client.get("/coordinator/api/counts").status_code == 200
    assert client.get("/elsewhere").status_code == 404


def test_the_command_serves_pages_alone_and_ends_by_a_signal(redis_server: RedisServer, prefix: str) -> None:
    env = {"COORDINATOR_URL": redis_server.url(0), "COORDINATOR_PREFIX": prefix, "PATH": ""}
    argv = ["-m", "coordinator", "dashboard", "--port", "0", "--token", TOKEN]
    with start(argv, ROOT, env, stdout=subprocess.PIPE) as process:
        assert process.stdout
        url = process.stdout.readline().split()[-1]
        with httpx.Client(follow_redirects=True, timeout=60) as browser:
            wait_until(lambda: browser.get(url).status_code == 200)
            assert "Overview" in browser.get(url).text
        with redis_server.client() as looks:
            names = {one["name"] for one in looks.client_list()}
        process.terminate()
        assert process.wait(60) in (0, -15)
    assert f"coordinator:dashboard:{gethostname()}" in names


def test_flowers_own_login_is_asked_by_the_name_that_we_use() -> None:
    assert callable(flower.views.BaseHandler.get_current_user)
