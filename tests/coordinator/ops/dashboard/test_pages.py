"""What the pages show, and what they do not."""

import hashlib
import re
import threading
from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest
from celery import Celery

from coordinator import Author, Coordinator
from coordinator.core.author import Role, acting
from coordinator.core.finding import Finding
from coordinator.core.jobs.record import TERMINAL
from coordinator.core.store.times import to_ms
from coordinator.core.verbs import NOTHING, verb, verbs_in
from coordinator.inbox.refused import RefusedRequest
from coordinator.ops.dashboard import Page, Pages, Query, Tab, dashboard, hide, show
from coordinator.ops.dashboard.acts import acts_of
from coordinator.ops.dashboard.views import VIEWS
from coordinator.ops.extension import Extension
from coordinator.ops.verbs.bulk import Progress
from coordinator.ops.verbs.declared import verbs
from coordinator.scheduler.entry import Entry
from tests.coordinator.ops.dashboard.conftest import Visit
from tests.coordinator.ops.dashboard.stage import EVIL, PAGES, Stage, served
from tests.coordinator.ops.dashboard.test_access import OURS
from tests.coordinator.scheduler.beats import Beats, entry, source
from tests.harness.hand_node import Puppet
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until, within

ROOT = Path(__file__).parents[4]
VENDORED = ROOT / "coordinator/ops/dashboard/static/vendor"


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


def test_an_entry_that_never_ran_is_not_shown_as_if_it_had(beats: Beats, visit: Visit) -> None:
    beats.beat(source(entry(schedule=3600))).tick()
    page = visit(beats.coordinator).get("/schedule").text
    assert ">never<" in page, page[page.index("<h1>") :][:3000]


def test_every_page_is_looked_at_here() -> None:
    assert {path.partition("?")[0] for path in PAGES} == set(VIEWS)


@pytest.mark.parametrize(
    ("path", "above"),
    [
        ("/job?id=nobody", '/jobs">Back to Jobs'),
        ("/node?name=nobody", '/nodes">Back to Nodes'),
        ("/entry?name=nobody", '/schedule">Back to Schedule'),
        ("/quota?name=nobody", '/quotas">Back to Quotas'),
        ("/nope", '/">Back to Overview'),
        ("/act/nope", '/">Back to Overview'),
    ],
)
def test_what_is_not_there_is_a_page_that_says_so_and_leads_on(
    coordinator: Coordinator, visit: Visit, path: str, above: str
) -> None:
    answer = visit(coordinator).get(path)
    assert (answer.status_code, f'href="{above}<' in answer.text) == (404, True)


@pytest.mark.parametrize("path", ["/lanes?state=odd", "/lane", "/quota", "/tenants?sort=odd", "/act/quota?name="])
def test_a_wrong_address_is_said_and_names_the_way_out(coordinator: Coordinator, visit: Visit, path: str) -> None:
    client = visit(coordinator)
    if path.startswith("/act"):
        answer = client.post("/act/quota", data={"name": "stock", "why": "so", "concurrency": "many"})
        assert "concurrency is a whole number from 0" in answer.text
    else:
        answer = client.get(path)
        back = {"/quota": "Quotas", "/tenants": "Tenants"}.get(path.partition("?")[0], "Lanes")
        assert f'href="/{back.lower()}">Back to {back}<' in answer.text
    assert answer.status_code == 400


def test_an_act_meets_the_lane_that_it_names_also_where_its_key_begins_with_a_blank(
    coordinator: Coordinator, visit: Visit
) -> None:
    client = visit(coordinator)
    assert client.post("/act/pause", data={"key": " stock", "why": "so"}).status_code == 200
    assert (coordinator.lane(" stock").paused, coordinator.lane("stock").paused) == (True, False)
    assert "/act/resume" in client.get("/lane?key=+stock").text
    coordinator.resume(" stock", why="so")


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


@pytest.mark.parametrize(("role", "acts"), [("viewer", False), ("operator", True)])
def test_a_viewer_sees_no_act(stage: Stage, visit: Visit, role: Role, acts: bool) -> None:
    page = visit(stage.coordinator, Author("vera", role)).get("/lane?key=stock").text
    assert ("read only" not in page, "/act/" in page) == (acts, acts)


@pytest.mark.parametrize("path", ["/job?id={}", "/api/job?id={}", "/api/lane?key=till", "/api/jobs?key=till"])
def test_hidden_arguments_are_nowhere(stage: Stage, visit: Visit, path: str) -> None:
    text = visit(stage.coordinator).get(path.format(stage.run)).text
    assert "hunter2" not in text
    assert "sesame" not in text
    assert "(hidden)" in text


@pytest.mark.parametrize(
    ("text", "found"), [("thermal", True), ("receipt", False), ("hunter2", False), ("sesame", False)]
)
def test_nobody_finds_a_job_by_what_is_hidden(stage: Stage, visit: Visit, text: str, found: bool) -> None:
    client = visit(stage.coordinator)
    page, plan = (client.get(f"{path}?key=till&text={text}").text for path in ("/jobs", "/act/retry-all"))
    assert (f"/job?id={stage.run}" in page) is found
    assert "Nothing would change" in plan


