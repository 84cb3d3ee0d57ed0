"""Jobs counted by the beginnings of their keys: exact, sorted, bounded in rows and in time."""

import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from coordinator import Coordinator, InvalidJob, Tenant, Tenants
from coordinator.ops.readings import TENANT_SORTS
from coordinator.ops.search import tenants
from coordinator.ops.search.tenants import TenantSort
from tests.harness.hand_node import Puppet, sketch
from tests.harness.redis import RedisServer


def row(found: Tenants, prefix: str) -> Tenant:
    [one] = [one for one in found.tenants if one.prefix == prefix]
    return one


def waiting(found: Tenants) -> dict[str, int]:
    return {one.prefix: one.waiting for one in found.tenants}


def fill(node: Puppet, keys: Iterable[str]) -> None:
    node.lanes.submit_many(map(sketch, keys))


def below(prefix: str, key: str) -> str:
    """The row below a prefix to which a key belongs."""
    segment, slash, _ = key[len(prefix) :].partition("/")
    return prefix + segment + slash


def test_a_row_has_what_waits_in_all_lanes_whose_keys_begin_so_and_a_click_leads_deeper(
    node: Puppet, coordinator: Coordinator
) -> None:
    fill(node, ["tenant/a/1"] * 3 + ["tenant/a/2", "tenant/b/1", "solo", "solo"])
    assert waiting(coordinator.tenants()) == {"tenant/": 5, "solo": 2}
    found = coordinator.tenants("tenant/")
    assert (waiting(found), found.waiting, found.lanes, found.more) == ({"tenant/a/": 4, "tenant/b/": 1}, 5, 3, 0)
    deep = coordinator.tenants("tenant/a/*")
    kinds = [(one.prefix, one.kind, one.lanes, one.waiting) for one in deep.tenants]
    assert kinds == [("tenant/a/1", "lane", 1, 3), ("tenant/a/2", "lane", 1, 1)]
    assert deep.complete
    assert coordinator.tenants("nobody/").tenants == ()


@pytest.mark.parametrize("begin", ["", "a/", "a/b/", "c", "d/d/"])
def test_all_rows_together_are_all_that_was_submitted(node: Puppet, coordinator: Coordinator, begin: str) -> None:
    """Also where a step reads only a part of a group's lanes, and where keys are beginnings of others."""
    chance = random.Random(begin)
    shapes = ["a/b/{}", "a/b/{}/x", "a/{}", "{}", "c{}", "d/d/{}", "d/e"]
    keys = [chance.choice(shapes).format(chance.randrange(90)) for _ in range(1500)]
    keys += ["a", "a/", "a//", "a/b", "a/b/", "/", "//x", "é/ü", "\U0010ffff/x"]
    fill(node, keys)
    running = [coordinator.job(taken.id).key for taken in node.take_all()]
    coordinator.pause("a/b/paused")
    coordinator.pause(keys[0])
    wanted = [key for key in keys if key.startswith(begin)]
    work = Counter(below(begin, key) for key in running if key.startswith(begin))
    jobs = Counter(below(begin, key) for key in wanted)
    jobs.subtract(work)
    lanes = Counter(below(begin, key) for key in {*wanted, *(["a/b/paused"] if "a/b/paused".startswith(begin) else [])})
    found = coordinator.tenants(begin, most=1000, seconds=None)
    assert {one.prefix: one.lanes for one in found.tenants} == lanes
    assert waiting(found) == {name: jobs[name] for name in lanes}
    assert {one.prefix: one.running for one in found.tenants if one.running} == work
    assert (found.waiting, found.running, found.lanes) == (jobs.total(), work.total(), lanes.total())
    for most in (1, 7):
        few = coordinator.tenants(begin, most=most)
        assert [one.waiting for one in few.tenants] == sorted(jobs.values(), reverse=True)[:most]
        assert (few.more, few.waiting) == (len(lanes) - len(few.tenants), jobs.total())


