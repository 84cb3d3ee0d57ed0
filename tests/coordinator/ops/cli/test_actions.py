"""The commands that act: an operator puts jobs in line, ends them, and takes lanes in hand."""

import getpass
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from coordinator import Author, Coordinator, Forbidden, InvalidJob
from coordinator.core.store.client import Store
from coordinator.core.store.times import moment
from coordinator.ops.verbs.bulk import Progress
from tests.harness.command import Call, listed, loaded, refused, told
from tests.harness.hand_node import Puppet, sketch
from tests.harness.proxy import Proxy

ME = f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.fixture(autouse=True)
def a_plan_counts_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    monkeypatch.setattr("coordinator.ops.verbs.bulk.COUNTS", 60.0)


def test_submit_puts_a_job_in_line_and_its_arguments_in_the_record(call: Call, coordinator: Coordinator) -> None:
    ship = ("submit", "order/1", "shop.ship", "--if-unknown", "wait")
    made = loaded(call(*ship, "--args", "[42]", "--kwargs", '{"fast": true}', "--json"))
    job = coordinator.job(made["id"])
    assert (made["outcome"], job.keys, job.task) == ("queued", ("order/1",), "shop.ship")
    assert (job.args, job.kwargs) == ((42,), {"fast": True})
    assert told(call(*ship, "--id", "next")) == "next is queued, behind 1 other"
    assert told(call(*ship, "--id", "next")) == "next was submitted before, behind 1 other"
    skipped = call(*ship, "--when-busy", "skip")
    assert (skipped.exit_code, skipped.stdout) == (1, "order/1 is busy: nothing was submitted\n")
    for job_id in ("next", made["id"]):
        coordinator.cancel(job_id)


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (["", "shop.ship"], 2, "a key is text that is not empty"),
        (["k" * 513, "shop.ship"], 2, "at most 512"),
        (["shop.ship"], 2, "name a KEY and a TASK; without a key, also a quota: --uses NAME"),
        (["k", "shop.ship", "more"], 2, "name a KEY and a TASK"),
        (["shop.ship", "--uses", "nobodys"], 2, "nobody declared the quota 'nobodys'"),
        (["shop.ship", "--uses", "q=0"], 2, "the number of units of quota 'q' is a whole number from 1, not 0"),
        (["k", "shop.ship", "--args", "42"], 2, "args is a JSON list, not 42"),
        (["k", "shop.ship", "--args", "[42"], 2, "args is a JSON list: "),
        (["k", "shop.ship", "--kwargs", "[]"], 2, "kwargs is a JSON object, not []"),
        (["k", "celery.chunks"], 2, "a chunks cannot be a job"),
    ],
)
def test_what_cannot_be_submitted_is_refused_by_name(
    call: Call, coordinator: Coordinator, args: list[str], status: int, says: str
) -> None:
    result = call("submit", *args)
    assert (result.exit_code, says in result.stderr) == (status, True), result.stderr
    assert not coordinator.counts().get("created")
    assert coordinator.lanes() == []


def test_a_submit_without_an_answer_names_the_id_to_ask_again_with(
    call: Call, coordinator: Coordinator, proxy: Proxy
) -> None:
    coordinator.counts()  # so that the library is there, whose text has the name of the step
    proxy.lose_reply(b"job_submit")
    lost = refused(call("submit", "k", "shop.ship", "--if-unknown", "wait", COORDINATOR_URL=proxy.url(0)))
    made = lost.partition("the job may be in line: ask again with --id ")[2]
    assert (
        told(call("submit", "k", "shop.ship", "--if-unknown", "wait", "--id", made)) == f"{made} was submitted before"
    )
    assert coordinator.counts()["created"] == 1
    coordinator.cancel(made)


