"""Work that two nodes share: one at a time on a key, as many as may, none twice; also where supervisors are killed."""

import random
import threading
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from coordinator import Coordinator, InvalidJob, Sorter, Submission
from tests.coordinator.inbox.senders import SENDERS, WITH_KOMBU
from tests.coordinator.sorters.batches import names
from tests.fleet.mishaps import MODULE, tasks_of
from tests.fleet.test_inbox import is_known, runs
from tests.harness.fleet import Fleet, server_seconds
from tests.harness.installation import Stamp
from tests.harness.long import long
from tests.harness.standing import Node, forget
from tests.harness.waiting import wait_for_count, wait_until

NODE = Node("shop", 4, ("-I", MODULE), {"sweep": 0.1}, names=("one", "two"))


def intervals(stamps: list[Stamp]) -> dict[str, tuple[int, int]]:
    """Begin and end of each name."""
    begins = {stamp.name: stamp.at for stamp in stamps if stamp.what == "begin"}
    return {stamp.name: (begins[stamp.name], stamp.at) for stamp in stamps if stamp.what == "end"}


def overlap(spans: Any) -> bool:
    return any(following[0] < before[1] for before, following in pairwise(sorted(spans)))


def test_fifty_lanes_run_beside_each_other_and_each_in_order(fleet: Fleet) -> None:
    work = fleet.shop.work
    jobs = [(f"key/{i % 50}", work.s(f"{i % 50:02}.{i // 50}", 0.05)) for i in range(200)]
    for one in fleet.coordinator.submit_many(jobs):
        assert fleet.coordinator.wait(one.id, 60).state == "succeeded"
    spans = intervals(fleet.stamps())
    for lane in range(50):
        mine = [spans[f"{lane:02}.{i}"] for i in range(4)]
        assert mine == sorted(mine)
        assert not overlap(mine)
    assert overlap(spans.values())
    busiest = max(sum(begin <= at < end for begin, end in spans.values()) for at, _ in spans.values())
    assert busiest > 4, "more than one node holds"


def test_a_hundred_jobs_on_one_key_run_in_order_and_never_two_at_once(fleet: Fleet) -> None:
    work = fleet.shop.work
    jobs = fleet.coordinator.submit_many([("ledger", work.s(f"{i:03}", 0.005)) for i in range(100)])
    fleet.coordinator.wait(jobs[-1].id, 60)
    stamps = fleet.stamps()
    assert [stamp.name for stamp in stamps] == [name for i in range(100) for name in (f"{i:03}", f"{i:03}")]
    assert [stamp.what for stamp in stamps] == ["begin", "end"] * 100
    fences = [stamp.fence for stamp in stamps if stamp.what == "begin"]
    assert fences == sorted(set(fences))


def test_a_thousand_jobs_over_several_of_ten_keys_all_end_and_never_two_on_one(fleet: Fleet) -> None:
    chance = random.Random(5)
    coordinator, work = fleet.coordinator, fleet.shop.work
    keys = [f"k{i}" for i in range(10)]
    wanted = {f"j{i}": chance.sample(keys, chance.randint(2, 4)) for i in range(1000)}
    for node in fleet.nodes():
        coordinator.drain(node, why="all of them are to wait")
    coordinator.submit_many((keys, work.s(name), {"job_id": name}) for name, keys in wanted.items())
    for node in fleet.nodes():
        coordinator.undrain(node)
    for name in chance.sample(sorted(wanted), 200):
        try:
            coordinator.move(name, priority=chance.choice([None, -5, 5]), to=chance.choice(["back", "front"]))
        except InvalidJob:
            assert coordinator.job(name).state != "waiting"
    wait_for_count(lambda: coordinator.counts()["succeeded"], 1000, 60, lambda: str(coordinator.counts()))
    busy: dict[str, str] = {}
    for stamp in fleet.stamps():
        for key in wanted[stamp.name]:
            holder = busy.pop(key, "")
            assert holder == ("" if stamp.what == "begin" else stamp.name)
            if stamp.what == "begin":
                busy[key] = stamp.name
    assert busy == {}
    assert coordinator.lanes() == []


