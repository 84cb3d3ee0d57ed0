"""Why a job is where it is: chains of causes, each down to its root."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator import Coordinator, InvalidJob, UnknownJob
from coordinator.core.jobs.collecting import Collecting
from coordinator.core.store.client import Store
from coordinator.ops.diagnosis.cause import Why
from coordinator.ops.extension import Extension
from tests.coordinator.sorters.batches import overdue
from tests.harness.command import Call, loaded, told
from tests.harness.hand_node import Puppet, Taken, sketch
from tests.harness.waiting import wait_until


def texts(why: Why) -> list[str]:
    return [cause.text for cause in why.causes]


def end(node: Puppet, taken: Taken, kind: str, detail: str, delay: int = 0, *following: Any) -> None:
    more = following or ("", "", "")
    node.store.step("job_finish", taken.id, taken.token, kind, detail, delay, "", *more, "one", taken.runner, "", 60000)


def test_a_chain_goes_from_lane_to_lane_down_to_the_job_that_runs(node: Puppet, coordinator: Coordinator) -> None:
    for job_id, keys in (("front", "a"), ("both", ["a", "b"]), ("last", "b")):
        node.submit(keys, job_id=job_id)
    taken = node.must_take()
    why = coordinator.why("last")
    first, second, root = texts(why)
    assert first == "last is second in lane b, behind both"
    assert second == "both is second in lane a, behind front"
    assert re.fullmatch(r"front runs on node one for \d s, attempt 1", root)
    assert why.causes[-1].detail.startswith(f"pid one-runner-1, fence {taken.fence}, lease good for ")
    assert why.codes == ["waiting.lane", "running.job"]
    assert [cause.of for cause in why.causes] == [("job both",), ("job front",), ()]
    assert why.sentence == f"{first}. {root}."
    assert why.causes[-1].frees is None, "to cancel is no advice for what is healthy"
    assert (why.thing, why.complete) == ("job last", True)
    wait_until(lambda: list(coordinator.why("last").so_far) == ["waiting.lane"])  # once a millisecond has passed
    assert node.order() == []
    for job_id in ("last", "both", "front"):
        coordinator.cancel(job_id)


def test_a_job_far_behind_counts_the_jobs_before_it_and_no_pause(node: Puppet, coordinator: Coordinator) -> None:
    far = 1010
    node.lanes.submit_many(sketch("a", job_id=f"{at}") for at in range(far + 1))
    coordinator.pause("a")
    assert coordinator.why(f"{far}").causes[0].facts["ahead"] == far


def test_the_text_and_the_json_say_the_same(node: Puppet, coordinator: Coordinator, call: Call) -> None:
    node.submit("a", job_id="front")
    node.submit("a", job_id="j")
    node.must_take()
    sentence, shown = told(call("why", "j")), loaded(call("why", "j", "--json"))
    assert [line.strip().split(" for ")[0] for line in sentence.splitlines()[:3]] == [
        "j is second in lane a, behind front. front runs on node one",
        "j is second in lane a, behind front  [waiting.lane]",
        "front runs on node one",
    ]
    assert re.search(r"attempt 1 \(pid one-runner-1, fence \d+, lease good for \d+ s\)  \[running.job\]", sentence)
    assert [cause["code"] for cause in shown["causes"]] == ["waiting.lane", "running.job"]
    assert shown["causes"][0]["facts"]["behind"] == ["front"]
    assert (shown["complete"], shown["causes"][0]["of"]) == (True, ["job front"])
    for job_id in ("j", "front"):
        coordinator.cancel(job_id)


def test_a_paused_lane_is_a_root_with_who_and_why(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.pause("a", why="disk is full", by="me")
    node.submit("a", job_id="j")
    node.submit("a", job_id="k")
    behind, paused = texts(coordinator.why("k"))
    assert behind == "k is second in lane a, behind j"
    assert paused.startswith("Lane a is paused by me since 20")
    assert paused.endswith(": disk is full")
    assert coordinator.why("k").sentence == f"{paused}. {behind}."
    why = coordinator.why("j")
    assert (texts(why), why.codes) == ([paused], ["waiting.paused"])
    assert why.causes[0].frees == "coordinator resume a --why …"
    assert why.sentence == f"{paused}."
    coordinator.resume("a")
    assert node.order() == ["j", "k"]


def test_a_pause_that_ends_by_itself_says_when(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.pause("a", until=3600, why="backup", by="ann")
    node.submit("a", job_id="j")
    [paused] = coordinator.why("j").causes
    assert re.fullmatch(r"Lane a is paused by ann since .*: backup; it goes on by itself at 20.*Z", paused.text)
    coordinator.resume("a")
    assert node.order() == ["j"]


def test_a_job_that_lacks_units_leads_to_those_that_use_them(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("licence", concurrency=2)
    for job_id in ("one", "two"):
        node.submit(job_id, job_id=job_id, uses="licence")
    taken = [node.must_take() for _ in range(2)]
    node.submit("k", job_id="big", uses={"licence": 2})
    node.submit([], job_id="late", uses="licence")
    why = coordinator.why("big")
    first, *roots = texts(why)
    assert first == "big waits for 2 units of quota licence: 0 free, 2 used by one, two"
    assert (why.causes[0].of, why.codes) == (("job one", "job two"), ["waiting.quota", "running.job"])
    assert why.causes[0].frees == "coordinator quota --concurrency 4 licence --why …"
    assert [text.partition(" runs")[0] for text in roots] == ["one", "two"]
    assert re.fullmatch(r"big waits for .*, two\. one runs on .*, attempt 1\. 1 other reason below\.", why.sentence)
    why = coordinator.why("late")
    assert texts(why)[0].endswith("used by one, two; 1 ahead of it in the queue, behind big")
    assert why.causes[0].of == ("job big", "job one", "job two")
    assert why.sentence.startswith("late waits for 1 unit of quota licence: ")
    node.finish(taken[0])
    assert "1 free, 1 used by two" in texts(coordinator.why("big"))[0]
    assert coordinator.why("late").codes == ["waiting.quota", "running.job"]
    node.finish(taken[1])
    assert node.order() == ["big", "late"]


def test_a_started_job_waits_for_its_units_again_and_says_so(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("a", job_id="a", uses="q", on_failure="hold")
    node.finish(node.must_take(), "failed")
    node.submit("b", job_id="b", uses={"q": 1}, exclusive=True)
    taken = node.must_take()
    coordinator.retry("a")
    why = coordinator.why("a")
    assert texts(why)[0] == "a waits for 1 unit of quota q: 0 free, 1 used by b"
    assert (coordinator.job("a").state, [job.id for job in coordinator.jobs(state="waiting").jobs]) == (
        "waiting",
        ["a"],
    )
    node.finish(taken)
    assert node.order() == ["a"]


def test_a_job_that_waits_for_a_rate_says_when_its_start_is_due(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("mail", rate="1/h")
    for job_id in ("a", "b"):
        node.submit([], job_id=job_id, uses="mail")  # none starts in the first hour after Redis began
    left = []
    for job_id, ahead in (("a", ""), ("b", ", with 1 ahead of it in the queue")):
        why = coordinator.why(job_id)
        [rate] = [cause for cause in why.causes if (cause.code, cause.thing) == ("waiting.rate", f"job {job_id}")]
        assert rate.text.startswith(f"{job_id} waits for the rate of quota mail, 1/h (burst 1){ahead}: it may")
        assert isinstance(rate.facts["left"], float)
        left.append(rate.facts["left"])
    assert 0 < left[0] <= 3600
    assert left[1] - left[0] == pytest.approx(3600, abs=60)
    assert coordinator.why("a").codes == ["waiting.rate"]
    assert coordinator.why("b").codes == ["waiting.quota", "waiting.rate"]
    assert [(row.code, row.count) for row in coordinator.why_summary().rows] == [("waiting.rate", 2)]
    coordinator.drop_quota("mail")
    assert node.order() == ["a", "b"]


def test_a_cool_down_is_a_root_with_who_and_until_when(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("api/acme", concurrency=5)
    coordinator.cool_down("api/acme", 3600, why="429 of acme", by="ann")
    node.submit("k", job_id="j", uses="api/acme")
    why = coordinator.why("j")
    [cooling] = texts(why)
    assert re.fullmatch(r"Quota api/acme cools down until 20\S+ \S+ \(in .*\), by ann since 20.*: 429 of acme", cooling)
    assert (why.codes, why.causes[0].frees) == (["waiting.cooldown"], "coordinator cool-down api/acme --why …")
    assert why.sentence == f"{cooling}."
    assert [row.code for row in coordinator.why_summary().rows] == ["waiting.cooldown"]
    coordinator.cool_down("api/acme")
    assert node.order() == ["j"]


def test_what_no_living_node_has_is_named_and_its_nodes_are_counted(node: Puppet, coordinator: Coordinator) -> None:
    gpu, other = Puppet(coordinator.store, "gpu"), Puppet(coordinator.store, "other")
    gpu.up(queue="gpu")
    other.nodes.register("other", "a", {"app": "other", "capacity": 1, "ordinary": 0, "load": 0}, ["app other"], ())
    for job_id, options, code, lacks in (
        ("queue", {"queue": "none"}, "rejected.queue", "none"),
        ("label", {"needs": ["fast"]}, "rejected.label", "fast"),
        ("task", {"task": "shop.unknown"}, "rejected.task", "shop.unknown"),
    ):
        node.submit(job_id, job_id=job_id, **options)
        why = coordinator.why(job_id)
        assert why.codes == ["waiting.node", "rejected.app", *(["rejected.queue"] * (code != "rejected.queue")), code]
        assert why.causes[0].text.startswith(f"No living node may run {job_id}: 1 not of the app shop, ")
        assert why.causes[0].text.endswith(f" {lacks}")
        assert why.causes[-1].facts["lacks"] == lacks
        assert sum(int(str(cause.facts["count"])) for cause in why.causes[1:]) == 3
        coordinator.cancel(job_id)
    assert why.causes[-1].text == "1 of 3 nodes without the task shop.unknown: one"
    assert why.causes[-1].frees == "coordinator retarget shop.unknown NEW --why …"
    node.submit("both", job_id="both", needs=["fast", "big one"])
    assert coordinator.why("both").causes[-1].frees == "COORDINATOR_LABELS='big one,fast' celery -A APP worker"
    coordinator.cancel("both")


def test_a_plain_clients_job_asks_for_no_app_and_a_step_for_its_own_queue(
    node: Puppet, coordinator: Coordinator
) -> None:
    made = coordinator.submit("a", {"task": "shop.unknown"}, if_unknown="wait")
    assert coordinator.why(made).codes == ["waiting.node", "rejected.task"]
    coordinator.cancel(made.id)
    node.submit("b", job_id="order")
    end(node, node.must_take(), "step", '"done"', 0, "shop\ngpu", "shop.other", 0)
    assert coordinator.why("order").codes == ["waiting.node", "rejected.queue"]
    coordinator.cancel("order")


def test_without_a_node_that_is_the_cause_and_with_one_its_room(coordinator: Coordinator) -> None:
    node = Puppet(coordinator.store)
    node.submit("a", job_id="j")
    node.submit("b", job_id="k")
    assert coordinator.why("j").codes == ["waiting.fleet"]
    assert texts(coordinator.why("j")) == ["No node is alive: j waits for one"]
    node.up(capacity=1)
    assert coordinator.why("k").codes == ["waiting.claim"]
    assert texts(coordinator.why("k")) == ["k waits for node one, which has room for it"]
    taken = node.must_take()
    other = "k" if taken.id == "j" else "j"
    why = coordinator.why(other)
    assert texts(why) == [
        f"{other} waits for a slot: none is free on one (1 of 1)",
        "1 of 1 nodes without a free slot: one (1 of 1)",
    ]
    assert why.codes == ["waiting.slot", "rejected.full"]
    node.lanes.drain("one", True, why="disk", by="ann")
    why = coordinator.why(other)
    assert why.codes == ["waiting.node", "rejected.drains"]
    assert why.causes[1].frees == "coordinator nodes undrain one --why …"
    node.finish(taken, next_token="two-token")
    coordinator.cancel(other)


def test_a_label_that_nodes_lost_says_which_and_why(node: Puppet, coordinator: Coordinator) -> None:
    def lost(store: Store) -> list[str]:
        return ["one is out of the replica set"]

    coordinator.needed_labels["document:d"] = lost
    node.submit("a", job_id="j", needs=["document:d"])
    why = coordinator.why("j")
    assert why.codes == ["waiting.node", "rejected.label", "rejected.lost"]
    assert texts(why)[-1] == "Label document:d was lost by nodes: one is out of the replica set"
    coordinator.cancel("j")


def test_instants_that_are_waited_for_are_roots(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="later", not_before=datetime.now(UTC) + timedelta(seconds=90))
    why = coordinator.why("later")
    (text,) = texts(why)
    assert text.startswith("later starts later, at 20")
    assert text.endswith(tuple(f"(in {left} s)" for left in range(85, 91)))
    assert why.codes == ["later.scheduled"]
    wait_until(lambda: list(coordinator.why("later").so_far) == ["later.scheduled"])  # once a millisecond has passed
    node.submit("a", job_id="tomorrow", not_before=datetime.now(UTC) + timedelta(hours=23, minutes=56, seconds=50))
    assert texts(coordinator.why("tomorrow"))[0].endswith("(in 23 h 56 min)")
    node.submit("b", job_id="again", max_attempts=2)
    end(node, node.must_take(), "raised", '{"type": "ValueError", "message": "no"}', 30000)
    node.submit("b", job_id="behind")
    why = coordinator.why("behind")
    behind, root = texts(why)
    assert behind == "behind is second in lane b, behind again"
    assert root.startswith("again failed in attempt 1 (ValueError: no), and is tried again at 20")
    assert re.search(r"\(in (30|2\d) s\)$", root)
    assert (why.codes, why.causes[-1].frees) == (["waiting.lane", "later.retry"], "coordinator retry again --why …")
    for job_id in ("later", "tomorrow", "behind", "again"):
        coordinator.cancel(job_id)


def test_a_parked_job_leads_to_the_sub_result_that_is_not_over(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="parent")
    parent = node.must_take()
    node.submit("b", job_id="child")
    child = node.must_take()
    end(node, parent, "parked", '{"ids": [null, "task", "child"], "one": false}')
    why = coordinator.why("parent")
    parked, root = texts(why)
    assert parked == "parent is parked until the end of 2 sub-results: task, child"
    assert root.startswith("child runs on node one")
    assert why.codes == ["parked.results", "running.job"]
    node.finish(child)
    node.store.step("child_began", "parent", "task", parent.fence, "one", "a")
    why = coordinator.why("parent")
    again, begun, rest, till = texts(why)
    assert (again, begun) == (parked, "parent is parked: its sub-task task was begun on node one")
    assert rest.startswith("parent is parked: 1 other sub-task not begun, or ended; a message that")
    assert "visibility_timeout" in rest
    assert till.startswith("parent is parked: its max_lifetime ends the wait at the latest: 20")
    assert why.codes == ["parked.results", "parked.begun", "parked.unbegun", "parked.until"]
    coordinator.cancel("parent")


def test_a_held_job_waits_for_an_operator_and_one_that_is_over_says_how(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="j", on_failure="hold")
    node.finish(node.must_take(), "failed")
    why = coordinator.why("j")
    assert re.fullmatch(r"j failed \d s ago \(Lost: detail\) and waits for you to retry or cancel it\.", why.sentence)
    assert (why.codes, why.causes[0].frees) == (["held"], "coordinator retry j --why …")
    coordinator.cancel("j", why="enough", by="ann")
    why = coordinator.why("j")
    assert why.sentence == "j was cancelled: Cancelled: enough (by ann)."
    assert why.codes == ["over"]


def test_a_rollback_says_whether_it_runs(node: Puppet, coordinator: Coordinator) -> None:
    undo = {"task": "shop.other", "args": [], "kwargs": {}, "options": {}}
    node.submit("a", job_id="j", rollback=undo)
    node.finish(node.must_take(), "failed")
    assert texts(coordinator.why("j")) == ["j is to be rolled back, and waits for node one, which has room for it"]
    assert [job.id for job in coordinator.jobs(state="rolling_back").jobs] == ["j"]
    taken = node.must_take()
    why = coordinator.why("j")
    assert why.codes == ["running.rollback"]
    assert "j is rolled back on node one" in why.sentence
    node.finish(taken)
    assert texts(coordinator.why("j")) == ["j failed and was rolled back: Lost: detail"]


def test_a_parked_rollback_says_what_it_waits_for(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="j", rollback={"task": "shop.other"})
    node.finish(node.must_take(), "failed")
    end(node, node.must_take(), "parked", '{"ids": ["x"], "one": true}')
    text = coordinator.why("j").sentence
    assert "its rollback is parked until the end of 1 sub-result: x" in text
    assert [job.id for job in coordinator.jobs(state="rolling_back").jobs] == ["j"]


def test_a_chain_names_its_step_and_a_job_its_progress(node: Puppet, coordinator: Coordinator) -> None:
    chain: Any = {"task": "celery.chain", "subtask_type": "chain", "args": [], "options": {}}
    chain["kwargs"] = {"tasks": [{"task": "shop.work", "options": {}}, {"task": "shop.other", "options": {}}]}
    coordinator.submit("a", chain, job_id="j")
    first = node.must_take()
    end(node, first, "step", '"done"', 0, "\ncelery", "shop.other", 0)
    second = node.must_take()
    coordinator._lanes.progress("j", second.token, 4, 10)
    (root,) = coordinator.why("j").causes
    assert root.text.endswith("attempt 1, step 2 of 2, 4 of 10 done (40 %)")
    assert (root.facts["step"], root.facts["percent"]) == (2, 40)
    coordinator.cancel("j")
    node.finish(second)


def test_a_job_that_is_stopped_and_one_whose_node_is_gone_say_so(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="j")
    node.must_take()
    coordinator.cancel("j", why="too long", by="me")
    why = coordinator.why("j")
    assert why.codes == ["running.stopping", "running.job"]
    assert why.sentence == "j is being stopped, to end as cancelled, by me: too long."
    node.nodes.leave("one", "a")
    why = coordinator.why("j")
    assert why.codes == ["running.orphan", "running.stopping", "running.job"]
    assert "j has lost its node one, which is not alive: another takes it when its lease ends, in " in why.sentence
    assert "running.orphan" not in why.so_far
    node.lapse("j")
    node.sweep()


def test_a_lock_in_plain_code_is_a_root_and_so_is_a_grab(coordinator: Coordinator, node: Puppet) -> None:
    with coordinator.lock("a") as lease:
        node.submit("a", job_id="j")
        why = coordinator.why("j")
        behind, root = texts(why)
        assert behind.startswith("j is second in lane a, behind ")
        assert re.search(r"is a lock in plain code, held for \d s", root)
        assert f"fence {lease.fence}" in why.causes[-1].detail
        assert why.codes == ["waiting.lane", "running.lock"]
    node.order()
    grab = coordinator.grab("report", "monday", "ann's laptop", ttl=30, keep=30)
    why = coordinator.why(key="report")
    assert why.codes == ["running.grab"]
    assert "is the grab of monday of report by ann's laptop (" in why.sentence
    assert why.causes[0].frees == "coordinator grabs release --attempt 1 report monday --why …"
    [lane] = coordinator.lanes("grab")
    assert coordinator.why(lane.jobs[0]).codes == ["running.grab"]
    grab.complete(None)


def test_a_job_that_collects_says_since_when_how_many_and_when_it_goes(node: Puppet, coordinator: Coordinator) -> None:
    for number in range(3):
        node.submit("k", args=(number,), collect={"how": "list", "idle": 60, "max_wait": 90}, job_id=f"call-{number}")
    why = coordinator.why("call-1")
    assert why.codes == ["later.collects"]
    assert re.search(
        r"call-0 collects calls \(list\) since 20.*Z, 3 so far: it goes into line at 20.*Z \(in \d+ s\), at the latest",
        why.sentence,
    )
    assert why.causes[0].frees == "coordinator flush call-0 --why …"
    assert coordinator.why(key="k").codes == ["lane.collects", "later.collects"]
    assert "Lane k has call-0 collect its calls" in coordinator.why(key="k").sentence
    assert coordinator.lane("k").collector == "call-0"
    node.nodes.leave("one", "a")
    assert coordinator.why("call-1").codes == ["later.collects", "waiting.fleet"]
    job = coordinator.job("call-2")
    assert job.collects == Collecting("list", 3, True, 10_000, 90.0)
    coordinator.cancel("call-0")
    assert coordinator.job("call-2").collects == Collecting("list", 3, False, 10_000, 90.0)


def test_orders_that_a_sorter_holds_say_until_when(node: Puppet, coordinator: Coordinator) -> None:
    node.nodes.leave("one", "a")
    sorter = coordinator.sorter("orders", 60)
    sorter.add("a", "k", {"task": "shop.work"}, if_unknown="wait")
    why = coordinator.why("orders/a")
    assert why.codes == ["later.sorter", "waiting.fleet"]
    assert "is held by the sorter orders until no more come: 20" in why.sentence
    sorter.add("b", "k", {"task": "shop.work"}, if_unknown="wait")
    overdue(coordinator.store)
    assert coordinator.store.step("sorter_flush", 1) == 1
    assert coordinator.why("orders/b").codes == ["later.flush", "waiting.fleet"]
    for job_id in ("orders/a", "orders/b"):
        coordinator.cancel(job_id)


def test_a_damaged_record_says_so(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="j")
    client: Any = node.store._client
    client.hset(node.store.key("job", "j"), "progress", "0.5/1.0")
    why = coordinator.why("j")
    assert (texts(why)[-1], why.codes[-1]) == ("j has a damaged record: progress", "damaged")
    node.order()


def test_a_lane_says_who_holds_it_and_where_its_first_job_stands(node: Puppet, coordinator: Coordinator) -> None:
    assert coordinator.why(key="a").codes == ["lane.free"]
    node.submit(["b"], job_id="before")
    node.submit(["b", "a"], job_id="j")
    why = coordinator.why(key="a")
    assert why.codes == ["lane.line", "waiting.lane", "waiting.claim"]
    taken = node.must_take()
    why = coordinator.why(key="b")
    assert why.sentence.startswith("Lane b is held by before; 1 job in line behind it. before runs on node one")
    assert why.codes == ["lane.held", "running.job"]
    coordinator.pause("b", by="ann")
    node.submit("b", job_id="last")
    for why in (coordinator.why(key="b"), coordinator.why("last")):
        assert " before runs on node one" in why.sentence
        assert why.sentence.startswith("Lane b is paused by ann since 20")
    assert why.codes == ["waiting.lane", "waiting.paused", "running.job"]
    coordinator.resume("b")
    node.finish(taken)
    assert node.order() == ["j", "last"]


def test_a_job_in_front_whose_lock_nobody_frees_says_that_it_is_next(node: Puppet, coordinator: Coordinator) -> None:
    """As after a fault: a lock without a job. A lock in plain code needs no node, and so waits for it in front."""
    client: Any = node.store._client
    client.set(node.store.key("lock", "a"), f"nobody {node.store.now() + 60_000}")
    node.store.step("lock_take", "l", "a", "queue", "token", 1000, 60_000, "")
    assert coordinator.why("l").codes == ["waiting.next"]
    node.store.step("lock_release", "l", "token")


def test_the_time_so_far_is_told_by_what_it_was_spent_on(node: Puppet, coordinator: Coordinator) -> None:
    client: Any = node.store._client
    now = node.store.now()

    def ago(name: str, seconds: int, job_id: str = "j") -> None:
        """As if this had happened so long ago."""
        client.hset(node.store.key("job", job_id), name, now - 1000 * seconds)

    def spent() -> Any:
        """The machine may be busy for a moment, but not for four seconds."""
        return pytest.approx({code: s for code, s in coordinator.why("j").so_far.items() if s > 4}, abs=4)

    node.submit("a", job_id="front")
    taken = node.must_take()
    node.submit("a", job_id="j", max_attempts=2)
    ago("submitted", 100)
    assert spent() == {"waiting.lane": 100}
    assert "  waited 100 s for its lane" in str(coordinator.why("j"))
    coordinator.pause("a", why="disk", by="ann")
    paused = json.loads(client.hget(node.store.key("paused"), "a"))
    client.hset(node.store.key("paused"), "a", json.dumps(paused | {"at": paused["at"] - 30_000}))
    assert spent() == {"waiting.lane": 70, "waiting.paused": 30}
    coordinator.resume("a")
    node.finish(taken)
    ago("readied", 40)
    in_line = {"waiting.lane": 60}
    assert spent() == in_line | {"waiting.claim": 40}
    taken = node.must_take()
    ago("started", 30)
    assert spent() == in_line | {"waiting.slot": 10, "running.job": 30}
    end(node, taken, "raised", '{"type": "ValueError", "message": "no"}', 60_000)
    assert spent() == in_line | {"waiting.slot": 10, "running.job": 30}
    assert re.search(r"  waited 6\d s for its lane, 1?\d s for a slot; ran [23]\d s", str(coordinator.why("j")))
    coordinator.cancel("j")


def test_the_time_that_a_job_lacked_a_quota_is_told(node: Puppet, coordinator: Coordinator) -> None:
    client: Any = node.store._client
    coordinator.quota("q", concurrency=1)
    node.submit([], job_id="user", uses="q")
    user = node.must_take()
    node.submit([], job_id="j", uses="q")
    now = node.store.now()
    client.hset(node.store.key("job", "j"), mapping={"submitted": now - 100_000, "lacked": now - 40_000})
    lacks = coordinator.why("j").so_far
    assert lacks == pytest.approx({"waiting.lane": 60, "waiting.quota": 40}, abs=4)
    [row] = coordinator.why_summary().rows
    assert (row.code, row.longest) == ("waiting.quota", pytest.approx(40, abs=4))
    node.finish(user)
    assert node.order() == ["j"]


def test_a_long_chain_is_followed_to_a_bound_and_the_answer_says_so(node: Puppet, coordinator: Coordinator) -> None:
    for n in range(30):
        node.submit([f"k{n}", f"k{n + 1}"], job_id=f"j{n:02}")
    why = coordinator.why("j29")
    assert (why.complete, len(why.causes)) == (False, 21)
    assert str(why).endswith("more causes follow")
    assert coordinator.why("j19").complete
    assert len(node.order()) == 30


def test_one_thing_is_explained_at_a_time_and_an_unknown_one_is_an_error(coordinator: Coordinator) -> None:
    with pytest.raises(UnknownJob):
        coordinator.why("nobody")
    with pytest.raises(InvalidJob, match="job or key or node or entry, not nothing"):
        coordinator.why()
    with pytest.raises(InvalidJob, match="not job, key"):
        coordinator.why("j", key="a")
    with pytest.raises(InvalidJob, match="not ship"):
        coordinator.why(ship="a")


def test_an_extension_explains_things_of_its_own(coordinator: Coordinator) -> None:
    def of_ship(name: str) -> Why:
        return Why(f"ship {name}", f"ship {name} sails", (), datetime.now(UTC))

    coordinator.extend(Extension("shop", why={"ship": of_ship}))
    assert coordinator.why(ship="ann").sentence == "ship ann sails"
    assert str(coordinator.why(ship="ann")).startswith("ship ann sails\n  as of 20")
    assert json.dumps(coordinator.why(ship="ann").codes) == "[]"