def test_a_position_is_hidden_by_the_name_that_the_task_has_for_it(
    redis_server: RedisServer, prefix: str, visit: Visit
) -> None:  # fmt: skip
    with Celery("shop", broker="memory://", set_as_current=False) as app:
        coordinator = Coordinator(app, url=redis_server.url(0), prefix=prefix)

        @app.task(name="shop.open", shared=False)
        def open_till(number: int, password: str) -> None: ...

        job = coordinator.submit("till", open_till.s(7, "hunter2"))
        client = visit(coordinator)
        assert "hunter2" not in client.get(f"/job?id={job.id}").text
        assert job.id not in client.get("/jobs?text=hunter2").text
        coordinator.cancel(job.id, why="so")
        coordinator.close()


@pytest.mark.parametrize(
    ("original", "shown"),
    [('{"password": "hunter2", "member": "urn:1"}', "urn:1"), ("password=hunter2 {", "(hidden)"), ("urn:1 {", "urn:1")],
)
def test_a_refused_request_shows_no_hidden_value(stage: Stage, original: str, shown: str) -> None:
    request = RefusedRequest("1", "requests", "no JSON", None, "n1", original, "", True, True)
    text = str(hide.shown(stage.coordinator, request))
    assert shown in text
    assert "hunter2" not in text


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
        if "get" in about and path not in ("/lane", "/refused", "/refused-counts", "/doing"):
            known = {"id": stage.jobs[0], "name": "licence" if path == "/quota-status" else "nightly"}
            needed = {one["name"]: known[one["name"]] for one in about["get"]["parameters"] if one["required"]}
            needed |= {"key": "stock"} if path == "/why" else {}
            more = {"/plan-backfill": {"since": "2026-03-01"}, "/plan-change": {"schedule": "every 60"}}
            needed |= more.get(path, {})
            assert client.get(f"/api{path}", params=needed).status_code == 200, path


def test_an_act_is_done_once_a_reason_is_given(coordinator: Coordinator, visit: Visit, held: str) -> None:
    client = visit(coordinator)
    assert client.post("/act/cancel", data={"id": held}).status_code == 400
    assert coordinator.job(held).state == "held"
    planned = client.post("/api/act/cancel?dry_run=true", json={"id": held, "why": "so"}).json()
    assert held in planned["plan"][0]
    assert coordinator.job(held).state == "held"
    for _ in range(2):
        assert "is cancelled." in client.post("/act/cancel", data={"id": held, "why": "so"}).text
    assert coordinator.job(held).state == "cancelled"


def test_each_act_has_a_form_that_names_its_thing(stage: Stage, visit: Visit) -> None:
    client = visit(stage.coordinator)
    for name, act in acts_of(verbs().values()).items():
        planned = {"id": stage.jobs[0]} if "id" in act.values else {"key": "stock", "holder": ""}
        planned = {"old": "shop.work"} if "old" in act.values else planned
        planned = {"name": "nightly" if "entry" in name else "licence"} if "name" in act.values else planned
        thing = planned if act.plan else dict.fromkeys(act.values, "a-thing")
        text = client.get(f"/act/{name}?" + urlencode(thing)).text
        assert next(iter(thing.values())) in text
        assert 'name="why"' in text


def test_an_order_is_added_and_jobs_get_another_task_on_a_page(coordinator: Coordinator, visit: Visit) -> None:
    Puppet(coordinator.store).up(tasks=["shop.work", "shop.other"])
    client, said = visit(coordinator), {"why": "so", "ticket": "OPS-7"}
    order = {"name": "s", "order": "1", "key": "k", "task": "shop.work", "args": "[1]"} | said
    assert "s/1</a> is held by the sorter s." in client.post("/act/sorter-add", data=order).text
    assert "args is a JSON list" in client.post("/act/sorter-add", data=order | {"args": "1 2"}).text
    renamed = {"old": "shop.work", "new": "shop.other"} | said
    planned = client.post("/api/act/retarget?dry_run=true", json=renamed).json()["plan"]
    assert planned[0] == "job s/1, collected, becomes collected, shop.other"
    assert "1 job with shop.work name shop.other." in client.post("/act/retarget", data=renamed).text
    assert [(one.act, one.ticket) for one in coordinator.actions()] == [
        ("retarget", "OPS-7"), ("retarget", "OPS-7"), ("add", "OPS-7"),
    ]  # fmt: skip
    assert coordinator.job("s/1").task == "shop.other"
    eve = visit(coordinator, Author("eve", "viewer"))
    for name, values in (("sorter-add", order | {"order": "2"}), ("retarget", renamed)):
        assert eve.post(f"/act/{name}", data=values).status_code == 403
    coordinator.cancel("s/1")


def test_a_job_that_collects_says_how_many_and_its_lane_names_it(coordinator: Coordinator, visit: Visit) -> None:
    node = Puppet(coordinator.store)
    node.up()
    for number in range(3):
        node.submit("k", args=(number,), collect={"how": "list", "idle": 60, "most": 50}, job_id=f"call-{number}")
    client = visit(coordinator)
    page = client.get("/job?id=call-2").text
    for part in ("Collects</dt><dd>3 calls", "list, 50 at most", "of its first call", "/act/flush-job?id=call-0"):
        assert part in page
    assert "Calls are collected by" in client.get("/lane?key=k").text
    assert "call-0" in client.get("/jobs?state=collecting").text
    coordinator.flush("call-2", why="so")
    node.finish(node.must_take())
    page = client.get("/job?id=call-0").text
    assert "Collected</dt><dd>3 calls" in page
    assert "of its first call" not in page
    assert "flushed" in page
    assert "Calls are collected by" not in client.get("/lane?key=k").text