def test_who_paused_a_lane_and_why_is_shown_until_it_is_resumed(call: Call, node: Puppet) -> None:
    assert told(call("pause", "order/1", "--why", "disk full", "--by", "ann")) == "order/1 is paused"
    node.submit("order/1", job_id="j")
    again = told(call("pause", "order/1", "--why", "disk still full"))
    assert again == "order/1 was paused already; now your reason stands there"
    assert "disk still full" in told(call("lanes"))
    (lane,) = listed(call("lanes", "--json"))
    assert (lane["pause"]["by"], lane["pause"]["why"]) == (ME, "disk still full")
    assert f"Lane order/1 is paused by {ME} since 20" in told(call("why", "j"))
    assert node.take() is None
    call("pause", "order/2", "--why", "stocktaking", "--by", "ann")
    ahead = told(call("submit", "order/2", "shop.ship", "--if-unknown", "wait", "--id", "lone"))
    assert ahead.startswith("lone is in front: Lane order/2 is paused by ann since 20")
    assert told(call("resume", "order/1", "--why", "disk changed", "--by", "ann")) == "order/1 goes on"
    assert told(call("resume", "order/1", "--why", "twice")) == "order/1 was not paused"
    assert node.order() == ["j"]
    acts = loaded(call("job", "j", "--json"))["acts"]
    assert (acts["resumed"]["by"], acts["resumed"]["why"]) == ("ann", "disk changed")
    assert (acts["paused"]["by"], acts["paused"]["why"]) == (ME, "disk still full")
    assert "disk changed" in told(call("job", "j"))


def test_a_paused_lane_in_which_nobody_stands_is_not_forgotten(call: Call, coordinator: Coordinator) -> None:
    coordinator.pause("order/1", why="disk full", by="ann")
    (lane,) = listed(call("lanes", "--json"))
    assert (lane["key"], lane["length"], lane["state"]) == ("order/1", 0, "empty")
    assert "by ann" in told(call("lanes"))
    coordinator.resume("order/1")
    assert listed(call("lanes", "--json")) == []


def test_why_names_the_ways_where_it_is_asked_for_nothing_or_for_a_key(call: Call, node: Puppet) -> None:
    asked = call("why")
    assert (asked.exit_code, "--key; --summary counts all" in asked.stderr) == (2, True)
    assert "--key" not in refused(call("why", "order/1"))
    node.submit("order/1", job_id="j")
    assert "a lane of that key: coordinator why --key order/1" in refused(call("why", "order/1"))
    node.finish(node.must_take())
    assert "a lane of that key" in refused(call("why", "order/1"))
    call("pause", "order/2", "--why", "x")
    assert "a lane of that key" in refused(call("why", "order/2"))


def test_release_takes_the_lane_from_its_holder_and_keeps_who_and_why(call: Call, node: Puppet) -> None:
    for job_id in ("old", "next"):
        node.submit("order/1", job_id=job_id)
    held = node.must_take()
    other = call("release", "order/1", "--why", "it hangs", "--holder", "next")
    assert other.stdout == "job next does not hold order/1\n"
    assert told(call("release", "order/1", "--why", "it hangs", "--by", "ann")) == "order/1 is taken from job old"
    assert node.finish(held).state == "cancelled"
    assert node.order() == ["next"]
    assert told(call("release", "order/1", "--why", "again")) == "nobody held order/1"
    shown = told(call("job", "old"))
    assert "Released: it hangs" in shown
    assert "by ann 20" in shown


def test_retry_has_a_job_go_on_and_keeps_who_and_why(call: Call, node: Puppet) -> None:
    node.submit("order/1", job_id="j", on_failure="hold")
    node.finish(node.must_take(), "failed")
    assert call("wait", "j").exit_code == 1
    assert told(call("retry", "j", "--why", "mended", "--by", "ann")) == "j is ready"
    assert node.order() == ["j"]
    assert "by ann" in told(call("job", "j"))
    assert loaded(call("job", "j", "--json"))["acts"]["retried"]["why"] == "mended"
    said = "j is succeeded: only a job that is held, retrying, or ended badly runs again"
    assert told(call("retry", "j", "--why", "once more")) == said


def test_a_retry_at_once_of_a_job_that_waits_for_its_retry_is_noted_too(call: Call, node: Puppet) -> None:
    node.submit("order/1", job_id="j", max_attempts=2)
    assert node.finish(node.must_take(), "raised", delay=60000).state == "retrying"
    assert told(call("retry", "j", "--why", "mended", "--by", "ann")) == "j is ready"
    assert loaded(call("job", "j", "--json"))["acts"]["retried"]["by"] == "ann"
    assert node.order() == ["j"]


