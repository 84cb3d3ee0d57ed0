"""Who comes in, and what is refused."""

import re
import socket
import threading
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from celery import Celery

from coordinator import Coordinator
from coordinator.core.author import Author
from coordinator.errors import SettingsError
from coordinator.local.prompt import Prompt
from coordinator.ops.dashboard import Page, Pages, Query, dashboard, from_proxy
from coordinator.ops.dashboard.app import READERS
from coordinator.ops.dashboard.login import TokenLogin
from coordinator.ops.extension import Extension
from tests.coordinator.conftest import ClientAt
from tests.coordinator.ops.dashboard.conftest import Visit
from tests.coordinator.ops.dashboard.stage import TOKEN, TestClient, served
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

OURS = {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}
PAUSE = "/act/pause?key=stock"


def form_token(client: TestClient) -> str:
    found = re.search(r'name="_token" value="(\w+)"', client.get(PAUSE).text)
    assert found
    return found[1]


@pytest.fixture
def browser(coordinator: Coordinator) -> TestClient:
    """Has no token yet."""
    return TestClient(dashboard(coordinator, token=TOKEN, hosts=["testserver"]), follow_redirects=False)


@pytest.mark.parametrize("path", ["/", "/lanes?state=held", "/live?at=/", "/api/counts", PAUSE])
def test_nobody_comes_in_without_the_token(browser: TestClient, path: str) -> None:
    assert browser.get(path).status_code == 401
    assert browser.get("/static/dashboard.css").status_code == 200


def test_the_token_in_the_address_logs_in_once_and_leaves_the_address(browser: TestClient) -> None:
    answer = browser.get(f"/lanes?state=held&token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/lanes?state=held")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert browser.get("/lanes").status_code == 200
    browser.post("/logout", headers=OURS)
    assert browser.get("/lanes").status_code == 401


def test_the_form_logs_in_and_leads_only_to_our_own_pages(browser: TestClient) -> None:
    answer = browser.post("/login", data={"token": TOKEN, "to": "//evil.example/"}, headers=OURS)
    assert answer.headers["location"] == "/"
    assert browser.get("/lanes").status_code == 200


def test_a_forged_session_is_none(browser: TestClient) -> None:
    name = browser.get(f"/?token={TOKEN}").headers["set-cookie"].partition("=")[0]
    browser.cookies.clear()
    browser.cookies.set(name, "99999999999." + "0" * 64)
    assert browser.get("/").status_code == 401


def test_a_session_of_a_version_without_names_is_over(browser: TestClient) -> None:
    login = TokenLogin(TOKEN)
    browser.cookies.set(login.cookie, f"99999999999.{login._sign('99999999999')}")
    assert browser.get("/").status_code == 401


def test_the_right_token_is_let_in_whoever_guesses_behind_its_address(browser: TestClient) -> None:
    for _ in range(10):
        assert browser.post("/login", data={"token": "wrong"}, headers=OURS).status_code == 401
    right = browser.get("/", headers={"Authorization": f"Bearer {TOKEN}"})
    assert right.status_code == 200
    assert browser.post("/login", data={"token": TOKEN}, headers=OURS).status_code == 303


def test_a_token_that_somebody_may_guess_is_refused(coordinator: Coordinator) -> None:
    with pytest.raises(SettingsError, match="has 6 characters: give 16 at least"):
        dashboard(coordinator, token="secret")


def test_a_name_that_is_not_this_machines_is_refused(coordinator: Coordinator) -> None:
    client = TestClient(dashboard(coordinator, token=TOKEN), base_url="http://rebound.example")
    assert client.get(f"/?token={TOKEN}").status_code == 421
    ours = TestClient(dashboard(coordinator, token=TOKEN), base_url="http://127.0.0.1:5556")
    assert ours.get(f"/?token={TOKEN}").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_a_form_from_elsewhere_does_nothing(
    coordinator: Coordinator, visit: Visit, headers: dict[str, str]
) -> None:  # fmt: skip
    client = visit(coordinator, Author("ulla"), Accept="text/html")
    sent = {"_token": form_token(client), "key": "stock", "why": "so"}
    assert client.post("/act/pause", data=sent, headers=headers).status_code == 403
    assert not coordinator.lane("stock").paused


@pytest.mark.parametrize("token", ["", "0" * 64, "ü"])
def test_a_form_with_a_forged_token_does_nothing(coordinator: Coordinator, visit: Visit, token: str) -> None:
    client = visit(coordinator, Author("ulla"), Accept="text/html")
    form_token(client)
    sent = {"_token": token, "key": "stock", "why": "so"}
    assert client.post("/act/pause", data=sent, headers=OURS).status_code == 403
    assert not coordinator.lane("stock").paused