# Each act: its thing, what more its form has, and a part of what it says when it is done.
DONE: dict[str, tuple[dict[str, str], str]] = {
    "cancel": ({"id": "waits"}, " is cancelled."),
    "retry": ({"id": "held"}, " is ready."),
    "move": ({"id": "waits", "to": "front"}, " is moved to the front of its priority: waiting."),
    "retarget": ({"old": "shop.work", "new": "shop.work"}, "with shop.work name shop.work"),
    "sorter-add": (
        {"name": "files", "order": "c", "key": "file", "task": "shop.work"},
        " is held by the sorter files.",
    ),
    "cancel-all": ({"key": "till"}, "Done, on 2 jobs"),
    "retry-all": ({"state": "held"}, "Done, on 1 job."),
    "move-all": ({"key": "till", "priority": "4"}, "Done, on 1 job."),
    "release": ({"key": "till", "holder": "runs"}, "till is taken from job runs."),
    "pause": ({"key": "till"}, "till is paused."),
    "resume": ({"key": "desk"}, "desk goes on."),
    "quota": ({"name": "licence", "concurrency": "3"}, "quota licence is declared."),
    "drop-quota": ({"name": "licence"}, "quota licence is dropped"),
    "cool-down": ({"name": "licence", "until": "60"}, "quota licence starts nothing until 60."),
    "event-set": ({"name": "approved/1", "value": '{"by": "ann"}'}, "event approved/1 is set."),
    "weight": ({"group": "till", "weight": "2.5"}, "group till has weight 2.5, 1 before."),
    "release-all": ({"key": "til*"}, "Done, on 1 lane."),
    "pause-all": ({"key": "til*"}, "Done, on 1 lane."),
    "resume-all": ({"key": "desk*"}, "Done, on 1 lane."),
    "drain": ({"name": "one"}, "one drains."),
    "ack": ({"code": "beat.none", "thing": "source entries"}, "beat.none (source entries) is acknowledged until "),
    "unack": ({"code": "beat.none"}, "beat.none counts again."),
    "undrain": ({"name": "two"}, "two takes jobs again."),
    "entry-pause": ({"name": "nightly"}, "nightly is paused."),
    "entry-resume": ({"name": "weekly"}, "weekly goes on."),
    "entry-skip": ({"name": "nightly"}, "nightly will not be sent at "),
    "entry-run": ({"name": "nightly"}, "nightly runs within seconds"),
    "entry-change": ({"name": "nightly", "schedule": "0 0 3 * * ?"}, "nightly: 0 0 3 * * ?"),
    "entry-backfill": (
        {"name": "nightly", "since": "2026-03-01", "until": "2026-03-11", "at_once": "2"},
        "nightly: 10 of 10 instants to run",
    ),
    "entry-stop-backfill": ({"name": "weekly"}, "weekly: its backfill is stopped"),
    "entry-restore": ({"name": "weekly"}, "weekly: 0 0 2 * * ?"),
    "flush-job": ({"id": "gathers"}, "</a> is ready."),
    "flush": ({"name": "files"}, "1 order of files put in line."),
    "requeue": ({"id": "nobody"}, "no refused request has the id nobody any more"),
    "discard": ({"id": "nobody"}, "no refused request has the id nobody any more"),
    "release-grab": ({"key": "backup", "instance": "monday", "attempt": "1"}, "backup monday is taken from host-a."),
}


def work(_: object = None) -> None:
    """Never run here."""


@pytest.fixture
def steered(redis_server: RedisServer, prefix: str) -> Iterator[Coordinator]:
    """An installation in which there is something for each act."""
    app = Celery("shop", broker=redis_server.url(1), set_as_current=False)
    c = Coordinator(app, url=redis_server.url(0), prefix=prefix)
    app.task(work, name="shop.work", shared=False)
    node = Puppet(c.store)
    node.up()
    node.submit("stock", on_failure="hold", job_id="held")
    node.finish(node.must_take(), "failed")
    for job_id in ("runs", "waits"):
        node.submit("till", job_id=job_id)
    node.must_take()
    node.submit("counter", job_id="gathers", collect={"idle": 3600})
    c.pause("desk", why="so")
    c.quota("licence", concurrency=2, why="so")
    c.drain("two", why="so")
    for name in ("nightly", "weekly"):
        c.entries.put(Entry(name, "0 0 2 * * ?", "shop.work", key="night"))
    c.ack("beat.none", until="1d", why="so")
    c.entries.pause("weekly", why="so")
    c.entries.change("weekly", "0 0 4 * * ?", why="so")
    c.entries.backfill("weekly", "2026-03-01", "2026-03-03", why="so")
    c.sorter("files", 3600.0).add("b", "file", {"task": "shop.work", "args": [], "kwargs": {}, "options": {}})
    c.grab("backup", "monday", "host-a", ttl=600)
    yield c
    c.close()
    app.close()