def test_a_retried_job_keeps_the_id_that_coalesced_into_it_and_no_strangers(call: Call, node: Puppet) -> None:
    node.submit("order/1", job_id="1")
    node.submit("order/1", job_id="j", when_busy="defer")
    assert node.submit("order/1", job_id="alias", when_busy="defer").outcome == "coalesced"
    node.finish(node.must_take())
    node.finish(node.must_take(), "failed")
    assert told(call("retry", "alias", "--why", "mended")) == "alias is ready"
    ttls = {name: node.store._client.ttl(node.store.key("job", name)) for name in ("1", "j", "alias")}
    assert (ttls["1"] > 0, ttls["j"], ttls["alias"]) == (True, -1, -1)
    assert node.order() == ["j"]


def test_cancel_keeps_who_and_why(call: Call, node: Puppet) -> None:
    node.submit("order/1", job_id="j")
    assert told(call("cancel", "j", "--why", "not wanted")) == "j is cancelled"
    shown = told(call("job", "j"))
    assert "Cancelled: not wanted" in shown
    assert f"by {ME}" in shown


@pytest.mark.parametrize("command", ["release", "pause", "resume", "retry", "cancel"])
def test_an_operator_must_say_why(call: Call, command: str) -> None:
    for given in ((), ("--why", ""), ("--why", "  ")):
        result = call(command, "order/1", *given)
        assert (result.exit_code, "--why" in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["retry", "why", "cancel"])
def test_an_unknown_job_is_named(call: Call, command: str) -> None:
    options = ["--why", "x"] if command != "why" else []
    result = call(command, "order-77", *options)
    assert (result.exit_code, "'order-77'" in result.stderr) == (2, True)


APP = """
from celery import Celery
from datetime import UTC, datetime
from coordinator import Coordinator, Extension, InvalidJob
from coordinator.ops.diagnosis.cause import Why

app = Celery("depot", backend="cache+memory://", include=["parts"], set_as_current=False)
app.conf.task_routes = {"parts.lift": {"queue": "heavy"}}
coordinator = Coordinator(app)


def of_truck(name):
    return Why(f"truck {name}", f"truck {name} is at sea", (), datetime.now(UTC))


coordinator.extend(Extension("depot", why={"truck": of_truck}))
"""


def test_submit_takes_a_tasks_queue_and_options_from_the_app(call: Call, tmp_path: Path, node: Puppet) -> None:
    (tmp_path / "depot2.py").write_text(APP)
    (tmp_path / "parts.py").write_text("from depot2 import app\n\n\n@app.task(ignore_result=True)\ndef lift(): pass\n")
    try:
        assert (
            told(call("-A", "depot2", "submit", "k", "parts.lift", "--id", "j"))
            == "j is in front: No living node may run j: 1 not of the app depot"
        )
        node.nodes.register(
            "depot", "a", {"app": "depot", "capacity": 1, "ordinary": 0, "load": 0}, ["app depot", "queue celery"], []
        )
        unknown = call("-A", "depot2", "submit", "k", "parts.lower")
        assert (unknown.exit_code, "unknown task 'parts.lower'" in unknown.stderr) == (2, True)
        assert "nodes without the queue heavy: depot" in told(call("why", "j"))
        assert told(call("-A", "depot2", "why", "--truck", "T1")).startswith("truck T1 is at sea")
        assert "--truck NAME" in told(call("-A", "depot2", "why", "--help"))
        kept = node.store._client.hmget(node.store.key("job", "j"), "class", "tell")
        assert kept == [b"depot\nheavy", None], "nobody is to be told of a result that the task ignores"
    finally:
        for name in ("depot2", "parts"):
            sys.modules.pop(name, None)
        sys.path.remove(str(tmp_path))
    assert call("cancel", "j", "--why", "x").exit_code == 0


def test_submit_waits_no_longer_than_it_is_told(call: Call, node: Puppet) -> None:
    late = call("submit", "k", "shop.work", "--id", "j", "--wait", "--timeout", "0")
    assert (late.exit_code, late.stderr) == (1, "Error: job j is still ready\n")
    assert call("submit", "k", "shop.work", "--timeout", "1").exit_code == 2
    wrong = call("submit", "k", "shop.wrok")
    assert (wrong.exit_code, "did you mean 'shop.work'?" in wrong.stderr) == (2, True)
    node.lanes.cancel("j")


