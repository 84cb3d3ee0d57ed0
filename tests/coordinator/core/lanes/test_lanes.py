"""Lines of jobs, beside what the plain model proves of them (tests/proof/test_model.py): order, skips, several keys."""

from decimal import Decimal
from typing import Any

import pytest

from coordinator import InvalidJob, StoreUnavailable
from coordinator.core.lanes.client import LaneClient
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.local.redis import free_port
from tests.harness.hand_node import Puppet, sketch


@pytest.mark.parametrize("given", [{"a": "skip"}, {"a": "skip", "b": "defer"}, {"a": "skip", "b": "skip", "c": "skip"}])
def test_when_busy_of_each_key_names_all_keys_and_knows_no_coalescing(node: Puppet, given: dict[str, str]) -> None:
    with pytest.raises(InvalidJob, match="when_busy"):
        node.submit(["a", "b"], when_busy=given)


@pytest.mark.parametrize(
    "other",
    [
        {"args": (2,)},
        {"kwargs": {"x": 1}},
        {"task": "shop.other"},
        {"queue": "slow"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_defer_coalesces_only_into_the_same_task_with_the_same_arguments(node: Puppet, other: dict[str, Any]) -> None:
    node.up(queue="slow", tasks=("shop.work", "shop.other"))
    node.submit("a", when_busy="defer", args=(1,), job_id="one")
    assert node.submit("a", when_busy="defer", **{"args": (1,), **other}).outcome == "queued"
    for job_id in node.lanes.lane("a").jobs:
        node.lanes.cancel(job_id)


def test_equal_arguments_coalesce_however_they_are_written(node: Puppet) -> None:
    here: dict[str, Any] = {"args": ((1, 2), Decimal(3)), "kwargs": {"a": {1: "x\ud800", "b": 2}, "c": True}}
    there: dict[str, Any] = {"args": [[1.0, 2], Decimal(3)], "kwargs": {"c": True, "a": {"b": 2, "1": "x\ud800"}}}
    node.submit("a", when_busy="defer", job_id="one", **here)
    assert node.submit("a", when_busy="defer", **there).of == "one"
    with pytest.raises(InvalidJob, match="argument 0 is not JSON: set"):
        node.submit("a", when_busy="defer", args=({1},))


def test_names_with_colons_do_not_collide(node: Puppet) -> None:
    for key in ("a", "a:b", "a:b:c", "line:a", "{a}"):
        assert node.submit(key, job_id=f"{key}:x").outcome == "started"
    assert len(node.order()) == 5


def test_a_redis_that_is_away_names_the_id_to_ask_again_with() -> None:
    lanes = LaneClient(Store(Settings.load({"url": f"redis://127.0.0.1:{free_port()}/0", "timeout": 0.5}, {}, {})))
    with pytest.raises(StoreUnavailable) as unknown:
        lanes.submit(sketch("a", job_id="mine"))
    assert unknown.value.job_id == "mine"