@pytest.mark.parametrize("name", DONE)
def test_each_act_is_done_by_its_form_and_not_for_a_viewer(steered: Coordinator, visit: Visit, name: str) -> None:
    values, said = DONE[name]
    before = steered.actions()
    forms = {role: visit(steered, Author("vera", role), **OURS) for role in ("viewer", "operator")}
    for role, client in forms.items():
        form = client.get(f"/act/{name}?{urlencode(values)}").text
        token = re.search(r'name="_token" value="(\w+)"', form)
        assert token
        answer = client.post(f"/act/{name}", data={"_token": token[1], "why": "by a test", **values})
        if role == "viewer":
            assert (answer.status_code, "You may not do this" in answer.text) == (403, True)
            assert steered.actions() == before
        else:
            assert (answer.status_code, said in unescape(answer.text)) == (200, True), answer.text


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        (
            "quota",
            {"name": "licence", "concurrency": "many"},
            "concurrency is a whole number from 0 to 1e+09, not many",
        ),
        ("quota", {"name": "licence", "concurrency": "-1"}, "concurrency is a whole number from 0 to 1e+09, not -1"),
        ("quota", {"name": "licence", "rate": "often"}, "rate 'often': write such as 100/m, 5/s or 1/10s"),
        ("quota", {"name": "licence"}, "give concurrency=N, rate='100/m', or both"),
        ("cool-down", {"name": "licence", "until": "soon"}, "until 'soon' is neither seconds nor a time"),
        ("event-set", {"name": "", "value": "1"}, "an event's name is text of 1 to 512 bytes on one line"),
        ("event-set", {"name": "e", "value": "yes"}, "value is a JSON value: Expecting value"),
        ("weight", {"group": "till", "weight": "0"}, "weight is a number from 0.001 to 1000, not 0"),
        ("pause", {"key": ""}, "a key is text that is not empty"),
        ("pause-all", {"key": ""}, "name at least one, such as key"),
        ("move", {"id": "waits", "priority": "high"}, "priority is a whole number from -255 to 255, not high"),
        ("move", {"id": "waits", "to": "middle"}, "to is one of back, front, not middle"),
        ("move", {"id": "runs"}, "job runs is running: only a waiting, scheduled or blocked job can be moved"),
        ("cancel", {"id": "nobody"}, "no job is kept under the id 'nobody'"),
        ("cancel-all", {}, "name at least one, such as state or key"),
        ("cancel-all", {"since": "lately"}, "since 'lately': give 90s, 1h, 2d, last hour, 10:00, today"),
        ("retry-all", {"state": "waiting"}, "not on waiting"),
        ("drain", {"name": ""}, "1 to 255 bytes of printable text"),
        ("entry-change", {"name": "nightly", "schedule": "often"}, "write sec min hour mday mon wday [year]"),
        ("entry-backfill", {"name": "nightly", "since": "soon"}, "since 'soon': give an instant, such as 2026-01-01"),
        ("entry-backfill", {"name": "nightly", "since": "2026-03-01", "at_once": "0"}, "at_once is a whole number"),
        ("entry-skip", {"name": "nobody"}, "no entry 'nobody' in the schedule"),
        ("retarget", {"old": "shop.work", "new": "shop.nope"}, "no living node has the task 'shop.nope'"),
        ("sorter-add", {"name": "files", "order": "z", "key": "", "task": "shop.work"}, "a key is text"),
        ("release-grab", {"key": "backup", "instance": "monday", "attempt": "one"}, "attempt is a whole number"),
    ],
)
def test_what_is_wrong_with_an_act_is_named_with_the_way_out_and_nothing_is_done(
    steered: Coordinator, visit: Visit, name: str, values: dict[str, str], said: str
) -> None:
    before = steered.actions()
    answer = visit(steered).post(f"/act/{name}", data={"why": "so", **values})
    assert answer.status_code in (400, 404)
    assert said in unescape(answer.text)
    assert steered.actions() == before


def test_of_two_operators_who_do_the_same_at_once_the_second_is_told_so(coordinator: Coordinator, visit: Visit) -> None:
    forms, told = {}, dict[str, str]()
    for name in ("ulla", "tim"):
        client = visit(coordinator, Author(name), **OURS)
        token = re.search(r'name="_token" value="(\w+)"', client.get("/act/pause?key=stock").text)
        assert token
        forms[name] = client, {"_token": token[1], "key": "stock", "why": f"says {name}"}

    def send(name: str) -> None:
        client, form = forms[name]
        told[name] = client.post("/act/pause", data=form).text

    threads = [threading.Thread(target=send, args=(name,)) for name in forms]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    [first] = [name for name, text in told.items() if "stock is paused." in text]
    [second] = [name for name, text in told.items() if "was paused already; now your reason stands there." in text]
    assert {first, second} == {"ulla", "tim"}
    pause = coordinator.lane("stock").pause
    assert pause
    assert (pause["by"], [one.by for one in coordinator.actions()]) == (second, [second, first])
    coordinator.resume("stock")


def test_json_of_an_act_may_leave_out_what_has_a_default(steered: Coordinator, visit: Visit) -> None:
    answer = visit(steered).post("/api/act/retry", json={"id": "held", "why": "so"})
    assert (answer.status_code, answer.json()["done"]) == (200, "held is ready.")


def test_no_act_was_left_out_here() -> None:
    assert set(DONE) >= set(acts_of(verbs().values()))


def test_all_jobs_that_a_filter_finds_are_counted_and_then_ended(coordinator: Coordinator, visit: Visit) -> None:
    work = {"task": "shop.work", "args": [], "kwargs": {}, "options": {}}
    for key in ("b/1", "b/1", "b/2", "c"):
        coordinator.submit(key, work)
    client = visit(coordinator)
    assert "/act/cancel-all?key=b%2F%2A" in client.get("/jobs?key=b/*").text
    assert "/act/cancel-all?" not in client.get("/jobs").text, "without a filter only ticked ones"
    form = client.get("/act/cancel-all?key=b/*").text
    assert "Cancel each job that this finds: key b/" in form
    assert re.findall(r"<li>(3 jobs, as of <time)", form)
    assert len(re.findall(r"is cancelled", form)) == 3
    assert "nothing starts in return" in form
    assert coordinator.counts()["cancelled"] == 0
    done = client.post("/act/cancel-all", data={"key": "b/*", "why": "a wrong import"})
    assert "Done, on 3 jobs." in done.text
    assert [coordinator.counts()[name] for name in ("cancelled", "waiting", "ready")] == [3, 0, 1]
    action, _ = coordinator.actions()
    assert (action.act, action.name, action.why) == ("cancel", "key=b/*", "a wrong import")


