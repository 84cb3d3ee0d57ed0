"""One filter finds jobs by indexes: whatever ends meanwhile, pages leave none out."""

import random
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator import Coordinator, InvalidJob
from coordinator.core.jobs.record import TERMINAL
from coordinator.ops.search.filter import FILTERS, STATES
from coordinator.ops.search.jobs import MOST_SEARCHED, Found
from tests.harness.command import Call, loaded, refused
from tests.harness.hand_node import Puppet


def ids(found: Found) -> list[str]:
    return [job.id for job in found.jobs]


def all_of(coordinator: Coordinator, most: int = 2, **wanted: Any) -> list[str]:
    return [job_id for page in pages(coordinator, most, **wanted) for job_id in page]


def pages(coordinator: Coordinator, most: int = 2, **wanted: Any) -> Iterator[list[str]]:
    """The ids page by page; between two of them the test may act."""
    found = coordinator.jobs(most=most, **wanted)
    yield ids(found)
    while found.after:
        found = coordinator.jobs(most=most, after=found.after, **wanted)
        assert len(found.jobs) <= most
        yield ids(found)


def end(node: Puppet, key: str | list[str], job_id: str, outcome: str = "succeeded", **options: Any) -> None:
    node.submit(key, job_id=job_id, **options)
    node.finish(node.must_take(), outcome)


@pytest.fixture
def shop(node: Puppet) -> Puppet:
    """Some jobs that are over, and in each lane one that runs and one that waits."""
    end(node, "customer/7/a", "1 paid", args=["seven", {"to": "Ann"}])
    end(node, ["customer/7/b", "stock"], "2 failed", "failed", task="shop.other")
    end(node, "customer/70", "3 seventy", "failed", kwargs={"what": 12})
    for key in ("customer/7/a", "stock"):
        node.submit(key, job_id=f"{key} runs")
        node.must_take()
        node.submit(key, job_id=f"{key} waits", task="shop.other")
    node.submit("customer/7/a", job_id="later", not_before=datetime(2100, 1, 1))
    return node


