"""Many jobs in one call: as one by one, none where one is wrong, and named where nobody heard what became of them."""

from typing import Any

import pytest

from coordinator import Coordinator, InvalidJob, LaneFull, StoreUnavailable
from tests.coordinator.conftest import ClientAt
from tests.harness.hand_node import Puppet, sketch
from tests.harness.proxy import Proxy


def test_many_are_submitted_as_one_by_one(node: Puppet) -> None:
    found = node.lanes.submit_many(sketch(f"k{i % 7}", job_id=f"j{i}") for i in range(450))
    assert [one.id for one in found] == [f"j{i}" for i in range(450)]
    assert [one.outcome for one in found].count("started") == 7
    again = node.lanes.submit_many([sketch("k0", job_id="j0"), sketch("k0", when_busy="skip")])
    assert [one.outcome for one in again] == ["duplicate", "skipped"]
    assert len(node.order()) == 450


def test_of_many_none_is_written_when_one_is_wrong(node: Puppet, coordinator: Coordinator) -> None:
    signature = {"task": "shop.work"}
    jobs = [("a", signature), ("b", signature, {"when_busy": "sometimes"})]
    with pytest.raises(InvalidJob, match="sometimes"):
        coordinator.submit_many(jobs)
    assert not coordinator.counts()["created"]


def test_many_whose_answer_was_lost_are_asked_for_again_by_their_ids(
    proxy: Proxy, client_at: ClientAt, node: Puppet
) -> None:
    client = client_at(proxy.url(), timeout=5)
    signature = {"task": "shop.work"}
    many: list[Any] = [(f"k{i}", signature, {"priority": 7 if i >= 200 else 0}) for i in range(203)]
    proxy.lose_reply(containing=b"priority")  # the second round trip is done, and nobody hears of it
    with pytest.raises(StoreUnavailable) as unknown:
        client.submit_many(many)
    ids = unknown.value.job_ids
    assert len(set(ids)) == 203
    again = [(key, how, {**options, "job_id": one}) for (key, how, options), one in zip(many, ids, strict=True)]
    assert [one.outcome for one in client.submit_many(again)] == ["duplicate"] * 203
    assert client.counts()["created"] == 203


def test_many_of_which_one_found_its_lane_full_are_named(node: Puppet) -> None:
    asked = [sketch("a", max_waiting=2) for _ in range(5)]
    with pytest.raises(LaneFull) as full:
        node.lanes.submit_many(asked)
    assert full.value.job_ids == tuple(one.id for one in asked)
    assert set(node.order()) < set(full.value.job_ids)