def test_the_token_of_another_browser_does_nothing(coordinator: Coordinator, visit: Visit) -> None:
    stolen = form_token(visit(coordinator, Author("ulla"), Accept="text/html"))
    other = visit(coordinator, Author("ulla"), Accept="text/html")
    form_token(other)
    sent = {"_token": stolen, "key": "stock", "why": "so"}
    assert other.post("/act/pause", data=sent, headers=OURS).status_code == 403


def test_nothing_acts_by_get(coordinator: Coordinator, visit: Visit) -> None:
    visit(coordinator).get("/act/pause?key=stock&why=so")
    assert not coordinator.lane("stock").paused


def test_an_operator_acts_under_his_name_and_a_viewer_does_not(coordinator: Coordinator, visit: Visit) -> None:
    def pause(author: Author) -> int:
        client = visit(coordinator, author, Accept="text/html")
        sent = {"_token": form_token(client), "key": "stock", "why": "so"}
        page = client.post("/act/pause", data=sent, headers=OURS).status_code
        spoken = client.post(
            "/api/act/pause", json={"key": "stock", "why": "so"}, headers=OURS | {"X-Coordinator-Token": sent["_token"]}
        ).status_code
        assert page == spoken
        return page

    assert pause(Author("vera", "viewer")) == 403
    assert not coordinator.lane("stock").paused
    assert pause(Author("ulla")) == 200
    found = coordinator.lane("stock").pause
    assert found
    assert (found["by"], found["why"]) == ("ulla", "so")
    coordinator.resume("stock")


def test_only_the_named_proxy_says_who_asks(coordinator: Coordinator) -> None:
    def status(proxies: list[str], **headers: str) -> int:
        app = dashboard(coordinator, auth=from_proxy("X-User", proxies))
        return TestClient(app, client=("10.0.0.5", 1)).get("/", headers=headers).status_code

    assert status(["10.0.0.5"], **{"X-User": "ulla"}) == 200
    assert status(["10.0.0.5"]) == 401
    assert status(["10.0.0.6"], **{"X-User": "ulla"}) == 401


def test_only_the_operators_of_a_proxy_act() -> None:
    class Request:
        headers = {"X-User": "vera"}  # noqa: RUF012
        client = type("Client", (), {"host": "::1"})

    assert from_proxy("X-User", ["::1"], ["ulla"])(Request()) == Author("vera", "viewer")  # type: ignore[arg-type]


def test_an_auth_of_the_users_own_may_be_async(coordinator: Coordinator) -> None:
    async def auth(request: object) -> Author | None:
        return None

    assert TestClient(dashboard(coordinator, auth=auth)).get("/").status_code == 401


@pytest.mark.parametrize("path", ["/", "/lane", "/nope", "/api/counts", "/static/dashboard.js", "/live?at=/nope"])
def test_each_answer_says_what_browsers_may_do_with_it(coordinator: Coordinator, visit: Visit, path: str) -> None:
    headers = visit(coordinator).get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


def test_requests_are_bounded(coordinator: Coordinator, visit: Visit) -> None:
    client = visit(coordinator)
    assert client.post("/act/pause", content=b"x" * 100_000).status_code == 413
    assert client.get("/lanes?prefix=" + "x" * 3000).status_code == 400
    assert client.request("DELETE", "/lanes").status_code == 405
    many = "&".join(f"f{n}=1" for n in range(200))
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/act/pause", content=many, headers=kind).status_code == 400