def test_a_lane_whose_key_is_itself_a_beginning_counts_below_it_wherever_a_step_stops(
    node: Puppet, coordinator: Coordinator
) -> None:
    fill(node, [f"m{number:02}" for number in range(99)] + ["n/"] + [f"n/{number}" for number in range(150)])
    assert row(coordinator.tenants(most=200), "n/").lanes == 151
    deep = coordinator.tenants("n/", most=1000)
    assert (row(deep, "n/").kind, len(deep.tenants), deep.waiting) == ("lane", 151, 151)


def test_a_job_with_several_keys_waits_in_each_lane_and_runs_once(node: Puppet, coordinator: Coordinator) -> None:
    for _ in range(2):
        node.submit(["a/1", "a/2", "b/1"])
    assert node.take()
    found = coordinator.tenants()
    assert [(one.prefix, one.waiting, one.running) for one in found.tenants] == [("a/", 2, 1), ("b/", 1, 1)]
    assert (found.waiting, found.running, found.slots) == (3, 1, 4)
    assert [one.share for one in found.tenants] == [0.25, 0.25]


def test_a_lock_holds_its_lane_and_takes_no_slot(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("licence", concurrency=2)
    with coordinator.lock("door/1"), coordinator.lock(uses="licence"):
        node.submit("door/1")
        found = coordinator.tenants()
        door, keyless = row(found, "door/"), row(found, "")
        assert (door.waiting, door.running, door.share) == (1, 1, 0.0)
        assert (keyless.kind, keyless.waiting, keyless.running, keyless.lanes) == ("keyless", 0, 1, 0)
        assert [quota.name for quota in keyless.quotas] == ["licence"]
    assert waiting(coordinator.tenants()) == {"door/": 1}


def test_jobs_without_a_key_have_a_row_of_their_own_at_the_top_alone(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("mail", concurrency=1)
    for _ in range(3):
        node.submit([], uses="mail")
    node.submit("a/1")
    node.take_all()
    keyless = row(coordinator.tenants(), "")
    assert (keyless.kind, keyless.waiting, keyless.running, keyless.share) == ("keyless", 2, 1, 0.25)
    assert [one.prefix for one in coordinator.tenants("a/").tenants] == ["a/1"]


def test_a_paused_lane_without_jobs_counts_as_a_lane_in_which_nobody_waits(
    node: Puppet, coordinator: Coordinator
) -> None:
    fill(node, ["a/1", "a/1", "a/2"])
    for key in ("a/1", "a/3", "b/1"):
        coordinator.pause(key)
    found = coordinator.tenants()
    assert [(one.prefix, one.lanes, one.paused, one.waiting) for one in found.tenants] == [
        ("a/", 3, 2, 3),
        ("b/", 1, 1, 0),
    ]
    deep = [(one.prefix, one.paused, one.waiting) for one in coordinator.tenants("a/").tenants]
    assert deep == [("a/1", 1, 2), ("a/2", 0, 1), ("a/3", 1, 0)]
    assert coordinator.tenants().waiting == 3


def test_what_failed_in_the_last_hour_is_counted_also_where_no_lane_is_left(
    node: Puppet, coordinator: Coordinator
) -> None:
    for key in ("a/1", "a/2", "b/1", "c/1"):
        node.submit(key, job_id=key)
        node.finish(node.must_take(), "succeeded" if key == "c/1" else "failed")
    long_ago = coordinator.store.now() - 3_601_000
    coordinator.store._client.zadd(coordinator.store.key("ended:failed"), {"a/2": long_ago})
    coordinator.store._client.hset(coordinator.store.key("job", "a/2"), "ended", long_ago)
    fill(node, ["a/1"])
    found = coordinator.tenants(sort="failed")
    assert [(one.prefix, one.failed, one.lanes) for one in found.tenants] == [("a/", 1, 1), ("b/", 1, 0)]
    assert (found.failed, coordinator.tenants("b/").failed) == (2, 1)
    assert coordinator.tenants(most=1).more == 1
    coordinator.retry("b/1", why="so")
    assert [(one.prefix, one.failed) for one in coordinator.tenants().tenants] == [("a/", 1), ("b/", 0)]
    hour = datetime.now(UTC) - found.failed_since
    assert timedelta(minutes=59) < hour < timedelta(minutes=61)


def test_failures_are_counted_since_when_redis_has_them_all(
    redis_server: RedisServer, prefix: str, coordinator: Coordinator
) -> None:
    now, client = coordinator.store.now(), coordinator.store._client
    client.zadd(coordinator.store.key("ended-before:expired"), {"older": now - 60_000, "newer": now - 1000})
    found = coordinator.tenants()
    assert abs((datetime.now(UTC) - found.failed_since).total_seconds() - 60) < 30
    client.delete(coordinator.store.key("ended-before:expired"))
    with Coordinator(url=redis_server.url(0), prefix=prefix, keep_failure=600) as brief:
        assert abs((datetime.now(UTC) - brief.tenants().failed_since).total_seconds() - 600) < 30


def test_rows_are_sorted_by_any_column(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.weight("b", 3, why="they pay")
    node.submit("d/1")
    node.finish(node.must_take(), "failed")
    fill(node, ["c/1"])
    node.must_take()
    with coordinator.lock("e/1"), coordinator.lock("e/2"):
        fill(node, ["a/1"] * 4 + ["b/1", "b/2", "b/3"])
        first = {sort: coordinator.tenants(sort=sort, most=1).tenants[0].prefix for sort in get_args(TenantSort)}
        assert first == {
            "waiting": "a/", "running": "e/", "failed": "d/", "slots": "c/", "lanes": "b/", "weight": "b/",
            "prefix": "a/",
        }  # fmt: skip
        assert [one.prefix for one in coordinator.tenants(sort="prefix").tenants] == ["a/", "b/", "c/", "d/", "e/"]
    assert [*TENANT_SORTS] == [*get_args(TenantSort)]


def test_a_flat_population_has_few_rows_and_says_how_many_more_there_are(
    node: Puppet, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "_PORTION", 100)
    fill(node, [f"k/{number}" for number in range(700)] + ["k/77"] * 5 + ["k/a/1", "k/a/2", "k/b/1"])
    found = coordinator.tenants("k/", most=5)
    assert (len(found.tenants), found.more, found.waiting) == (5, 697, 708)
    assert [(one.prefix, one.waiting) for one in found.tenants[:2]] == [("k/77", 6), ("k/a/", 2)]
    look = tenants._Look(coordinator.store, "k/", 5, None)
    look.read()
    assert len(look.rows) < 20  # the others are counted, and not held in memory
    fill(node, [f"pair/{number}" for number in range(2200) for _ in range(2)] + ["pair/9"] * 3)
    look = tenants._Look(coordinator.store, "pair/", 5, None)
    look.read()
    assert (look.waiting, look.count(), look.rows["pair/9"].waiting) == (4403, 2200, 5)
    assert len(look.rows) < 1500  # the second portion names only lanes that are longer


@pytest.fixture
def flood(node: Puppet, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """Many small tenants, and behind them two large ones: one with many lanes, one with a long line."""
    monkeypatch.setattr(tenants, "_PORTION", 100)
    monkeypatch.setattr(tenants, "_SPREAD", 10)
    fill(node, [f"few-{number:03}/x" for number in range(400)])
    fill(node, [f"z-many/{number}" for number in range(400)] + ["z-long/1"] * 500)
    return coordinator


def test_a_look_that_is_cut_short_names_the_large_ones_wherever_they_are(flood: Coordinator) -> None:
    whole, cut = flood.tenants(seconds=None), flood.tenants(seconds=0)
    assert (whole.complete, cut.complete, whole.more) == (True, False, 352)
    assert list(waiting(cut).items())[:2] == [("z-long/", 500), ("z-many/", 400)]
    assert (cut.waiting, cut.lanes, whole.waiting) == (1300, 801, 1300)
    assert cut.more < whole.more


def test_a_look_that_is_cut_short_says_less_and_never_more(
    flood: Coordinator, node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, [f"z-pair/{number}" for number in range(1500) for _ in range(2)])
    whole, cut = flood.tenants("", seconds=None), flood.tenants("", seconds=0)
    assert row(whole, "z-pair/").waiting == 3000
    assert 1500 <= row(cut, "z-pair/").waiting < 3000
    assert cut.waiting < whole.waiting
    flat = flood.tenants("z-pair/", seconds=0)
    assert (flat.complete, flat.lanes, {one.waiting for one in flat.tenants}) == (False, 1500, {2})


@pytest.mark.parametrize("part", [0.6, 0.8, 1])
def test_each_walk_that_is_cut_short_is_told(flood: Coordinator, monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    assert flood.tenants(seconds=None).complete
    pairs = [f"pair/{number}" for number in range(1200) for _ in range(2)]
    fill(Puppet(flood.store), pairs)
    monkeypatch.setattr(tenants._Look, "_late", lambda _, at: at == part)
    assert not flood.tenants().complete


def test_the_weight_is_that_of_the_group_in_which_the_jobs_share_slots(
    node: Puppet, coordinator: Coordinator, redis_server: RedisServer, prefix: str
) -> None:
    coordinator.weight("tenant", 2, why="so")
    coordinator.weight("acme", 3, why="they pay")
    coordinator.weight("", 5, why="without a slash")
    fill(node, ["tenant/acme/1", "solo"])
    assert [(one.prefix, one.group, one.weight) for one in coordinator.tenants().tenants] == [
        ("solo", "", 5.0),
        ("tenant/", "tenant", 2.0),
    ]
    deep = row(coordinator.tenants("tenant/"), "tenant/acme/")
    assert (deep.group, deep.weight) == ("tenant", 2.0)
    with Coordinator(url=redis_server.url(0), prefix=prefix, fair_by=lambda key: key.split("/")[1]) as other:
        other.submit("shop/acme/1", {"task": "shop.work"})
        other.submit(["shop/acme/2", "other/1"], {"task": "shop.work"})
    assert row(coordinator.tenants(), "other/").group == "other"  # a job has the group of its first key
    named = row(coordinator.tenants("shop/"), "shop/acme/")
    assert (named.group, named.weight) == ("acme", 3.0)


def test_quotas_are_those_that_the_jobs_use_and_the_one_of_the_same_name(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("tenant/*", concurrency=5)
    coordinator.quota("licence", concurrency=1)
    coordinator.quota("other", concurrency=1)
    coordinator.quota("*", concurrency=9)
    node.submit("tenant/acme/1", uses="licence")
    node.submit("plain/1", uses="rare")
    node.must_take()
    node.submit("tenant/acme/2", uses="licence")
    node.submit("tenant/beta/2")

    def of(prefix: str, name: str) -> list[tuple[str, Any]]:
        return [(quota.name, quota.concurrency) for quota in row(coordinator.tenants(prefix), name).quotas]

    assert of("tenant/", "tenant/acme/") == [("tenant/acme", 5), ("licence", 1)]
    assert of("tenant/", "tenant/beta/") == [("tenant/beta", 5)]
    assert of("", "plain/") == [("rare", 9)]
    assert of("", "tenant/") == [("licence", 1)]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sort": "size"}, "sort 'size': one of waiting, running"),
        ({"most": 0}, "most is a whole number from 1"),
        ({"seconds": -1}, "seconds is a number of seconds from 0"),
        ({"prefix": 7}, "prefix is text"),
        ({"prefix": "\ud800"}, "is no text that Redis can keep"),
    ],
)
def test_wrong_arguments_are_refused_by_their_names(coordinator: Coordinator, given: Any, says: str) -> None:
    with pytest.raises(InvalidJob, match=says):
        coordinator.tenants(**given)