def test_jobs_are_those_in_no_line_then_those_in_line_then_the_ended(
    shop: Puppet, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["customer/7/a runs", "customer/7/a waits", "stock runs", "stock waits"]
    everything = ["later", *lines, "3 seventy", "2 failed", "1 paid"]
    found = coordinator.jobs()
    assert (ids(found), found.complete, found.searched, found.after) == (everything, True, 8, "")
    for portion in (500, 2, 1):
        monkeypatch.setattr("coordinator.ops.search.jobs._PORTION", portion)
        for most in (1, 2, 3, 7, 8):
            assert all_of(coordinator, most) == everything


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"state": "failed"}, ["3 seventy", "2 failed"]),
        ({"state": ["failed", "succeeded"], "key": "customer/7*"}, ["3 seventy", "2 failed", "1 paid"]),
        ({"state": "waiting"}, ["customer/7/a waits", "stock waits"]),
        ({"state": "running"}, ["customer/7/a runs", "stock runs"]),
        ({"state": "scheduled"}, ["later"]),
        ({"key": "customer/7/a"}, ["later", "customer/7/a runs", "customer/7/a waits", "1 paid"]),
        ({"key": "customer/7/*"}, ["later", "customer/7/a runs", "customer/7/a waits", "2 failed", "1 paid"]),
        ({"key": "customer/7/*", "state": "running"}, ["customer/7/a runs"]),
        ({"key": "stock"}, ["stock runs", "stock waits", "2 failed"]),
        ({"key": "s*"}, ["stock runs", "stock waits", "2 failed"]),
        ({"key": "customer"}, []),
        ({"task": "shop.other"}, ["customer/7/a waits", "stock waits", "2 failed"]),
        ({"error": "DETAIL"}, ["3 seventy", "2 failed"]),
        ({"error": "lost", "key": "customer/70"}, ["3 seventy"]),
        ({"state": "bad"}, ["3 seventy", "2 failed"]),
        ({"state": ["bad", "running"], "key": "s*"}, ["stock runs", "2 failed"]),
        ({"error": "Lost:"}, ["3 seventy", "2 failed"]),
        ({"error": "ost:"}, []),
        ({"ids": ["2 failed", "later", "stock waits", "none"]}, ["2 failed", "later", "stock waits"]),
        ({"ids": ["2 failed", "later", "stock waits"], "state": "waiting"}, ["stock waits"]),
        ({"ids": ["2 failed", "later"], "key": "customer/7/a"}, ["later"]),
        ({"ids": ["customer/7/a runs", "2 failed"], "key": "stock"}, ["2 failed"]),
        ({"state": "bad", "without": ["2 failed", "none"]}, ["3 seventy"]),
        ({"key": "stock", "without": ["stock runs"]}, ["stock waits", "2 failed"]),
        ({"reason": "waiting.lane"}, ["customer/7/a waits", "stock waits"]),
        ({"reason": "waiting.lane", "key": "stock"}, ["stock waits"]),
        ({"reason": "later.scheduled"}, ["later"]),
        ({"reason": "later.scheduled", "state": "waiting"}, []),
        ({"reason": "waiting.slot"}, []),
        ({"text": "Seven"}, ["1 paid"]),
        ({"text": "ann"}, ["1 paid"]),
        ({"text": "12"}, ["3 seventy"]),
        ({"node": "one", "state": "succeeded"}, ["1 paid"]),
        ({"node": "two"}, []),
        ({"since": "1h", "state": "succeeded"}, ["1 paid"]),
        ({"until": "1h"}, []),
        ({"since": datetime(2030, 1, 1)}, []),
        ({"until": "2030-01-01", "since": timedelta(days=1), "key": "customer/7/b"}, ["2 failed"]),
    ],
    ids=str,
)
def test_each_filter_finds_what_it_names_in_pages_of_any_size(
    shop: Puppet, coordinator: Coordinator, wanted: Any, expected: list[str]
) -> None:
    assert [all_of(coordinator, most, **wanted) for most in (1, 2, 100)] == [expected] * 3


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"state": "runing"}, "did you mean 'running'"),
        ({"state": "badly"}, "did you mean 'bad'"),
        ({"reason": "waiting.lan"}, "did you mean 'waiting.lane'"),
        ({"ids": "2 failed"}, "ids is a list of ids"),
        ({"without": 7}, "without is a list of ids"),
        ({"since": "a while ago"}, "since 'a while ago'"),
        ({"until": 7}, "until 7"),
        ({"key": 7}, "key is text"),
        ({"after": "x"}, "after 'x'"),
        ({"after": "WzddCg=="}, "after 'WzddCg=='"),
        ({"keys": "x"}, "did you mean 'key'"),
        ({"most": 0}, "most"),
    ],
    ids=str,
)
def test_a_wrong_filter_is_named(coordinator: Coordinator, wanted: Any, named: str) -> None:
    with pytest.raises(InvalidJob, match=named):
        coordinator.jobs(**wanted)


def test_pages_of_ended_jobs_are_whole_and_without_doubles_while_jobs_end(
    node: Puppet, coordinator: Coordinator
) -> None:
    for number in range(12):
        end(node, f"key/{number % 3}", f"job {number}", random.Random(number).choice(["succeeded", "failed"]))
    for wanted in ({"state": sorted(TERMINAL)}, {"key": "key/*", "state": sorted(TERMINAL)}):
        before, seen = {job.id for job in coordinator.jobs().jobs}, list[str]()
        for number, page in enumerate(pages(coordinator, 3, **wanted)):
            seen += page
            end(node, "key/0", f"{wanted} new {number}")
        assert before <= set(seen)
        assert len(seen) == len(set(seen))