def test_an_act_on_all_is_offered_where_its_verb_acts_on_that_state(stage: Stage, visit: Visit) -> None:
    def offered(query: str) -> set[str]:
        return set(re.findall(r"/act/(\w+)-all", visit(stage.coordinator).get(f"/jobs?{query}").text))

    assert offered("state=succeeded") == set()
    assert offered("state=held") == {"cancel", "retry"}
    assert offered("state=waiting") == {"cancel", "move"}
    assert offered("key=customer/*") == {"cancel", "retry", "move"}


@pytest.mark.parametrize("name", ["cancel-all", "retry-all", "move-all"])
def test_json_of_an_act_on_all_names_only_the_filters_that_it_uses(stage: Stage, visit: Visit, name: str) -> None:
    answer = visit(stage.coordinator).post(f"/api/act/{name}?dry_run=true", json={"key": "nobody/*", "why": "so"})
    assert (answer.status_code, answer.json()["plan"]) == (200, ["Nothing would change."])


def test_a_slow_page_keeps_its_thread_and_reads_no_more_once_it_was_given_up(
    coordinator: Coordinator, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.ops.dashboard.app.PATIENCE", 0.3)
    monkeypatch.setattr("coordinator.ops.dashboard.app.READERS", 1)
    ends, hangs, over = threading.Event(), threading.Event(), []

    def slow(query: Query) -> Page:
        try:
            while not hangs.wait(0.01):
                query.coordinator.counts()
        except TimeoutError:
            over.append("reads no more")
            ends.wait(20)
            raise
        return Page("nodes.html", "Nodes", {"rows": ()})

    coordinator.extend(Extension("own", pages=lambda: Pages([], {"/slow": slow})))
    with visit(coordinator) as client:  # one loop for all requests, as a server has
        for path in ("/slow", "/nodes"):
            answer = client.get(path)
            assert (answer.status_code, "too long" in answer.text) == (503, True)
        wait_until(lambda: over)
        ends.set()
        wait_until(lambda: client.get("/nodes").status_code == 200)


def test_an_act_that_takes_long_goes_on_and_says_how_far_it_is(
    coordinator: Coordinator, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.ops.dashboard.app.WAITS", 0.1)
    goes = threading.Event()

    @verb(NOTHING, tell=lambda _, given, answer: ({}, f"All {answer} are painted"), host=None)
    def paint(**acting: str) -> Generator[Progress, None, str]:
        """Paint all."""
        yield Progress(3, 10)
        goes.wait(20)
        return "ten"

    coordinator.extend(Extension("own", pages=lambda: Pages(verbs=verbs_in(paint).values())))
    client = visit(coordinator)
    begun = client.post("/act/paint", data={"why": "so"}).text
    assert "3 of 10" in begun
    assert "Actions says" in begun
    [doing] = set(re.findall(r"/doing\?id=\w+", begun))
    assert "3 of 10" in client.get(doing).text
    assert client.get(f"/api{doing}").json() == {"done": 3, "total": 10, "over": False, "said": "", "wrong": ""}
    goes.set()
    wait_until(lambda: "All ten are painted." in client.get(doing).text)
    assert client.get("/doing?id=nobody").status_code == 404


def test_the_form_of_an_act_counts_for_half_a_second_and_says_that_there_may_be_more(
    coordinator: Coordinator, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.ops.verbs.bulk.COUNTS", 0.0)
    monkeypatch.setattr("coordinator.ops.verbs.bulk.MOST_SHOWN", 3)
    node = Puppet(coordinator.store)
    for number in range(7):
        node.submit(f"c/{number}")
    client, said = visit(coordinator), dict[str, list[str]]()
    for state in ("ready", "waiting"):
        said[state] = client.post("/api/act/cancel-all?dry_run=true", json={"state": state, "why": "so"}).json()["plan"]
    assert said["ready"][0].startswith("7+ jobs, as of"), "it looks at whole portions"
    assert said["waiting"] == ["Half a second was too short to find any."]
    assert "+ lanes" in client.get("/act/pause-all?key=c/*").text


def test_lanes_come_page_by_page(coordinator: Coordinator, visit: Visit) -> None:
    for n in range(60):
        coordinator.pause(f"lane/{n:02}", why="so")
    client = visit(coordinator)
    first = client.get("/lanes?prefix=lane/").text
    assert "lane/49" in first
    assert "lane/50" not in first
    more = re.search(r'class="more"><a class="button" href="([^"]+)"', first)
    assert more
    second = client.get(more[1].replace("&amp;", "&")).text
    assert "lane/59" in second
    for n in range(60):
        coordinator.resume(f"lane/{n:02}", why="so")


def test_quotas_come_page_by_page(coordinator: Coordinator, visit: Visit) -> None:
    for n in range(60):
        coordinator.quota(f"tenant/{n:02}", concurrency=n, why="so")
    client = visit(coordinator)
    first = client.get("/quotas?prefix=tenant/").text
    assert "tenant/49" in first
    assert "tenant/50" not in first
    more = re.search(r'class="more"><a class="button" href="([^"]+)"', first)
    assert more
    second = client.get(more[1].replace("&amp;", "&")).text
    assert "tenant/59" in second
    assert "tenant/50" in client.get("/quotas?prefix=tenant/5").text


def test_a_quota_shows_its_users_its_queue_and_what_an_act_would_start(stage: Stage, visit: Visit) -> None:
    client = visit(stage.coordinator)
    page = client.get("/quota?name=licence").text
    assert re.findall(r"/job\?id=(\w+)", page) == ["uses0", "uses1", "lacks0", "lacks1", "lacks2"]
    assert "2 of 2" in page
    change = re.search(r'href="(/act/quota\?[^"]+)"', page)
    assert change
    form = unescape(client.get(unescape(change[1])).text)
    assert 'name="concurrency" value="2"' in form
    plan = client.post(
        "/api/act/quota?dry_run=true", json={"name": "licence", "concurrency": "4", "why": "more"}
    ).json()["plan"]
    assert plan == ["quota licence, 2 at once, gets 4 at once", "then job lacks0, job lacks2 start"]
    plan = client.post("/api/act/cancel?dry_run=true", json={"id": "lacks0", "why": "so"}).json()["plan"]
    assert plan == ["job lacks0, waiting, is cancelled", "nothing starts in return"]
    assert "429 of acme" in client.get("/job?id=cooled").text
    assert 'href="/quota?name=tenant%2Facme"' in client.get("/job?id=cooled").text
    assert 'href="/quota?name=licence"' in client.get("/jobs?state=waiting").text
    assert 'href="/lane?key="' not in client.get("/jobs").text


def test_the_numbers_of_quotas_are_there_for_programs(stage: Stage, visit: Visit) -> None:
    client = visit(stage.coordinator)
    found = client.get("/api/quotas?prefix=li").json()
    assert [(one["name"], one["used"], one["waiting"]) for one in found["quotas"]] == [("licence", 2, 3)]
    assert [one["name"] for one in found["defaults"]] == ["tenant/*"]
    one = client.get("/api/quota-status?name=licence").json()
    assert [user["job_id"] for user in one["users"]] == ["uses0", "uses1"]
    assert [(waiter["job_id"], waiter["units"]) for waiter in one["queue"]][:1] == [("lacks0", 2)]
    assert client.get("/api/weights").json() == {"customer": 3.0}
    assert client.get("/api/quota-status?name=nobody").status_code == 404


def test_lanes_are_sorted_by_their_lines_and_by_their_oldest_waits(coordinator: Coordinator, visit: Visit) -> None:
    node, client = Puppet(coordinator.store), visit(coordinator)
    for key in ("b/1", "b/1", "b/2", "b/2", "b/2", "b/3"):
        node.submit(key)
    found = {
        sort: re.findall(r'href="/lane\?key=b%2F(\d)"', client.get(f"/lanes?prefix=b/&sort={sort}").text)
        for sort in ("", "waiting", "wait")
    }
    assert found == {"": ["1", "2", "3"], "waiting": ["2", "1", "3"], "wait": ["1", "2", "3"]}
    assert "/act/pause-all?key=b%2F" in client.get("/lanes?prefix=b/").text
    assert client.get("/lanes?sort=odd").status_code == 400


def test_jobs_are_counted_and_a_count_that_was_cut_says_so(
    coordinator: Coordinator, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.ops.dashboard.views.COUNTS", 60.0)  # a busy machine may need more than it has
    node, client = Puppet(coordinator.store), visit(coordinator)
    for number in range(60):
        node.submit(f"c/{number % 7}")
    assert "60 jobs" in client.get("/jobs?key=c/*").text
    for name, value in (("MOST_SEARCHED", 20), ("_PORTION", 2)):
        monkeypatch.setattr(f"coordinator.ops.search.jobs.{name}", value)
    assert "20+ jobs" in client.get("/jobs?key=c*").text


def test_a_run_is_drawn_with_its_attempts_and_the_waits_between_them(stage: Stage) -> None:
    run = stage.coordinator.job(stage.run)
    spread = tuple(replace(event, at=run.submitted + timedelta(seconds=n)) for n, event in enumerate(run.course))
    kinds = [kind for kind, _, _ in show.runs(replace(run, course=spread))]
    tried = [kind for kind in dict.fromkeys(kinds) if kind in ("failed", "retrying", "succeeded")]
    assert tried == ["failed", "retrying", "succeeded"]


def test_a_job_that_is_over_shows_where_its_time_went(stage: Stage, visit: Visit) -> None:
    client = visit(stage.coordinator)
    assert 'aria-label="Where its time went"' in client.get(f"/job?id={stage.run}").text
    assert "Where its time went" not in client.get(f"/job?id={stage.jobs[1]}").text


def test_a_long_name_may_go_on_in_the_next_line_and_what_is_long_ago_is_a_date() -> None:
    assert str(show.breakable("shop.accounting.every_month")) == "shop.<wbr>accounting.<wbr>every_<wbr>month"
    assert str(show.breakable("shop.work")) == "shop.work"
    assert "<b>" not in str(show.breakable("shop.<b>a.very.long.name</b>"))
    assert str(show.ago(datetime(2024, 5, 14, tzinfo=UTC))).endswith(">2024-05-14</time>")


def test_an_instant_in_a_sentence_is_the_viewers() -> None:
    said = str(show.timed("it <b> waits since 2026-11-24 13:35:26Z: so"))
    assert said.startswith('it &lt;b&gt; waits since <time datetime="2026-11-24T13:35:26+00:00"')


def test_the_form_of_a_drain_says_what_runs_there_and_links_it(stage: Stage, visit: Visit) -> None:
    page = visit(stage.coordinator).get("/act/drain?name=n1@alpha").text
    assert re.search(
        rf'<li>job <a class="id" href="/job\?id={stage.running.id}"[^>]*>{stage.running.id}</a> \(shop.work', page
    )
    assert "it is the only node of app shop that takes jobs" in page
    back = visit(stage.coordinator).get("/act/undrain?name=n2@beta").text
    assert "other nodes have all of its queues, labels and tasks" in back


def test_the_schedule_marks_what_is_broken_paused_left_out_and_changed(coordinator: Coordinator, visit: Visit) -> None:
    Puppet(coordinator.store).up()
    entries, store = coordinator.entries, coordinator.store
    for name in ("broken", "changed", "left-out", "paused"):
        entries.put(Entry(name, "0 0 2 * * ?", "shop.work", key=name))
    at = to_ms(datetime.now(UTC))
    lines = {
        "broken": [f"{at} 0 failed 0 host:1\x1fno%20task%20here"],
        "changed": [f"{at} 0 ready 0 h", f"={at} failed {at}"],
    }
    for name, texts in lines.items():
        store.read("RPUSH", store.key("ticks", name), *texts)
    entries.change("changed", "0 0 3 ? * MON", why="so")
    entries.skip_next("left-out", why="so")
    entries.pause("paused", why="so")
    client = visit(coordinator)
    page = client.get("/schedule").text
    rows = {
        name: text
        for text in page.split("<tr>")
        for name in lines | {"left-out": [], "paused": []}
        if f">{name}" in text
    }
    assert [name for name, row in rows.items() if "broken</span>" in row] == ["broken"]
    assert "no task here" in rows["broken"]
    assert "changed</span>" in rows["changed"]
    assert re.search(r'href="/job\?id=changed%40[^>]*><span class="state failed">', rows["changed"])
    assert "left out" in rows["left-out"]
    assert '<span class="state paused">' in rows["paused"]
    entry = client.get("/entry?name=changed").text
    assert re.findall(r'class="dated"[^>]*>(\w+) \S+ (\S+)<', entry) == [("Mon", "03:00:00Z")] * 5
    assert "no task here" in client.get("/entry?name=broken").text


def test_a_day_of_the_week_beside_an_instant_goes_with_it_into_another_zone() -> None:
    said = str(show.timed("then Mon 2026-11-30 20:00:00Z"))
    assert said.startswith('then <time class="dated" datetime="2026-11-30T20:00:00+00:00"')
    assert said.endswith(">Mon 2026-11-30 20:00:00Z</time>")


def test_the_instant_in_the_id_of_a_tick_stays_as_it_is() -> None:
    assert str(show.timed("job nightly@2026-11-24T13:35:26Z")) == "job nightly@2026-11-24T13:35:26Z"


def test_a_line_says_who_submitted_each_job(coordinator: Coordinator, visit: Visit) -> None:
    node = Puppet(coordinator.store)
    with acting(Author("ulla of the mail room")):
        node.submit("desk")
        node.submit("desk")
    page = visit(coordinator).get("/lane?key=desk").text
    assert ">ulla of the ma</td>" in page


def test_a_node_that_is_drained_and_gone_is_shown(coordinator: Coordinator, visit: Visit) -> None:
    coordinator.drain("n9@gone", why="a new disk")
    for path in ("/", "/nodes"):
        assert "a new disk" in visit(coordinator).get(path).text


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


@pytest.mark.parametrize("silent", [False, True])
def test_pages_answer_while_the_broker_is_away(
    redis_server: RedisServer, stage: Stage, visit: Visit, silent: bool
) -> None:  # fmt: skip
    own = stage.coordinator.settings
    with Proxy(redis_server.port) as proxy, Celery("shop", set_as_current=False) as app:
        app.conf.broker_url = f"redis://127.0.0.1:{proxy.port if silent else 1}/1"
        proxy.swallow()
        with Coordinator(app, url=own.url, prefix=own.prefix) as coordinator:
            store = coordinator.store
            store.read("SADD", store.key("inboxes", "shop"), "requests")  # an inbox has refused something
            client = visit(coordinator)
            for path, shown in PAGES.items():
                with within(15):  # Celery by itself takes 20 s
                    answer = client.get(path)
                assert (path, answer.status_code) == (path, 503 if path == "/refused" else 200)
                assert path == "/refused" or shown in answer.text
                assert path != "/" or "Longest lines" in answer.text, "also what is read later"


def test_the_first_part_of_a_page_is_there_before_the_rest_is_read(coordinator: Coordinator, tmp_path: Path) -> None:
    (tmp_path / "slow.html").write_text(
        "{% extends frame %}{% block live %}{{ first }}{% set rest = later() %}{{ rest.second }}{% endblock %}"
    )
    seen = threading.Event()

    def rest() -> dict[str, object]:
        assert seen.wait(4)
        return {"second": "<b>Later</b>"}

    def slow(_: Query) -> Page:
        return Page("slow.html", "Slow", {"first": "<b>At once</b>"}, later=rest)

    coordinator.extend(Extension("own", pages=lambda: Pages([], {"/slow": slow}, templates=tmp_path)))
    with served(dashboard(coordinator, auth=lambda _: Author("ulla"))) as address:
        with httpx.stream("GET", f"{address}/slow", timeout=20) as answer:
            parts = answer.iter_text()
            text = next(parts)
            assert ("&lt;b&gt;At once" in text, "Later" in text) == (True, False)
            seen.set()
            text = "".join(parts)
        assert (answer.status_code, "&lt;b&gt;Later" in text, text.count("</html>")) == (200, True, 1)


def test_the_numbers_of_the_overview_are_there_where_the_rest_cannot_be_read(
    coordinator: Coordinator, visit: Visit
) -> None:
    def away() -> list[Finding]:
        raise ConnectionError("the shop's own server is away")

    coordinator.extend(Extension("own", findings=away))
    answer = visit(coordinator).get("/")
    assert answer.status_code == 200
    for part in ("Running", "Redis answers in", 'role="alert"', "Out of reach", "own server is away", "The last day"):
        assert part in answer.text
    assert "Longest lines" not in answer.text
    assert answer.text.count("</html>") == 1


def test_a_redis_so_far_away_that_the_rest_takes_too_long_shows_the_numbers(
    redis_server: RedisServer, stage: Stage, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.ops.dashboard.app.PATIENCE", 1.5)
    own = stage.coordinator.settings
    with Proxy(redis_server.port) as proxy, Coordinator(url=proxy.url(), prefix=own.prefix) as coordinator:
        coordinator.counts()
        proxy.delay = 0.2
        answer = visit(coordinator).get("/")
    assert (answer.status_code, "Redis answers in 2" in answer.text) == (200, True)
    assert "This page took too long" in answer.text
    assert "Longest lines" not in answer.text


def test_each_number_of_the_overview_leads_to_the_jobs_that_it_counts(stage: Stage, visit: Visit) -> None:
    page = unescape(visit(stage.coordinator).get("/").text)
    for state in ("waiting", "ready", "running", "held"):
        assert f'href="/jobs?state={state}"' in page
    assert re.search(r'href="/jobs\?state=bad&since=\d{4}-[^"]*Z">Failed', page)
    reasons = re.findall(r'href="/jobs\?reason=([a-z.]+)"', page)
    rows = stage.coordinator.why_summary().rows
    assert set(reasons) == {row.code for row in rows}
    for row in rows:
        assert len(stage.coordinator.jobs(reason=row.code).jobs) == row.count, row.code
    ended = re.search(r'href="(/jobs\?state=cancelled&[^"]*)">Ended', page)
    assert ended
    assert {state for name, state in parse_qsl(urlsplit(ended[1]).query) if name == "state"} == TERMINAL
    assert visit(stage.coordinator).get(ended[1]).status_code == 200
    assert '<a class="button" href="/jobs?state=held">Show' in page
    assert re.search(r"Redis answers in [\d.]+ ms, [\d.]+ MB used, no maxmemory", page)


def test_an_extension_adds_a_page_a_tab_and_json_for_its_acts(
    coordinator: Coordinator, visit: Visit, tmp_path: Path
) -> None:
    (tmp_path / "hello.html").write_text("{% extends frame %}{% block live %}<h1>Hello {{ name }}</h1>{% endblock %}")

    def hello(query: Query) -> Page:
        return Page("hello.html", "Hello", {"name": query.text("name")})

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


def test_a_text_that_would_alter_the_line_around_it_is_shown_escaped(coordinator: Coordinator, visit: Visit) -> None:
    signature = {"task": "shop.work", "kwargs": {"x": "lpu\u202ex\u2028y\x85"}}
    job = coordinator.submit("a", signature, if_unknown="wait")
    page = visit(coordinator).get(f"/job?id={job.id}").text

    assert r"lpu\u202ex\u2028y\x85" in page
    assert not set("\u202e\u2028\x85") & set(page)


def test_each_section_of_a_template_has_its_style() -> None:
    folder = ROOT / "coordinator/ops/dashboard"
    style = (folder / "static/dashboard.css").read_text()
    texts = [path.read_text() for path in (folder / "templates").glob("*.html")]
    classes = {name for text in texts for name in re.findall(r'<section[^>]* class="([\w-]+)"', text)}
    assert classes >= {"why", "error", "failure"}
    assert {name for name in classes if f"section.{name}" not in style and f".{name} " not in style} == set()


def test_the_page_of_a_job_leads_to_what_it_runs_after_and_to_what_waits_for_it(
    coordinator: Coordinator, node: Puppet, visit: Visit
) -> None:
    node.submit("a", job_id="fetch")
    causes = {"part": "fetch", "approved": coordinator.event("approved/42")}
    node.submit("b", job_id="make", after=causes, on_failure_of="hold")
    for number in range(60):
        node.submit(f"c/{number}", job_id=f"send-{number}", after="make")
    page = visit(coordinator).get("/job?id=make").text
    assert "Runs after <small>2 open of 2; if one fails, it is held" in page
    assert re.search(r'id=fetch"[^>]*>fetch</a> <span class="state ready">', page)
    assert "as part" in page
    assert re.search(r"approved/42</a> <span[^>]*>not set", page)
    assert "What waits for it <small>60" in page
    assert 'id=send-0"' in page
    assert "and 10 more" in page
    act = visit(coordinator).get("/act/cancel?id=fetch").text
    assert "of the jobs that are to run after it: 1 is held" in act
    coordinator.cancel("fetch")
    assert 'id=make"' in visit(coordinator).get("/job?id=fetch").text
    assert "It goes on once that is retried" in visit(coordinator).get("/job?id=make").text
