"""What the pages show, and what they do not."""

import hashlib
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest

from coordinator import Author, Coordinator
from coordinator.dashboard import Asked, Page, Pages, Tab
from coordinator.dashboard.acts import ACTS
from coordinator.dashboard.views import VIEWS
from coordinator.extension import Extension
from tests.coordinator.dashboard.conftest import Visit
from tests.coordinator.dashboard.stage import EVIL, PAGES, Stage
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

ROOT = Path(__file__).parents[3]
VENDORED = ROOT / "coordinator/dashboard/static/vendor"


@pytest.fixture
def held(coordinator: Coordinator) -> str:
    """A job that was held by its failure."""
    node = Puppet(coordinator.store)
    node.up()
    job = node.submit("stock", on_failure="hold").id
    node.finish(node.must_take(), "failed")
    return job


@pytest.mark.parametrize("path", PAGES)
def test_each_page_shows_what_there_is(stage: Stage, visit: Visit, path: str) -> None:
    answer = visit(stage.coordinator).get(path)
    assert answer.status_code == 200
    assert PAGES[path] in answer.text


def test_every_page_is_looked_at_here() -> None:
    assert {path.partition("?")[0] for path in PAGES} | {"/job"} == set(VIEWS)


@pytest.mark.parametrize("path", sorted(set(VIEWS) - {"/lane", "/job", "/node", "/entry"}))
def test_each_page_of_an_empty_installation_says_so(coordinator: Coordinator, visit: Visit, path: str) -> None:
    answer = visit(coordinator).get(path)
    assert answer.status_code == 200
    assert 'class="nothing"' in answer.text


@pytest.mark.parametrize("path", ["/job?id=nobody", "/node?name=nobody", "/entry?name=nobody", "/nope", "/act/nope"])
def test_what_is_not_there_is_a_page_that_says_so(coordinator: Coordinator, visit: Visit, path: str) -> None:
    assert visit(coordinator).get(path).status_code == 404


@pytest.mark.parametrize("path", ["/lanes?state=odd", "/lane", "/act/limit?key="])
def test_a_wrong_address_is_said_and_names_the_way_out(coordinator: Coordinator, visit: Visit, path: str) -> None:
    client = visit(coordinator)
    if path.startswith("/act"):
        answer = client.post("/act/limit", data={"key": "stock", "why": "so", "limit": "many"})
        assert "whole number from 0 to 1000" in answer.text
    else:
        answer = client.get(path)
    assert answer.status_code == 400


def test_a_key_is_shown_as_it_is_and_runs_nothing(stage: Stage, visit: Visit) -> None:
    client = visit(stage.coordinator)
    for path in (
        "/lanes",
        f"/lane?{urlencode({'key': EVIL})}",
        f"/job?id={stage.evil}",
        "/find?" + urlencode({"q": EVIL}),
    ):
        answer = client.get(path, follow_redirects=True)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;/../?#%&amp;" in answer.text


def test_hidden_arguments_are_nowhere(stage: Stage, visit: Visit) -> None:
    client = visit(stage.coordinator)
    for path in (f"/job?id={stage.jobs[0]}", f"/api/job?id={stage.jobs[0]}"):
        text = client.get(path).text
        assert "hunter2" not in text
        assert "sesame" not in text
        assert "(hidden)" in text


def test_all_arguments_are_hidden_where_the_setting_says_so(
    redis_server: RedisServer, prefix: str, visit: Visit
) -> None:
    with Coordinator(url=redis_server.url(0), prefix=prefix, hidden="*") as coordinator:
        job = Puppet(coordinator.store).submit("stock", args=("four",), kwargs={"word": "fish"})
        text = visit(coordinator).get(f"/job?id={job.id}").text
        coordinator.cancel(job.id, why="so")
    assert "four" not in text
    assert "fish" not in text