def test_a_token_that_was_not_named_is_written_to_the_log(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    app = dashboard(coordinator, hosts=["testserver"])
    token = caplog.records[-1].getMessage().rpartition(" ")[2]
    assert TestClient(app).get("/", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_a_basic_login_of_another_app_is_no_token(coordinator: Coordinator, visit: Visit) -> None:
    basic = b64encode(f"ulla:{TOKEN}".encode()).decode()
    assert visit(coordinator, Authorization=f"Basic {basic}").get("/").status_code == 401


@pytest.mark.parametrize(
    ("header", "value"),
    [("Host", "["), ("Host", "a:b:c"), ("Host", "[::1"), ("Origin", "http://["), ("Origin", "http://a:x"),
     ("Cookie", "{}=é.é"), ("Cookie", "{}=²." + "0" * 64), ("Cookie", "coordinator_form=" + "é" * 30),
     ("Authorization", "Bearer é"), ("Authorization", "é"), ("Sec-Fetch-Site", "é"), ("Content-Type", "é")],
)  # fmt: skip
@pytest.mark.parametrize("own", [False, True])
def test_nothing_in_a_header_makes_the_door_fail(coordinator: Coordinator, own: bool, header: str, value: str) -> None:
    login = TokenLogin(TOKEN)
    auth = (lambda _: Author("vera")) if own else None
    client = TestClient(dashboard(coordinator, auth=auth, token=TOKEN, hosts=["testserver"]), follow_redirects=False)
    sent = {"Origin": "http://testserver"} | {header: value.format(login.cookie).encode("latin-1")}
    form = b"_token=%ed%a0%80&why=so"
    answers = [client.get("/", headers=sent), client.post("/act/pause", headers=sent, content=form)]
    assert {answer.status_code for answer in answers} <= {200, 401, 403, 421}


def test_idle_connections_shut_nobody_out(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.local.prompt.WITHIN", 0.2)
    app, body = (
        dashboard(coordinator, token=TOKEN),
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\na",
    )
    with served(app, http=Prompt, limit_concurrency=10) as url, ExitStack() as idle:
        place = urlsplit(url)
        for sent in (b"", b"GET / HT", body) * 8:
            one = idle.enter_context(socket.create_connection((str(place.hostname), int(place.port or 0))))
            one.sendall(sent)
        wait_until(lambda: httpx.get(f"{url}/api/counts", timeout=60).status_code == 401)
        with httpx.stream(
            "GET", f"{url}/live?at=/nodes", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
        ) as live:
            assert "nothing new" in next(line for line in live.iter_lines() if line.startswith(":")), "it is served on"


def test_one_who_asks_much_leaves_room_for_others(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.ops.dashboard.app.PATIENCE", 30.0)  # 24 clients start meanwhile
    ends, begun = threading.Event(), threading.Semaphore(0)

    def slow(query: Query) -> Page:
        begun.release()
        ends.wait(20)
        return Page("nodes.html", "Nodes", {"rows": (), "gone": (), "lost": ()})

    coordinator.extend(Extension("own", pages=lambda: Pages([], {"/slow": slow})))
    app = dashboard(coordinator, auth=lambda request: Author(request.headers["x-user"]))
    with served(app) as url, ThreadPoolExecutor(24) as many:
        asked = [many.submit(httpx.get, f"{url}/slow", headers={"x-user": "ann"}) for _ in range(24)]
        for _ in range(READERS // 2):
            assert begun.acquire(timeout=20)
        assert httpx.get(f"{url}/nodes", headers={"x-user": "bob"}, timeout=60).status_code == 200
        ends.set()
        assert {one.result().status_code for one in asked} == {200}


def test_a_page_imports_no_module_of_the_app(
    redis_server: RedisServer, prefix: str, tmp_path: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "never_imported.py").write_text("raise SystemExit('a page imported this')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Celery("shop", include=["never_imported"], set_as_current=False) as app:
        coordinator = Coordinator(app, url=redis_server.url(0), prefix=prefix)
        assert "app.import" not in visit(coordinator).get("/api/doctor").text
        assert "app.import" in [finding.code for finding in coordinator.doctor()]
        assert "app.import" in visit(coordinator).get("/api/doctor").text, "it is known by now"
        coordinator.close()


def act_token(client: TestClient) -> tuple[str, str]:
    """The form of an act, and its token."""
    form = client.get(PAUSE).text
    found = re.search(r'name="_token" value="(\w+)"', form)
    assert found
    return form, found[1]


def test_the_login_asks_for_a_name_and_acts_stand_under_it(browser: TestClient, coordinator: Coordinator) -> None:
    assert 'name="name"' in browser.get("/").text
    browser.post("/login", data={"token": TOKEN, "name": " Ann Ångström ", "to": "/"}, headers=OURS)
    form, token = act_token(browser)
    assert "_name" not in form, "it is asked once"
    assert "Ann Ångström</span>" in form
    sent = {"_token": token, "key": "stock", "why": "so", "_name": "somebody else"}
    assert browser.post("/act/pause", data=sent, headers=OURS).status_code == 200
    assert [one.by for one in coordinator.actions()] == ["Ann Ångström"]
    coordinator.resume("stock")


def test_who_came_by_the_address_is_asked_at_the_first_act(browser: TestClient, coordinator: Coordinator) -> None:
    browser.get(f"/?token={TOKEN}")
    form, token = act_token(browser)
    assert 'name="_name"' in form
    sent = {"_token": token, "key": "stock", "why": "so", "_name": "Ann"}
    assert browser.post("/act/pause", data=sent | {"_name": "a\nb"}, headers=OURS).status_code == 400
    assert browser.post("/act/pause", data=sent | {"_name": "a" * 81}, headers=OURS).status_code == 400
    assert browser.post("/act/pause", data=sent | {"_token": "0" * 64}, headers=OURS).status_code == 403
    assert browser.post("/act/pause", data=sent, headers=OURS).status_code == 200
    form, token = act_token(browser)
    assert ("_name" in form, "Ann</span>" in form) == (False, True)
    sent = {"_token": token, "key": "stock", "why": "so", "_name": "Bob"}
    browser.post("/act/resume", data=sent, headers=OURS)
    assert [(one.act, one.by) for one in coordinator.actions()] == [("resume", "Ann"), ("pause", "Ann")]
    answer = browser.post("/login", data={"token": TOKEN, "name": "a\x00"}, headers=OURS)
    assert (answer.status_code, "printable characters" in answer.text) == (400, True)


def test_a_name_in_a_cookie_cannot_be_changed(browser: TestClient) -> None:
    browser.post("/login", data={"token": TOKEN, "name": "Ann"}, headers=OURS)
    [(name, value)] = [(one.name, str(one.value)) for one in browser.cookies.jar if one.name != "coordinator_form"]
    ends, own, _, signed = value.strip('"').split(".")
    for forged in (f"{ends}.{own}.Qm9i.{signed}", f"{ends}..{signed}", f"{ends}.{own}.{signed}", "..."):
        client = TestClient(browser.app, follow_redirects=False)
        client.cookies.set(name, forged)
        assert client.get("/lanes").status_code == 401


def test_a_logout_makes_the_cookie_worthless_in_each_process(browser: TestClient, coordinator: Coordinator) -> None:
    other = TestClient(dashboard(coordinator, token=TOKEN, hosts=["testserver"]), follow_redirects=False)
    browser.get(f"/?token={TOKEN}")
    assert 'action="/logout"' in browser.get("/lanes").text
    kept = dict(browser.cookies)
    other.cookies.update(kept)
    assert other.get("/lanes").status_code == 200
    assert browser.post("/logout", headers=OURS | {"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert other.get("/lanes").status_code == 200
    assert browser.post("/logout", headers=OURS).status_code == 303
    for client in (browser, other):
        client.cookies.update(kept)
        assert client.get("/lanes").status_code == 401
        assert client.get("/api/counts").status_code == 401
    [key] = coordinator.store._client.keys(coordinator.store.key("logged-out", "*"))
    assert 7 * 86400 < coordinator.store._client.ttl(key) <= 8 * 86400
    browser.cookies.clear()
    browser.get(f"/?token={TOKEN}")
    assert browser.get("/lanes").status_code == 200, "a new login is another session"


def test_an_open_page_of_a_session_that_was_ended_is_sent_no_more(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.ops.dashboard.app.PAUSE", 0.05)
    with served(dashboard(coordinator, token=TOKEN)) as url, httpx.Client(base_url=url) as client:
        client.get("/", params={"token": TOKEN})
        ours = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
        with client.stream("GET", "/live?at=/nodes") as live:
            lines = live.iter_lines()
            assert next(lines).startswith("data:")
            assert client.post("/logout", headers=ours).status_code == 303
            assert list(lines)[-1:] is not None, "the stream ends"


def test_where_redis_is_away_a_session_may_look_and_a_logout_says_that_it_is_not_noted(
    redis_server: RedisServer, coordinator: Coordinator, proxy: Proxy, client_at: ClientAt
) -> None:
    far = client_at(proxy.url(), timeout=1)
    client = TestClient(dashboard(far, token=TOKEN, hosts=["testserver"]), follow_redirects=False)
    client.get(f"/?token={TOKEN}")
    _, token = act_token(client)
    proxy.cut()
    answer = client.get("/lanes")
    assert (answer.status_code, "read only" in answer.text) == (503, True)
    sent = {"_token": token, "key": "stock", "why": "so", "_name": "Ann"}
    assert client.post("/act/pause", data=sent, headers=OURS).status_code == 403
    answer = client.post("/logout", headers=OURS)
    assert (answer.status_code, "a copy of its cookie stays good" in answer.text) == (503, True)
    assert client.get("/lanes").status_code == 401
    proxy.heal()
