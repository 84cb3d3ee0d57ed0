"""Lines of jobs: who is let in, in which order, and how a job leaves."""

from typing import Any

import pytest

from coordinator import InvalidJob, StoreUnavailable, UnknownJob
from coordinator.lanes.client import LaneClient
from coordinator.local.redis import free_port
from coordinator.settings import Settings
from coordinator.store.client import Store
from tests.harness.hand_node import Puppet, sketch


def test_jobs_leave_a_lane_in_the_order_of_their_submits(node: Puppet) -> None:
    ids = [node.submit("a").id for _ in range(20)]
    assert node.order() == ids


def test_skip_is_refused_while_the_lane_is_busy_and_writes_nothing(node: Puppet) -> None:
    assert node.submit("a", when_busy="skip", job_id="in").outcome == "started"
    before = node.names()
    skipped = node.submit("a", when_busy="skip", job_id="out")
    assert (skipped.outcome, skipped.accepted) == ("skipped", False)
    assert node.names() == before
    with pytest.raises(UnknownJob):
        node.lanes.job("out")
    node.order()
    assert node.submit("a", when_busy="skip").outcome == "started"
    node.order()


def test_skip_may_look_at_one_key_while_the_job_stands_in_line_for_another(node: Puppet) -> None:
    keys, when_busy = ["item", "pool"], {"item": "skip", "pool": "queue"}
    node.submit("pool")
    assert node.submit(keys, when_busy=when_busy, job_id="in").outcome == "queued"
    assert node.submit(keys, when_busy=when_busy, job_id="out").outcome == "skipped"
    assert node.submit(["pool", "item"], when_busy=when_busy, job_id="out").outcome == "skipped"
    assert list(node.order())[1:] == ["in"]


@pytest.mark.parametrize("given", [{"a": "skip"}, {"a": "skip", "b": "defer"}, {"a": "skip", "b": "skip", "c": "skip"}])
def test_when_busy_of_each_key_names_all_keys_and_knows_no_coalescing(node: Puppet, given: dict[str, str]) -> None:
    with pytest.raises(InvalidJob, match="when_busy"):
        node.submit(["a", "b"], when_busy=given)


def test_a_coalesced_id_stays_an_alias_of_the_job_it_coalesced_into(node: Puppet) -> None:
    node.submit("a", when_busy="defer", job_id="first")
    node.submit("a", when_busy="defer", job_id="second")
    assert node.lanes.job("second").id == "first"
    assert node.submit("a", when_busy="defer", job_id="second").outcome == "duplicate"
    node.order()
    assert node.lanes.wait("second", 1).state == "succeeded"
    begun, micro = node.store._client.time()
    left = (node.store._client.zscore(node.store.key("coalesced"), "first") or 0) - begun * 1000 - micro // 1000
    assert 3_000_000 < left <= 3_600_000, "it is forgotten with the job"


@pytest.mark.parametrize(
    "other",
    [
        {"args": (2,)},
        {"kwargs": {"x": 1}},
        {"task": "shop.other"},
        {"queue": "slow"},
        {"merge_args": {"pids": ["P"]}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_defer_coalesces_only_into_the_same_task_with_the_same_arguments(node: Puppet, other: dict[str, Any]) -> None:
    node.up(queue="slow", tasks=("shop.work", "shop.other"))
    node.submit("a", when_busy="defer", args=(1,), job_id="one")
    assert node.submit("a", when_busy="defer", **{"args": (1,), **other}).outcome == "queued"
    for job_id in node.lanes.lane("a").jobs:
        node.lanes.cancel(job_id)


def test_what_coalesces_is_united_and_everything_wins(node: Puppet) -> None:
    def ask(*pids: str) -> None:
        node.submit("a", when_busy="defer", merge_args={"pids": pids or None})

    node.submit("a")
    taken = node.must_take()
    ask("P1")
    ask("P2", "P1")
    waiting = node.lanes.lane("a").jobs[1]
    assert sorted(node.lanes.job(waiting).kwargs["pids"]) == ["P1", "P2"]
    ask()
    ask("P3")
    assert node.lanes.job(waiting).kwargs == {"pids": None}
    node.finish(taken)
    assert node.order() == [waiting]


@pytest.mark.parametrize(("number", "length"), [(1500, 1), (2, 90_000)], ids=["many", "long"])
def test_what_a_job_cannot_unite_any_more_waits_in_one_behind_it(node: Puppet, number: int, length: int) -> None:
    def ask(part: int) -> str:
        pids = [f"{part}/{one}" + "x" * length for one in range(number)]
        asked.extend(pids)
        return node.submit("a", when_busy="defer", merge_args={"pids": pids}).outcome

    asked: list[str] = []
    node.submit("a", job_id="running")
    outcomes = [ask(part) for part in range(14)]
    assert outcomes.count("queued") == 3
    waiting = node.lanes.lane("a").jobs[1:]
    known = [node.lanes.job(one).kwargs["pids"] for one in waiting]
    assert sorted(pid for pids in known for pid in pids) == sorted(asked)
    node.finish(node.must_take())
    first = node.must_take()
    assert node.submit("a", when_busy="defer", merge_args={"pids": ["late"]}).outcome == "coalesced"
    assert "late" in node.lanes.job(waiting[-1]).kwargs["pids"]
    node.finish(first)
    assert node.order() == [*waiting[1:]]
    assert not [name for name in node.names() if ":equal:" in name]


def test_texts_survive_being_united(node: Puppet) -> None:
    odd = ["doi:10.5063/AA/x", 'quote"back\\slash', "Ümlaut ☃", "per%cent?#"]
    node.submit("a", when_busy="defer", merge_args={"pids": odd[:2]}, job_id="one")
    node.submit("a", when_busy="defer", merge_args={"pids": odd[2:]})
    assert sorted(node.lanes.job("one").kwargs["pids"]) == sorted(odd)
    node.order()


def test_a_job_with_several_keys_runs_when_it_is_in_front_in_all_of_them(node: Puppet) -> None:
    node.submit("a", job_id="a")
    node.submit("b", job_id="b")
    assert node.submit(["a", "b"], job_id="both").outcome == "queued"
    assert node.submit("b", job_id="behind").outcome == "queued"
    first, second = node.must_take(), node.must_take()
    node.finish(first)
    assert node.take() is None
    assert node.lanes.job("both").state == "waiting"
    node.finish(second)
    both = node.must_take()
    assert both.id == "both"
    assert node.take() is None
    assert [node.locked_by(key) for key in "ab"] == [both.token] * 2
    node.finish(both)
    assert node.order() == ["behind"]


def test_names_with_colons_do_not_collide(node: Puppet) -> None:
    for key in ("a", "a:b", "a:b:c", "line:a", "{a}"):
        assert node.submit(key, job_id=f"{key}:x").outcome == "started"
    assert len(node.order()) == 5


def test_a_redis_that_is_away_names_the_id_to_ask_again_with() -> None:
    lanes = LaneClient(Store(Settings.load({"url": f"redis://127.0.0.1:{free_port()}/0", "timeout": 0.5}, {}, {})))
    with pytest.raises(StoreUnavailable) as unknown:
        lanes.submit(sketch("a", job_id="mine"))
    assert unknown.value.job_id == "mine"