def test_json_is_what_the_calls_give_with_ids_and_fences_as_strings(stage: Stage, visit: Visit) -> None:
    client = visit(stage.coordinator)
    lane = client.get("/api/lane?key=customer/7").json()
    read = stage.coordinator.lane("customer/7")
    assert (lane["key"], lane["jobs"], lane["length"]) == (read.key, list(read.jobs), read.length)
    assert lane["holders"][0]["fence"] == str(read.holders[0].fence)
    document = client.get("/api/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "/act/cancel" in document["paths"]
    for path, about in document["paths"].items():
        if "get" in about and path not in ("/lane", "/refused"):
            values = "key=stock" if path == "/why" else f"id={stage.jobs[0]}&name=nightly"
            assert client.get(f"/api{path}?{values}").status_code == 200, path


def test_an_act_is_done_once_a_reason_is_given(coordinator: Coordinator, visit: Visit, held: str) -> None:
    client = visit(coordinator)
    assert client.post("/act/cancel", data={"id": held}).status_code == 400
    assert coordinator.job(held).state == "held"
    planned = client.post("/api/act/cancel?dry_run=true", json={"id": held, "why": "so"}).json()
    assert held in planned["plan"][0]
    assert coordinator.job(held).state == "held"
    for _ in range(2):
        assert "The job is cancelled" in client.post("/act/cancel", data={"id": held, "why": "so"}).text
    assert coordinator.job(held).state == "cancelled"


def test_each_act_has_a_form_that_names_its_thing(stage: Stage, visit: Visit) -> None:
    client = visit(stage.coordinator)
    for name, act in ACTS.items():
        planned = {"id": stage.jobs[0]} if "id" in act.thing else {"key": "stock", "holder": ""}
        planned = {"old": "shop.work"} if "old" in act.thing else planned
        thing = planned if act.plan else dict.fromkeys(act.thing, "a-thing")
        text = client.get(f"/act/{name}?" + urlencode(thing)).text
        assert next(iter(thing.values())) in text
        assert 'name="why"' in text


def test_an_order_is_added_and_jobs_get_another_task_on_a_page(coordinator: Coordinator, visit: Visit) -> None:
    Puppet(coordinator.store).up(tasks=["shop.work", "shop.other"])
    client, said = visit(coordinator), {"why": "so", "ticket": "OPS-7"}
    order = {"name": "s", "order": "1", "key": "k", "task": "shop.work", "args": "[1]"} | said
    assert "The sorter holds it as job s/1." in client.post("/act/sorter-add", data=order).text
    assert "the arguments are a JSON list" in client.post("/act/sorter-add", data=order | {"args": "1 2"}).text
    renamed = {"old": "shop.work", "new": "shop.other"} | said
    planned = client.post("/api/act/retarget?dry_run=true", json=renamed).json()["plan"]
    assert planned[0] == "job s/1, collected: becomes collected, shop.other"
    assert "1 jobs have the new task." in client.post("/act/retarget", data=renamed).text
    assert [(one.act, one.ticket) for one in coordinator.actions()] == [("retarget", "OPS-7"), ("add", "OPS-7")]
    assert coordinator.job("s/1").task == "shop.other"
    eve = visit(coordinator, Author("eve", "viewer"))
    for name, values in (("sorter-add", order | {"order": "2"}), ("retarget", renamed)):
        assert eve.post(f"/act/{name}", data=values).status_code == 403
    coordinator.cancel("s/1")


def test_all_jobs_that_a_filter_finds_are_counted_and_then_ended(coordinator: Coordinator, visit: Visit) -> None:
    work = {"task": "shop.work", "args": [], "kwargs": {}, "options": {}}
    for key in ("b/1", "b/1", "b/2", "c"):
        coordinator.submit(key, work)
    client = visit(coordinator)
    assert "/act/cancel-all?key=b%2F" in client.get("/jobs?key=b/").text
    assert "/act/cancel-all" not in client.get("/jobs").text
    form = client.get("/act/cancel-all?key=b/").text
    assert "Cancel each job that this finds: key b/" in form
    assert len(re.findall(r"becomes cancelled", form)) == 3
    assert "then starts: nothing" in form
    assert coordinator.counts()["cancelled"] == 0
    done = client.post("/act/cancel-all", data={"key": "b/", "why": "a wrong import"})
    assert "3 jobs are done." in done.text
    assert [coordinator.counts()[name] for name in ("cancelled", "waiting", "ready")] == [3, 0, 1]
    [action] = coordinator.actions()
    assert (action.act, action.name, action.why) == ("cancel", "key=b/", "a wrong import")


def test_lanes_come_page_by_page(coordinator: Coordinator, visit: Visit) -> None:
    for n in range(60):
        coordinator.set_limit(f"lane/{n:02}", 2, why="so")
    client = visit(coordinator)
    first = client.get("/lanes?prefix=lane/").text
    assert "lane/49" in first
    assert "lane/50" not in first
    more = re.search(r'class="more"><a class="button" href="([^"]+)"', first)
    assert more
    second = client.get(more[1].replace("&amp;", "&")).text
    assert "lane/59" in second
    for n in range(60):
        coordinator.set_limit(f"lane/{n:02}", 1, why="so")


def test_a_dead_redis_is_said_and_the_page_comes_back(own_redis: RedisServer, visit: Visit) -> None:
    with Coordinator(url=own_redis.url(0), timeout=0.5) as coordinator:
        client = visit(coordinator)
        own_redis.kill()
        for path in set(PAGES) - {"/refused"}:
            answer = client.get(path)
            assert (answer.status_code, "Redis does not answer" in answer.text) == (503, True)
        assert client.get("/api/counts").json()["error"] == "Redis does not answer"
        own_redis.start()
        wait_until(lambda: client.get("/").status_code == 200)


def test_an_extension_adds_a_page_a_tab_and_json_for_its_acts(
    coordinator: Coordinator, visit: Visit, tmp_path: Path
) -> None:
    (tmp_path / "hello.html").write_text("{% extends frame %}{% block live %}<h1>Hello {{ name }}</h1>{% endblock %}")

    def hello(asked: Asked) -> Page:
        return Page("hello.html", "Hello", {"name": asked.text("name")})

    coordinator.extend(
        Extension("own", pages=lambda: Pages([Tab("Greetings", "/hello")], {"/hello": hello}, templates=tmp_path))
    )
    text = visit(coordinator).get("/hello?name=<b>").text
    assert "Hello &lt;b&gt;" in text
    assert '<a href="/hello" aria-current="page">Greetings</a>' in text


@pytest.mark.parametrize("line", [n for n in (VENDORED / "THIRD_PARTY").read_text().splitlines() if " sha256 " in n])
def test_vendored_files_are_those_of_their_releases(line: str) -> None:
    name, digest = line.split()[0], line.split()[-1]
    assert hashlib.sha256((VENDORED / name).read_bytes()).hexdigest() == digest


def test_every_vendored_file_is_listed() -> None:
    listed = {line.split()[0] for line in (VENDORED / "THIRD_PARTY").read_text().splitlines() if " sha256 " in line}
    assert {path.name for path in VENDORED.iterdir()} == listed | {"THIRD_PARTY"}
