"""Who comes in, and what is refused."""

import re
from base64 import b64encode

import pytest

from coordinator import Coordinator
from coordinator.author import Author
from coordinator.dashboard import dashboard, from_proxy
from tests.coordinator.dashboard.conftest import Visit
from tests.coordinator.dashboard.stage import TOKEN, TestClient

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


def test_who_guesses_waits_longer_each_time(browser: TestClient) -> None:
    for _ in range(3):
        answers = [browser.post("/login", data={"token": "wrong"}, headers=OURS) for _ in range(2)]
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert browser.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 401  # as slow for programs


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