def test_a_quota_holds_on_a_fleet_and_one_that_uses_all_of_it_is_not_starved(fleet: Fleet) -> None:
    coordinator, work = fleet.coordinator, fleet.shop.work
    coordinator.quota("licence", concurrency=3)
    light = [coordinator.submit([], work.s(f"light{i}", 0.05), uses="licence").id for i in range(20)]
    heavy = coordinator.submit([], work.s("heavy", 0.1), uses="licence", exclusive=True).id
    light += [coordinator.submit([], work.s(f"light{i}", 0.05), uses="licence").id for i in range(20, 60)]
    wait_until(lambda: all(coordinator.job(one).over for one in (*light, heavy)), 60)
    stamps = fleet.stamps()
    assert max(at_once(stamps)) == 3
    began = [stamp.name for stamp in stamps if stamp.what == "begin"]
    place = began.index("heavy")
    assert sorted(began[:place]) == sorted(f"light{i}" for i in range(20))
    beside = [stamp.name for stamp in stamps if within(stamps, "heavy", stamp)]
    assert beside == ["heavy", "heavy"]
    coordinator.drop_quota("licence")


def at_once(stamps: list[Stamp]) -> list[int]:
    """How many were at work after each stamp."""
    found, now = [], 0
    for stamp in stamps:
        now += 1 if stamp.what == "begin" else -1
        found.append(now)
    return found


def within(stamps: list[Stamp], name: str, one: Stamp) -> bool:
    begin, end = (stamp.at for stamp in stamps if stamp.name == name)
    return begin <= one.at <= end