def test_the_jobs_of_a_lane_stand_in_its_order_and_past_ones_behind(
    call: Call, node: Puppet, coordinator: Coordinator
) -> None:
    for job_id in ("past", "first", "second", "third"):
        node.submit("k", job_id=job_id)
        if job_id == "past":
            node.finish(node.must_take())
    node.lanes.move("third", priority=5)
    assert [job["id"] for job in loaded(call("jobs", "--key", "k", "--json"))["jobs"]] == [
        "first",
        "third",
        "second",
        "past",
    ]
    with pytest.raises(InvalidJob, match="state 'wating': one of waiting"):
        coordinator.lanes(state="wating")  # type: ignore[arg-type]
    assert len(node.order()) == 3


def test_a_job_that_was_tried_again_and_a_chain_without_failure_read_as_they_went(call: Call, node: Puppet) -> None:
    node.submit("k", job_id="again", max_attempts=2)
    node.finish(node.must_take(), "raised")
    node.sweep()
    node.finish(node.must_take())
    told_of = told(call("job", "again"))
    assert "attempt    2" in told_of
    assert "error" not in told_of
    request = sketch("k", job_id="chain")
    chain = request.fields.index("spec") + 1
    steps = '{"steps": [{"task": "shop.work"}, {"task": "shop.work"}], "first": 0}'
    request.fields = (*request.fields[:chain], steps, *request.fields[chain + 1 :])
    node.lanes.submit(request)
    one = node.must_take()
    node.store.step("job_finish", one.id, one.token, "step", "1", 0, "", "shop\ncelery", "shop.work", 0, "one",
                   one.runner, "", 60000)  # fmt: skip
    node.finish(node.must_take())
    assert "attempt    1" in told(call("job", "chain"))


def test_the_trail_tells_who_did_what_on_whose_word_page_by_page(call: Call, node: Puppet) -> None:
    node.submit("order/1", job_id="j")
    node.submit("order/1", job_id="next")
    call("cancel", "j", "--why", "not wanted", "--by", "ann", "--ticket", "OPS-7")
    call("pause", "order/1", "--why", "disk full", "--by", "bob")
    newest, first = listed(call("actions", "--json"))
    assert (first["act"], first["kind"], first["name"], first["ticket"]) == ("cancel", "job", "j", "OPS-7")
    assert (first["before"], first["after"]) == ("ready", "cancelled")
    page = call("actions", "--most", "1")
    assert "disk full" in page.stdout
    assert page.stderr == f"more: --after {newest['id']}\n"
    assert "OPS-7" in told(call("actions", "--after", newest["id"]))
    assert "OPS-7" not in told(call("actions", "--by", "bob"))
    assert "disk full" not in told(call("actions", "--thing", "job j"))
    assert call("actions", "--after", "yesterday").exit_code == 2
    node.lanes.resume("order/1")
    assert node.order() == ["next"]


def test_an_act_on_a_filter_is_counted_planned_done_in_portions_and_given_again_does_the_rest(
    call: Call, node: Puppet, coordinator: Coordinator
) -> None:
    node.lanes.submit_many([sketch(f"sync/{number}", job_id=f"{number:03}") for number in range(230)])
    node.submit("other/1", job_id="other")
    node.submit("sync/5", job_id="behind")
    wanted = ("--state", "ready", "--key", "sync/*", "--why", "a flood", "--by", "ann")
    assert "and " not in told(call("cancel", *wanted[:2], "--key", "other/1", *wanted[4:], "--dry-run"))
    plan = loaded(call("cancel", *wanted, "--dry-run", "--json"))
    assert (plan["count"], len(plan["hits"]), plan["starts"]) == (230, 230, ["behind"])
    assert plan["hits"][0] == {"thing": "job 000", "state": "ready", "becomes": "cancelled"}
    asked = call("cancel", *wanted)
    assert asked.exit_code == 1, "nobody said yes"
    assert coordinator.counts()["cancelled"] == 0
    acting = coordinator.act("cancel", state="ready", key="sync/*", by="ann", why="a flood")
    assert [next(acting), next(acting)] == [Progress(0, 230), Progress(100, 230)]
    acting.close()  # and here its caller is stopped
    assert coordinator.counts()["cancelled"] == 100
    assert told(call("cancel", *wanted, "--yes")) == "cancel: 130 jobs"
    assert told(call("cancel", *wanted, "--yes")) == "cancel: 1 job", "which became ready behind one of them"
    assert coordinator.counts()["cancelled"] == 231
    assert told(call("cancel", *wanted, "--yes")) == "cancel would change nothing"
    assert coordinator.job("other").state == "ready"
    *_, ended, begun, stopped, first = coordinator.actions()
    assert (first.act, first.thing) == ("cancel", "jobs state=ready key=sync/*")
    assert (first.before, first.after, stopped.after) == ("230 found", "begun", "stopped: 100 of 230 changed")
    assert (begun.before, begun.after, ended.after) == ("130 found", "begun", "ended: 130 changed")
    error = coordinator.job("007").error
    assert error
    assert (error["message"], error["by"]) == ("a flood", "ann")
    assert node.order() == ["other"]


