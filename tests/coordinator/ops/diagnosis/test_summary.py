"""Why all waits that waits, in one table."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator import Coordinator
from coordinator.ops.diagnosis.summary import MEANS
from tests.harness.command import Call, loaded, told
from tests.harness.hand_node import Puppet, sketch


def counts(coordinator: Coordinator) -> dict[str, int]:
    return {row.code: row.count for row in coordinator.why_summary().rows}


def each_reason_finds_its_jobs(coordinator: Coordinator) -> None:
    rows = coordinator.why_summary().rows
    found = {row.code: [job.id for job in coordinator.jobs(reason=row.code).jobs] for row in rows}
    assert {code: len(ids) for code, ids in found.items()} == {row.code: row.count for row in rows}
    assert all(row.example in found[row.code] for row in rows)


def test_all_that_waits_is_counted_by_its_reason_with_the_longest_and_an_example(coordinator: Coordinator) -> None:
    assert coordinator.why_summary().rows == ()
    node = Puppet(coordinator.store)
    node.submit("none", job_id="first")
    assert counts(coordinator) == {"waiting.fleet": 1}
    node.up(capacity=2)
    node.must_take()
    coordinator.pause("paused")
    coordinator.quota("two", concurrency=2)
    coordinator.quota("cooled", concurrency=1)
    coordinator.cool_down("cooled", 3600)
    for key, number in (("none", 3), ("paused", 2)):
        for n in range(number):
            node.submit(key, job_id=f"{key}-{n}")
    for n in range(3):
        node.submit([], job_id=f"two-{n}", uses={"two": 1})
        if n == 0:
            assert node.must_take().id == "two-0"
    for n in range(2):
        node.submit([], job_id=f"cooled-{n}", uses="cooled")
    node.submit("gone", job_id="gone", task="shop.gone")
    node.submit("gpu", job_id="gpu", needs=["gpu"])
    node.submit("late", job_id="late", not_before=datetime.now(UTC) + timedelta(hours=1))
    coordinator.sorter("orders", 60).add("a", "k", {"task": "shop.work"}, if_unknown="wait")
    summary = coordinator.why_summary()
    assert {row.code: (row.count, row.example) for row in summary.rows} == {
        "waiting.lane": (3, "none-0"),
        "waiting.paused": (2, "paused-0"),
        "waiting.node": (2, "gone"),
        "waiting.cooldown": (2, "cooled-0"),
        "waiting.ready": (1, "two-2"),
        "waiting.slot": (1, "two-1"),
        "later.scheduled": (1, "late"),
        "later.sorter": (1, "orders/a"),
    }
    assert (summary.waiting, summary.complete) == (13, True)
    each_reason_finds_its_jobs(coordinator)
    [lacking] = [row for row in summary.rows if row.code == "waiting.node"]
    assert lacking.facts == {"lacks": {"without the label gpu": 1, "without the task shop.gone": 1}}
    assert all(0 <= (row.longest or 0) < 60 for row in summary.rows)


def test_jobs_that_collect_calls_are_counted_by_that(coordinator: Coordinator, node: Puppet) -> None:
    for number in range(3):
        node.submit(f"k{number % 2}", job_id=f"call-{number}", collect={"idle": 60})
    assert {row.code: (row.count, row.example) for row in coordinator.why_summary().rows} == {
        "later.collects": (2, "call-0")
    }
    assert [job.id for job in coordinator.jobs(state="collecting").jobs] == ["call-0", "call-1"]
    for job_id in ("call-0", "call-1"):
        coordinator.cancel(job_id)


def test_the_command_shows_the_summary_as_a_table_and_as_json(node: Puppet, call: Call) -> None:
    assert told(call("why", "--summary")) == "nothing waits"
    for n in range(3):
        node.submit("a", job_id=f"j{n}")
    heads, first, second, last = told(call("why", "--summary")).splitlines()
    assert heads.split() == ["CODE", "JOBS", "LONGEST", "EXAMPLE", "THEY"]
    assert first.split()[:5] == ["waiting.lane", "2", "0", "s", "j1"]
    assert second.split()[0] == "waiting.claim"
    assert last.startswith("3 wait, as of 20")
    assert loaded(call("why", "--summary", "--json"))["rows"][0]["example"] == "j1"
    assert "do not name a job or another thing" in call("why", "--summary", "j").stderr
    assert node.order() == ["j0", "j1", "j2"]


def test_those_that_were_started_and_wait_again_are_counted_by_their_states(
    coordinator: Coordinator, node: Puppet
) -> None:
    for job_id, kind, detail, options in (
        ("again", "raised", '{"type": "ValueError", "message": "no"}', {"max_attempts": 2}),
        ("parked", "parked", '{"ids": ["x"], "one": true}', {}),
        ("held", "failed", '"no"', {"on_failure": "hold"}),
    ):
        node.submit(job_id, job_id=job_id, **options)
        taken = node.must_take()
        node.store.step(
            "job_finish", job_id, taken.token, kind, detail, 30_000, "", "", "", "", "one", taken.runner, "", 60_000
        )
    node.submit("free", job_id="free")
    found = {row.code: row.example for row in coordinator.why_summary().rows}
    assert found == {"later.retry": "again", "parked.results": "parked", "held": "held", "waiting.claim": "free"}
    assert MEANS.keys() >= found.keys()
    for job_id in ("again", "parked", "held"):
        coordinator.cancel(job_id)


@pytest.fixture
def crowd(coordinator: Coordinator, node: Puppet) -> Coordinator:
    """10,000 jobs in one line, and one in each of 3,000 lanes; 100,000 lanes by name."""
    node.lanes.submit_many(sketch("long", job_id=f"long-{n}") for n in range(10_000))
    node.lanes.submit_many(sketch(f"lane/{n}") for n in range(3_000))
    client: Any = coordinator.store._client
    client.zadd(coordinator.store.key("lanes"), {f"empty/{n}": 0 for n in range(97_000)})
    return coordinator


def test_an_answer_costs_a_bounded_number_of_commands(crowd: Coordinator, node: Puppet) -> None:
    client: Any = crowd.store._client

    def cost(ask: Any) -> int:
        before = client.info("commandstats")
        ask()
        after = client.info("commandstats")
        calls = {name: stats["calls"] - before.get(name, {"calls": 0})["calls"] for name, stats in after.items()}
        return int(sum(calls.values()))

    assert crowd.why("long-9999").causes[0].facts["ahead"] == 9_999
    assert cost(lambda: crowd.why("long-9999")) < 60
    assert cost(lambda: crowd.why(key="long")) < 60
    assert cost(lambda: crowd.why(node="one")) < 1_100
    assert cost(crowd.why_summary) < 4_000
    node.up()  # it has sent no heartbeat for seconds
    summary = crowd.why_summary()
    assert {row.code: row.count for row in summary.rows} == {"waiting.lane": 9_999, "waiting.claim": 3_001}
    assert not summary.complete