def test_of_many_submitters_one_wins_each_instance_and_a_node_does_it_once(fleet: Fleet) -> None:
    coordinator, work = fleet.coordinator, fleet.shop.work
    told: list[Submission] = []

    def compete(client: Coordinator) -> None:
        for number in range(8):
            told.append(client.submit("report", work.s(f"{number}", 0.1), instance=number))

    threads = [threading.Thread(target=compete, args=[coordinator]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(one.grab.won for one in told) == {True: 8, False: 24}
    ends = [coordinator.wait(one.id, 60) for one in told]
    assert {job.state for job in ends} == {"succeeded"}
    assert Counter(stamp.name for stamp in fleet.stamps(what="begin")) == Counter(map(str, range(8)))
    seen = {one.instance: one for one in coordinator.grabs("report")}
    assert len(seen) == 8
    for one in seen.values():
        assert one.winner
        assert (one.state, one.value, one.winner.host) == ("complete", one.instance, "test")
        assert one.winner.node in ("one@test", "two@test")


def test_many_optimistic_writers_on_two_nodes_add_up(fleet: Fleet) -> None:
    many, task = long(400, 1000), tasks_of(fleet).count_up.s()
    jobs = fleet.coordinator.submit_many([(f"writer/{i % 4}", task) for i in range(many)])
    for job in jobs:
        assert fleet.coordinator.wait(job.id, 60).state == "succeeded"
    with fleet.server.client(3) as record:
        assert record.get(f"{fleet.prefix}.record") == str(many)
        assert int(record.get(f"{fleet.prefix}.conflicts") or 0) > 0, "nobody met anybody"


@pytest.mark.broker
def test_any_number_of_requests_while_one_runs_make_one_more_run_that_does_all(fleet: Fleet) -> None:
    busy = fleet.coordinator.submit("inbox/a", fleet.shop.held.s("busy"))
    wait_until(lambda: "busy" in runs(fleet))
    senders = WITH_KOMBU if fleet.rabbitmq else SENDERS
    for number in range(30):
        senders[number % len(senders)](fleet, {"name": "a", "pid": f"P{number % 3}", "id": f"r{number}"})
    wait_until(lambda: all(is_known(fleet, f"r{number}") for number in range(30)), what=fleet.logs)
    assert fleet.coordinator.lane("inbox/a").length == 2
    fleet.go("busy")
    ids = {fleet.coordinator.wait(f"r{number}", 60).id for number in range(30)}
    assert fleet.coordinator.job(busy.id).state == "succeeded"
    assert len(ids) == 1
    (name,) = runs(fleet) - {"busy"}
    assert sorted(name.removeprefix("a:").split(",")) == ["P0", "P1", "P2"]


def add(fleet: Fleet, sorter: Sorter, *order_ids: str) -> None:
    for order_id in order_ids:
        sorter.add(order_id, "k", fleet.shop.work.s(order_id))


def begun(fleet: Fleet) -> list[str]:
    return [stamp.name for stamp in fleet.stamps(what="begin")]


def ran(fleet: Fleet, count: int, timeout: float = 60) -> list[str]:
    wait_for_count(lambda: fleet.coordinator.counts()["succeeded"], count, timeout, fleet.logs)
    return begun(fleet)


def flushing(fleet: Fleet) -> bool:
    return any(held.flushing for held in fleet.coordinator.sorters())


def test_orders_start_sorted_the_idle_time_after_the_last_of_them(fleet: Fleet) -> None:
    """As of 10 s and an order 3 s later, 2.5 times as fast."""
    sorter = fleet.coordinator.sorter("orders", idle_timeout=4)
    add(fleet, sorter, "cba")
    last = time.monotonic() + 1.2
    wait_until(lambda: time.monotonic() >= last)
    asked = server_seconds(fleet)
    add(fleet, sorter, "abc")
    assert ran(fleet, 2) == ["abc", "cba"]
    assert 4.0 <= fleet.stamps(what="begin")[0].at / 1e6 - asked + 0.01 < 30


def test_a_trickle_is_let_go_max_wait_after_its_first(fleet: Fleet) -> None:
    sorter = fleet.coordinator.sorter("orders", idle_timeout=3.0, max_wait=5.0)
    first, given = server_seconds(fleet), [f"{number:02}" for number in range(35, 0, -1)]
    for order_id in given:
        add(fleet, sorter, order_id)
        after = time.monotonic() + 0.3
        wait_until(lambda after=after: time.monotonic() >= after)  # type: ignore[misc]
    added, found = server_seconds(fleet), ran(fleet, len(given))
    began = fleet.stamps(what="begin")[0].at / 1e6
    assert began - first >= 5.0
    assert began < added, "it did not wait for the last"
    assert sorted(found) == sorted(given)
    assert found[0] < given[0], "the first batch was sorted"


def test_supervisors_killed_in_the_middle_of_a_flush_lose_and_double_nothing(fleet: Fleet) -> None:
    fleet.coordinator.pause("k", why="to see all of the line")
    sorter = fleet.coordinator.sorter("orders", idle_timeout=1)
    given, late = [f"{number:04}" for number in range(6000)], []
    add(fleet, sorter, *reversed(given))
    for kill in range(2):
        until = time.monotonic() + 20
        while not flushing(fleet) and fleet.coordinator.sorters() and time.monotonic() < until:
            pass  # a flush is over before `wait_until` looks twice
        for supervisor in [supervisor for worker in fleet.workers for supervisor in worker.supervisors()]:
            supervisor.kill()
        if flushing(fleet):
            late.append(f"0000-late-{kill}")
            add(fleet, sorter, late[-1])
    assert late, "no supervisor was killed in the middle of a flush"
    wait_until(lambda: not fleet.coordinator.sorters(), what=fleet.logs)
    assert names(fleet.coordinator.lane("k", 10000).jobs) == [*given, *late], "who came late belongs to the next batch"
    assert fleet.coordinator.counts()["created"] == len(given) + len(late)
    forget(fleet)  # so many jobs take their time to run