def test_an_act_on_many_that_is_stopped_says_how_far_it_is_and_that_it_may_be_given_again(
    call: Call, node: Puppet, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.lanes.submit_many([sketch(f"sync/{number}", job_id=f"{number:03}") for number in range(130)])
    usual = Coordinator.act

    def ctrl_c(steps: Iterator[Progress]) -> Iterator[Progress]:
        yield from islice(steps, 2)
        raise KeyboardInterrupt

    def act(self: Coordinator, *args: Any, **wanted: Any) -> Any:
        steps = usual(self, *args, **wanted)
        return steps if "dry_run" in wanted else ctrl_c(steps)

    monkeypatch.setattr(Coordinator, "act", act)
    stopped = call("cancel", "--key", "sync/*", "--why", "a flood", "--yes")
    last = stopped.stderr.splitlines()[-1]
    assert last == "Error: stopped; cancel: 100 jobs of 130 or more are done, and the same command does the rest"
    monkeypatch.undo()
    assert told(call("cancel", "--key", "sync/*", "--why", "a flood", "--yes")) == "cancel: 30 jobs"


def test_lanes_are_steered_by_their_prefix_and_a_second_run_does_the_rest(
    call: Call, node: Puppet, coordinator: Coordinator
) -> None:
    node.lanes.submit_many([sketch(f"sync/{number:03}", job_id=f"{number:03}") for number in range(130)])
    for key, job_id in (("other/1", "other"), ("sync/000", "behind")):
        node.submit(key, job_id=job_id)
    said = ("--why", "a flood", "--by", "ann", "--yes")
    shown = told(call("pause", "sync/*", *said, "--dry-run"))
    assert "lane sync/000  open" in shown
    assert coordinator.lane("sync/000").paused is False
    acting = coordinator.act("pause", key="sync/*", by="ann", why="a flood")
    assert [next(acting), next(acting)] == [Progress(0, 130), Progress(100, 130)]
    acting.close()  # and here its process is killed
    again = call("pause", "sync/*", *said)
    assert (again.stdout, again.stderr) == ("pause: 30 lanes\n", "pause: 30 of 30\n")
    assert told(call("pause", "sync/*", *said)) == "pause would change nothing"
    assert node.order() == ["other"]
    plan = coordinator.plan.act("resume", key="sync/*")
    assert (plan.count, len(plan.starts)) == (130, 130)
    assert call("resume", "sync/*", "--why", "over").exit_code == 1, "nobody said yes"
    assert loaded(call("resume", "sync/*", *said, "--json")) == {"done": 130, "found": 130}
    taken = [node.must_take() for _ in range(130)]
    assert told(call("release", "sync/000", "--why", "x", "--dry-run")).count("cancelled") == 1
    assert told(call("release", "sync/00*", *said)) == "release: 10 lanes"
    assert {one.id for one in taken if coordinator.job(one.id).state == "cancelled"} >= {
        f"{at:03}" for at in range(1, 10)
    }
    told(call("release", "sync/*", *said))
    told(call("release", "sync/*", *said))
    assert told(call("release", "sync/*", *said)) == "release would change nothing"
    assert coordinator.actions()[-1].thing == "lanes key=sync/*"


def test_the_lanes_of_a_prefix_are_paused_until_an_instant(call: Call, node: Puppet, coordinator: Coordinator) -> None:
    for number in range(2):
        node.submit(f"sync/{number}", job_id=str(number))
    assert told(call("pause", "sync/*", "--until", "3600", "--why", "backup", "--yes")) == "pause: 2 lanes"
    until = coordinator.lane("sync/0").until
    assert until is not None
    assert 3500 < (until - datetime.now(UTC)).total_seconds() <= 3600
    assert f"until    {moment(until)}" in told(call("lane", "sync/0"))
    told(call("resume", "sync/*", "--why", "x", "--yes"))
    assert node.order() == ["0", "1"]


def test_an_act_on_the_lanes_of_a_prefix_takes_no_grab_from_its_winner(call: Call, coordinator: Coordinator) -> None:
    grab = coordinator.grab("report", "monday", "ann", ttl=30, keep=30)
    for verb in ("release", "pause"):
        assert told(call(verb, "g*", "--why", "the gpu lanes", "--yes")) == f"{verb} would change nothing"
    assert grab.check() is None
    grab.complete(None)


def test_many_jobs_are_moved_in_their_order(call: Call, node: Puppet, coordinator: Coordinator) -> None:
    node.lanes.submit_many([sketch("k", job_id=f"{number:03}") for number in range(151)])
    node.submit("k", job_id="last")
    plan = loaded(call("move", "--key", "k", "--priority", "7", "--why", "x", "--dry-run", "--json"))
    assert (plan["count"], plan["hits"][0]) == (
        151, {"thing": "job 001", "state": "waiting", "becomes": "back of priority 7"}
    )  # fmt: skip
    assert "front of priority 0" in told(call("move", "last", "--to", "front", "--why", "x", "--dry-run"))
    assert (
        told(call("move", "--key", "k", "--text", "last", "--to", "front", "--why", "x")) == "move would change nothing"
    )
    for to in ("front", "back"):
        told(call("move", "--key", "k", "--to", to, "--why", "x", "--yes"))
        assert list(coordinator.lane("k", 200).jobs) == [f"{number:03}" for number in range(151)] + ["last"]
    told(call("move", "last", "--to", "front", "--why", "x"))
    assert coordinator.lane("k").jobs[1] == "last"
    assert told(call("cancel", "--key", "k", "--why", "x", "--yes")) == "cancel: 152 jobs"


def test_a_filter_names_something_that_the_act_can_change(call: Call, coordinator: Coordinator) -> None:
    for options, says in (
        ([], "name one job by its ID, or several"),
        (["j", "--key", "k"], "name one job by its ID, or several"),
    ):
        result = call("cancel", *options, "--why", "x")
        assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
    with pytest.raises(InvalidJob, match="name at least one"):
        coordinator.act("cancel", why="all of them")
    with pytest.raises(InvalidJob, match="retry acts on jobs that are held, retrying"):
        coordinator.act("retry", state=["waiting"])
    with pytest.raises(InvalidJob, match="verb 'drain': one of cancel, retry, move, release, pause, resume"):
        coordinator.act("drain", key="k")  # type: ignore[call-overload]
    with pytest.raises(InvalidJob, match="pause acts on lanes: name them by key alone, not by state"):
        coordinator.act("pause", key="k/*", state="held")
    with pytest.raises(InvalidJob, match="until 'soon' is neither seconds nor a time"):
        coordinator.act("pause", key="k/*", until="soon")
    with pytest.raises(InvalidJob, match="resume acts on lanes: name them by key alone, not by until"):
        coordinator.act("resume", key="k/*", until="60")
    assert told(call("release", "k/", "--holder", "j", "--why", "x")) == "job j does not hold k/"
    with pytest.raises(InvalidJob, match="no filter 'stat'"):
        coordinator.plan.act("cancel", stat="held")  # type: ignore[call-arg]
    with pytest.raises(Forbidden):
        coordinator.act("cancel", key="k", by=Author("eve", "viewer"))


def test_a_dry_run_shows_what_a_release_and_a_new_task_would_hit_and_does_nothing(call: Call, node: Puppet) -> None:
    for job_id in ("old", "next"):
        node.submit("order/1", job_id=job_id)
    taken = node.must_take()
    plan = told(call("release", "order/1", "--why", "it hangs", "--dry-run"))
    assert "job old" in plan
    assert plan.endswith("starts then: next")
    shown = loaded(call("retarget", "shop.work", "shop.other", "--why", "new", "--dry-run", "--json"))
    assert [(hit["thing"], hit["becomes"]) for hit in shown["hits"]] == [("job next", "waiting, shop.other")]
    assert told(call("retry", "old", "--why", "x", "--dry-run")) == "retry would change nothing"
    assert "stopping" in told(call("cancel", "old", "--why", "x", "--dry-run"))
    assert call("cancel", "nobody", "--why", "x", "--dry-run").exit_code == 2
    assert node.lanes.store.read("EXISTS", node.store.key("actions")) == 0
    node.finish(taken)
    node.finish(node.must_take(), "failed")
    assert loaded(call("retry", "--state", "failed", "--key", "order/*", "--why", "mended", "--yes", "--json")) == {
        "done": 1,
        "found": 1,
    }
    assert node.order() == ["next"]


def test_of_two_who_act_on_the_same_each_counts_what_it_changed_itself(
    node: Puppet, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.lanes.submit_many([sketch(f"sync/{number}", job_id=f"{number:03}") for number in range(250)])
    usual, bobs = Store.step_many, list[Progress]()

    def bob_comes_between(self: Store, name: str, calls: Any) -> Any:
        monkeypatch.undo()
        bob = coordinator.act("cancel", key="sync/*", by="bob", why="a flood")
        bobs.extend(islice(bob, 2))
        answers = usual(self, name, calls)
        bobs.extend(bob)
        return answers

    monkeypatch.setattr(Store, "step_many", bob_comes_between)
    anns = list(coordinator.act("cancel", key="sync/*", by="ann", why="a flood"))
    assert [step.done for step in bobs] == [0, 100, 200, 250]
    assert anns == [Progress(0, 250), Progress(0, 250)]
    assert [(one.by, one.after) for one in coordinator.actions()] == [("bob", "ended: 250 changed"), ("bob", "begun")]


def test_a_job_and_a_lane_name_the_act_on_many_that_changed_them_with_its_ticket(
    call: Call, node: Puppet, coordinator: Coordinator
) -> None:
    for number in range(3):
        node.submit(f"sync/{number}", job_id=f"j{number}")
    node.submit("other", job_id="other")
    why = ("--why", "a flood", "--by", "ann", "--ticket", "OPS-7", "--yes")
    told(call("pause", "sync/*", *why))
    told(call("cancel", "--key", "sync/*", *why))
    told(call("retry", "--state", "cancelled", "--key", "sync/*", *why))
    told(call("retarget", "shop.work", "shop.other", *why[:-1]))
    acts = [(one["act"], one["after"]) for one in listed(call("actions", "--thing", "job j1", "--json"))]
    assert acts == [
        ("retarget", "shop.other, ended: 4 changed"), ("retarget", "shop.other, begun"),
        ("retry", "ended: 3 changed"), ("retry", "begun"),
        ("cancel", "ended: 3 changed"), ("cancel", "begun"),
    ]  # fmt: skip
    assert {one.act for one in coordinator.actions(thing="job other")} == {"retarget"}
    assert [one.act for one in coordinator.actions(thing="lane sync/1")] == ["pause", "pause"]
    assert coordinator.actions(thing="lane other") == []
    events = {event.what: event for event in coordinator.job("j1").course}
    for what in ("cancelled", "retried", "retargeted"):
        of = {one.of for one in coordinator.actions(thing="job j1") if what.startswith(one.act[:4])}
        assert (events[what].by, events[what].ticket, {events[what].act}) == ("ann", "OPS-7", of), what
    assert "retried by ann (OPS-7): a flood" in told(call("job", "j1"))
    told(call("cancel", "j2", "--why", "alone", "--ticket", "OPS-8"))
    error = coordinator.job("j2").error
    assert error
    assert (error["ticket"], "act" in error) == ("OPS-8", False)
    told(call("resume", "sync/*", *why))