def test_no_page_leaves_a_job_out_that_moves_on_meanwhile(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("b", job_id="later", not_before=datetime(2100, 1, 1))
    for key in ("a", "b", "c"):
        for number in range(3):
            node.submit(key, job_id=f"{key}{number}")
    before, seen = set(ids(coordinator.jobs())), list[str]()
    for page in pages(coordinator, 2):
        seen += page
        if taken := node.take():
            node.finish(taken)
    assert set(seen) == before


def test_a_job_that_is_moved_between_two_pages_takes_nobody_with_it(node: Puppet, coordinator: Coordinator) -> None:
    every = [str(number) for number in range(6)]
    for job_id in every:
        node.submit("k", job_id=job_id)
    walk = pages(coordinator, 2)
    assert next(walk) == ["0", "1"]
    node.lanes.move("1")
    assert [job_id for page in walk for job_id in page] == [*every[2:], "1"]


def test_a_line_longer_than_a_page_is_walked_to_its_end(node: Puppet, coordinator: Coordinator) -> None:
    expected = [f"{number:04}" for number in range(1100)]
    for job_id in expected:
        node.submit("long", job_id=job_id)
    node.lanes.pause("long")
    assert all_of(coordinator, 400) == all_of(coordinator, 400, key="long") == expected


def test_jobs_that_ended_in_one_millisecond_are_all_found(node: Puppet, coordinator: Coordinator) -> None:
    end(node, "k", "one")
    at = node.store._client.zscore(node.store.key("ended", "succeeded"), "one")
    names = [f"{number:04}" for number in range(1200)]
    client: Any = node.store._client
    client.zadd(node.store.key("ended", "succeeded"), dict.fromkeys(names, at))
    with client.pipeline() as pipe:
        for name in names:
            pipe.copy(node.store.key("job", "one"), node.store.key("job", name))
        pipe.execute()
    assert all_of(coordinator, 500, state="succeeded") == ["one", *reversed(names)]


def test_a_search_stops_after_ten_thousand_and_says_so_and_the_cursor_goes_on(
    node: Puppet, coordinator: Coordinator
) -> None:
    end(node, "k", "old", text := "failed", args=["needle"])
    client: Any = node.store._client
    ghosts = {f"ghost {number:05}": 2**43 + number for number in range(MOST_SEARCHED)}
    client.zadd(node.store.key("ended", text), ghosts)
    found = coordinator.jobs(state=text, text="needle")
    assert (found.jobs, found.complete, found.searched) == ((), False, MOST_SEARCHED)
    assert ids(coordinator.jobs(state=text, text="needle", after=found.after)) == ["old"]
    client.zadd(node.store.key("lane-runs"), {f"x/{at}\0{at}\0{name}": 0 for name, at in ghosts.items()})
    client.zadd(node.store.key("lane-runs"), {f"x\0{2**43}\0none": 0})
    assert coordinator.jobs(key="x*", state=text).complete is False  # more runs than that: it goes by time
    assert ids(coordinator.jobs(key="k", state=text)) == ["old"]


def test_a_full_list_of_ended_jobs_gives_way_and_the_newest_stay(node: Puppet, coordinator: Coordinator) -> None:
    client: Any = node.store._client
    ended, runs = node.store.key("ended", "failed"), node.store.key("lane-runs")
    for generation in ("first", "second"):
        end(node, "k", generation, "failed")
        client.zadd(ended, {f"{generation} {number}": number for number in range(100_000)})
        client.zadd(runs, {f"{generation}\0{number:013}\0x": 0 for number in range(100_000)})
        node.sweep()
        assert ids(coordinator.jobs(state="failed", since="1h", most=1)) == [generation]
        assert ids(coordinator.jobs(key="k", most=1)) == [generation]
    end(node, "k", "third", "failed")
    assert ids(coordinator.jobs(state="failed", since="1h")) == ["third", "second"]
    assert ids(coordinator.jobs(key="k")) == ["third", "second"]
    assert client.zcard(ended) + client.zcard(node.store.key("ended-before", "failed")) <= 200_000


def test_a_job_that_is_tried_again_is_found_once_in_its_new_state(node: Puppet, coordinator: Coordinator) -> None:
    end(node, "k", "j", "failed")
    coordinator.retry("j")
    assert [(job.id, job.state) for job in coordinator.jobs().jobs] == [("j", "ready")]
    node.finish(node.must_take(), "failed")
    assert all_of(coordinator) == all_of(coordinator, key="k") == ["j"]


def test_an_argument_is_found_wherever_the_pieces_of_its_record_part(node: Puppet, coordinator: Coordinator) -> None:
    texts = ["x" * size + "needle" for size in range(64)]
    for text in texts:
        end(node, "k", text, args=[text])
    assert {*ids(coordinator.jobs(text="needle", most=100))} == {*texts}


def test_records_that_are_gone_and_damaged_ones_stop_no_search(node: Puppet, coordinator: Coordinator) -> None:
    for job_id in ("gone", "damaged", "no hash", "whole"):
        end(node, "k", job_id, "failed", args=["x"])
    client: Any = node.store._client
    client.delete(node.store.key("job", "gone"), node.store.key("job", "no hash"))
    client.set(node.store.key("job", "no hash"), "text")
    client.hset(node.store.key("job", "damaged"), mapping={"spec": "{", "error": "{", "ended": "x", "keys": "\1"})
    assert ids(coordinator.jobs(state="failed")) == ["whole", "damaged"]
    assert ids(coordinator.jobs(text="x", error="detail")) == ["whole"]
    client.delete(node.store.key("job", "no hash"))


def test_no_search_scans_the_names_of_all_keys(shop: Puppet, coordinator: Coordinator, call: Call) -> None:
    client: Any = shop.store._client
    client.config_resetstat()
    for name, value in (("state", "failed"), ("key", "customer/*"), ("text", "x"), ("since", "1h"), ("node", "one")):
        coordinator.jobs(**{name: value})
        call("jobs", f"--{name}", value)
    coordinator.retarget("shop.other", "shop.work")
    used = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert not {"scan", "keys"} & used
    assert "fcall" in used


def test_the_command_has_each_filter_and_names_the_next_page(shop: Puppet, call: Call) -> None:
    help_text = call("jobs", "--help").stdout
    named = {"ids": "id", "without": "except"}
    assert [name for name in FILTERS if f"--{named.get(name, name)}" not in help_text] == []
    assert (
        call("jobs", "--state", "failed", "--state", "running", "--key", "customer/7/*").stdout.count("customer") == 3
    )
    page = call("jobs", "--most", "3")
    after = page.stderr.split()[-1]
    found = loaded(call("jobs", "--after", after, "--json"))
    assert (len(found["jobs"]), found["complete"], found["after"]) == (5, True, "")
    assert "since 'x'" in refused(call("jobs", "--since", "x"))
    assert len(STATES) == 17


def test_an_instant_without_a_zone_is_local_time(node: Puppet, coordinator: Coordinator) -> None:
    end(node, "k", "j")
    now = datetime.now(UTC)
    for instant in (now, now.replace(tzinfo=UTC), now.astimezone().replace(tzinfo=None)):
        hour = timedelta(hours=1)
        assert ids(coordinator.jobs(since=instant - hour, until=instant + hour)) == ["j"]


def test_a_text_without_a_zone_is_utc_as_commands_print_instants(
    node: Puppet, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    end(node, "k", "j")
    ended = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", call("job", "j").stdout)[-1]
    after = str(datetime.fromisoformat(ended) + timedelta(seconds=1))
    found = [loaded(call("jobs", *named, "--json"))["jobs"] for named in (("--since", ended), ("--until", after))]
    monkeypatch.undo()
    time.tzset()
    assert [len(jobs) for jobs in found] == [1, 1]


def test_jobs_without_a_key_are_found_in_every_state_and_page_by_page(coordinator: Coordinator, node: Puppet) -> None:
    coordinator.quota("q", concurrency=2)
    for number in range(5):
        node.submit([], job_id=f"j{number}", uses="q", on_failure="hold")
    node.submit("k", job_id="keyed", uses="q")
    taken = {one.id: one for one in (node.must_take(), node.must_take())}
    node.finish(taken.pop("j0"), "failed")
    states = {"waiting": ["j3", "j4", "keyed"], "held": ["j0"], "running": ["j1"], "ready": ["j2"]}
    assert {state: [job.id for job in coordinator.jobs(state=state).jobs] for state in states} == states
    every = [job.id for job in coordinator.jobs().jobs]
    assert every == ["j0", "j1", "j2", "j3", "j4", "keyed"], "those without a key come first"
    pages, after = list[str](), ""
    while len(pages) < 10:
        page = coordinator.jobs(most=2, after=after)
        pages += [job.id for job in page.jobs]
        if not (after := page.after):
            break
    assert pages == every
    assert [job.id for job in coordinator.jobs(key="k").jobs] == ["keyed"]
    assert [job.id for job in coordinator.jobs(key="k*").jobs] == ["keyed"]
    assert sorted(coordinator._living()) == sorted(every)
    for job_id in every:
        coordinator.cancel(job_id)
    for one in taken.values():
        node.lose(one)
    assert coordinator.jobs(state=["waiting", "ready", "running", "held"]).jobs == ()
    assert not node.store._client.exists(node.store.key("line", ""))
    ended = [job.id for job in coordinator.jobs(state="cancelled").jobs]
    assert sorted(ended) == sorted(every)
