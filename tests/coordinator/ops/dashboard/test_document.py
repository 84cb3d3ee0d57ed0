"""The OpenAPI document says what is really answered."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from coordinator import Coordinator
from coordinator.core.author import Author
from coordinator.core.verbs import NOTHING, reading, readings_in
from coordinator.ops.dashboard import Pages, dashboard, running
from coordinator.ops.extension import Extension
from tests.coordinator.conftest import ClientAt
from tests.coordinator.ops.dashboard.stage import TOKEN, Stage, TestClient
from tests.harness.proxy import Proxy

BEARER = {"Authorization": f"Bearer {TOKEN}"}
OURS = {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}
PAUSE = {"key": "stock", "why": "so"}


class Got(NamedTuple):
    """What was asked, and what was answered."""

    method: str
    path: str
    answer: Any


@reading(NOTHING, host=None)
def broken() -> int:
    """Fail, as by a fault of the dashboard."""
    raise ZeroDivisionError


class Asking:
    """Asks dashboards for answers of each kind, and keeps them."""

    def __init__(self, coordinator: Coordinator, far: Coordinator) -> None:
        app = dashboard(coordinator, token=TOKEN, hosts=["testserver"])
        self.program, self.nobody = TestClient(app, headers=BEARER), TestClient(app)
        self.viewer = TestClient(dashboard(coordinator, auth=lambda _: Author("eve", "viewer")), headers=OURS)
        self.away = TestClient(dashboard(far, token=TOKEN, hosts=["testserver"]), headers=BEARER)
        self.got = list[Got]()

    def get(self, client: TestClient, path: str, query: str = "", **more: Any) -> None:
        self.got.append(Got("get", path, client.get(f"/api{path}{query}", **more)))

    def post(self, client: TestClient, path: str = "/act/pause", **more: Any) -> None:
        self.got.append(Got("post", path, client.post(f"/api{path}", **more)))

    def readings(self) -> None:
        for client, path, query in (
            (self.program, "/counts", ""), (self.program, "/jobs", "?state=odd"), (self.program, "/jobs", "?stat=held"),
            (self.program, "/lanes", "?most=many"), (self.nobody, "/counts", ""), (self.program, "/job", "?id=nobody"),
            (self.program, "/broken", ""),
        ):  # fmt: skip
            self.get(client, path, query)
        for client in (self.program, self.nobody):
            self.get(client, "/lane", "?key=a", headers={"Host": "evil.example"})

    def acts(self) -> None:
        for body in (PAUSE, {"key": "stock"}, PAUSE | {"untill": "60"}, PAUSE | {"until": "soon"}):
            self.post(self.program, json=body)
        self.post(self.program, content="no JSON")
        self.post(self.nobody, json=PAUSE, headers=OURS)
        self.post(self.nobody, json=PAUSE)
        self.post(self.viewer, json=PAUSE)
        token = self.viewer.get("/act/pause?key=stock").text.partition('name="_token" value="')[2].partition('"')[0]
        self.post(self.viewer, json=PAUSE, headers={"X-Coordinator-Token": token})
        self.post(self.program, "/act/cancel", json={"id": "nobody", "why": "so"})
        self.post(self.program, content=b"x" * 100_000)
        self.post(self.program, json=PAUSE, headers={"Host": "evil.example"})


@pytest.fixture
def asked(coordinator: Coordinator, proxy: Proxy, client_at: ClientAt, monkeypatch: pytest.MonkeyPatch) -> list[Got]:
    """Answers of each kind."""
    pages = Pages(readings=readings_in(broken).values())
    coordinator.extend(Extension("own", pages=lambda: pages))
    asking = Asking(coordinator, client_at(proxy.url(), timeout=1))
    asking.readings()
    asking.acts()
    for name, value in (("MOST", 0), ("_do", fail)):
        with monkeypatch.context() as patch:
            patch.setattr(running, name, value)
            asking.post(asking.program, json=PAUSE)
    proxy.cut()
    asking.get(asking.away, "/counts")
    asking.post(asking.away, json=PAUSE)
    proxy.heal()
    coordinator.resume("stock")
    return asking.got


def fail(one: running.RunningAct, _: object) -> None:
    one.error = running.error_page_of(ZeroDivisionError())
    one.future.set_result(None)


@pytest.fixture
def document(coordinator: Coordinator, asked: list[Got]) -> Any:
    app = dashboard(coordinator, token=TOKEN, hosts=["testserver"])
    return TestClient(app, headers=BEARER).get("/api/openapi.json").json()


def test_each_answer_is_one_of_the_document_and_each_of_the_document_was_got(
    document: dict[str, Any], asked: list[Got]
) -> None:
    seen: dict[str, set[tuple[str, str]]] = {"get": set(), "post": set()}
    for method, path, answer in asked:
        status, kind = str(answer.status_code), answer.headers["content-type"].partition(";")[0]
        content = document["paths"][path][method]["responses"][status]["content"]
        assert kind in content, (method, path, status, answer.text)
        seen[method].add((status, kind))
        if status != "200" and kind == "application/json":
            assert set(answer.json()) == set(document["components"]["schemas"]["Error"]["required"])
            assert all(answer.json().values()), answer.text
    for ways in document["paths"].values():
        for method, about in ways.items():
            said = {(status, kind) for status, one in about["responses"].items() for kind in one["content"]}
            assert said == seen[method], method
    assert {status for status, _ in seen["post"]} >= {"400", "401", "403", "404", "413", "429", "503"}


def test_each_reference_of_the_document_leads_somewhere(document: dict[str, Any]) -> None:
    def references(part: Any) -> Iterator[str]:
        for name, value in part.items() if isinstance(part, dict) else enumerate(part):
            if name == "$ref":
                yield value
            elif isinstance(value, dict | list):
                yield from references(value)

    for one in set(references(document)):
        found: Any = document
        for step in one.removeprefix("#/").split("/"):
            found = found[step]
    assert not [name for name in document["components"]["schemas"] if "Validation" in name]


def test_each_way_to_log_in_that_the_document_names_lets_in(coordinator: Coordinator, document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    app = dashboard(coordinator, token=TOKEN, hosts=["testserver"])
    browser = TestClient(app, follow_redirects=False)
    browser.post("/login", data={"token": TOKEN, "name": "Ann"}, headers=OURS)
    assert schemes["session"]["name"] in browser.cookies
    assert document["paths"]["/counts"]["get"]["security"] == [{"token": []}, {"session": []}]
    assert browser.get("/api/counts").status_code == 200
    assert document["paths"]["/act/pause"]["post"]["security"] == [{"token": []}, {"session": [], "form": []}]
    assert browser.post("/api/act/pause", json=PAUSE, headers=OURS).status_code == 403
    token = browser.get("/act/pause?key=stock").text.partition('name="_token" value="')[2].partition('"')[0]
    form = {schemes["form"]["name"]: token}
    assert browser.post("/api/act/pause", json=PAUSE, headers=OURS | form).status_code == 200
    assert coordinator.actions()[0].by == "Ann"
    coordinator.resume("stock")
    own = TestClient(dashboard(coordinator, auth=lambda _: Author("ulla"))).get("/api/openapi.json").json()
    assert set(own["components"]["securitySchemes"]) == {"form"}, "the login is another's"


def test_a_filter_is_an_address_that_one_can_send(stage: Stage) -> None:
    client = TestClient(dashboard(stage.coordinator, token=TOKEN, hosts=["testserver"]), headers=BEARER)
    paths = client.get("/api/openapi.json").json()["paths"]
    values = {
        "state": "held", "task": "shop.work", "key": "st*", "since": "1h", "until": "2030-01-01T00:00:00Z",
        "node": "n1@alpha", "error": "Lost", "text": "receipt", "after": "", "most": "5",
        "reason": "held", "ids": "x", "without": "y",
    }  # fmt: skip
    parameters = {one["name"]: one for one in paths["/jobs"]["get"]["parameters"]}
    assert set(parameters) == set(values)
    for name, value in values.items():
        assert not parameters[name]["required"]
        assert client.get("/api/jobs", params={name: value}).status_code == 200, name
    assert client.get("/api/jobs", params=values).status_code == 200
    schema = parameters["most"]["schema"]
    assert schema == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 50}
    for most in (0, 1001, "many"):
        assert client.get("/api/jobs", params={"most": most}).status_code == 400
    wrong = client.get("/api/jobs", params={"stat": "held"})
    assert (wrong.status_code, wrong.json()["detail"]) == (400, "stat: no parameter of jobs (did you mean 'state'?)")


def test_what_the_framework_refuses_has_the_shape_of_all_errors(stage: Stage) -> None:
    client = TestClient(dashboard(stage.coordinator, token=TOKEN, hosts=["testserver"]), headers=BEARER)
    missing = client.get("/api/nope")
    assert (missing.status_code, missing.json()["error"]) == (404, "Not there")
    lacks = client.post("/api/act/pause", json={"key": "stock"})
    assert (lacks.status_code, lacks.json()["detail"]) == (400, "why: Field required")
