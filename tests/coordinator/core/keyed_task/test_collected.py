"""Calls of keyed tasks that collect: which keys they get, who gets the result, and what a task must take."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, chain

from coordinator import Call, Coordinator, InvalidJob, SettingsError

NOWHERE = "redis://127.0.0.1:1/0"


def lane_of(number: int, lane: str = "usual") -> str:
    return f"batch/{lane}"


@pytest.fixture
def app() -> Iterator[Any]:
    app: Any = Celery("shop", broker=NOWHERE, backend=NOWHERE, set_as_current=False)
    Coordinator(app, url=NOWHERE)
    yield app
    app.close()


@pytest.fixture
def tasks(app: Any) -> Any:
    """`seen`: what the bodies got."""
    app.seen = []

    @app.task(name="shop.reindex", shared=False, coordinate={"key": "{shop}", "collect": {"idle": 10, "max_wait": 60}})
    def reindex(shop: str, number: int) -> int:
        app.seen.append(number)
        return number

    @app.task(name="shop.batch", shared=False, coordinate={"key": lane_of, "collect": {"how": "list", "idle": 10}})
    def batch(calls: list[Call]) -> int:
        app.seen.append(calls)
        return len(calls)

    @app.task(name="shop.named", shared=False, coordinate={"key": "batch/{lane}", "collect": {"how": "list"}})
    def named(calls: list[Call]) -> int:
        app.seen.append(calls)
        return len(calls)

    @app.task(name="shop.note", shared=False)
    def note(value: Any, word: str) -> None:
        app.seen.append((word, value))

    app.reindex, app.batch, app.named, app.note = reindex, batch, named, note
    return app


Inline = Callable[[Coordinator], Any]


def test_delay_collects_and_every_call_that_asks_gets_the_result_of_the_job(
    tasks: Any, coordinator_jobs: Inline
) -> None:
    jobs = coordinator_jobs(tasks.coordinator)
    calls = [tasks.reindex.delay("a", number) for number in range(5)]
    assert {call.id for call in calls} == {calls[0].id}, "no result of its own for each call"
    assert [job.state for job in jobs.submitted] == ["collecting"]
    assert calls[3].get() == 4
    assert tasks.seen == [4]


def test_a_call_that_named_its_id_gets_the_result_under_it(tasks: Any, coordinator_jobs: Inline) -> None:
    coordinator_jobs(tasks.coordinator)
    first = tasks.reindex.delay("a", 1)
    mine = tasks.reindex.apply_async(("a", 2), task_id="mine")
    tasks.reindex.delay("a", 3)
    assert (mine.id, mine.get(), first.get()) == ("mine", 3, 3)


def test_links_and_chains_of_all_calls_go_on(tasks: Any, coordinator_jobs: Inline) -> None:
    jobs = coordinator_jobs(tasks.coordinator)
    tasks.reindex.apply_async(("a", 1), link=tasks.note.s("first"))
    tasks.reindex.apply_async(("a", 2), link=tasks.note.s("second"))
    chain(tasks.reindex.s("a", 3), tasks.note.s("third")).apply_async()
    tasks.coordinator.submit(None, tasks.reindex.s("a", 4).set(link=tasks.note.s("fourth")))
    jobs.advance(10)
    assert tasks.seen[0] == 4
    assert sorted(tasks.seen[1:]) == [("first", 4), ("fourth", 4), ("second", 4), ("third", 4)]


def test_a_list_has_the_calls_as_they_were_made_and_a_function_makes_their_keys(
    tasks: Any, coordinator_jobs: Inline
) -> None:
    jobs = coordinator_jobs(tasks.coordinator)
    tasks.batch.delay(1)
    tasks.batch.delay(2, lane="other")
    end = tasks.batch.delay(number=3)
    jobs.advance(10)
    assert sorted(tasks.seen, key=len) == [
        [Call([2], {"lane": "other"})],
        [Call([1], {}), Call([], {"number": 3})],
    ]
    assert end.get() == 2
    assert tasks.seen[0][0].args in ([1], [2])
    assert {job.key for job in jobs.submitted} == {"batch/usual", "batch/other"}


def test_a_template_takes_the_named_arguments_of_a_call(tasks: Any, coordinator_jobs: Inline) -> None:
    jobs = coordinator_jobs(tasks.coordinator)
    tasks.named.delay(1, lane="x")
    assert (tasks.seen, jobs.submitted[0].key) == ([[Call([1], {"lane": "x"})]], "batch/x")
    with pytest.raises(InvalidJob, match=r"the call has no keyword argument 'lane'.*make the key with a function"):
        tasks.named.delay("x")


def test_a_chain_gives_its_result_to_a_call_that_is_collected(tasks: Any, coordinator_jobs: Inline) -> None:
    jobs = coordinator_jobs(tasks.coordinator)
    chain(tasks.reindex.s("a", 7), tasks.batch.s()).apply_async()
    jobs.advance(10)
    jobs.advance(10)
    assert tasks.seen == [7, [Call([7], {})]]


def test_a_list_task_takes_one_argument(app: Any) -> None:
    @app.task(name="shop.wrong", shared=False, coordinate={"key": "k", "collect": {"how": "list"}})
    def wrong(one: int, two: int) -> None:
        """Takes two."""

    with pytest.raises(SettingsError, match="the task gets one argument, the list of calls: missing a required"):
        app.finalize()


def test_a_call_that_is_to_start_later_is_no_call_to_collect(tasks: Any, coordinator_jobs: Inline) -> None:
    coordinator_jobs(tasks.coordinator)
    with pytest.raises(InvalidJob, match="collect takes no not_before, eta or countdown"):
        tasks.reindex.apply_async(("a", 1), countdown=5)


def test_an_eager_app_gives_a_list_of_one(tasks: Any) -> None:
    tasks.conf.task_always_eager = True
    assert tasks.named.delay(5, lane="x").get() == 1
    assert tasks.named.apply_async((6,), {"lane": "x"}).get() == 1
    tasks.coordinator.submit(None, tasks.named.s(7, lane="x"))
    tasks.coordinator.collect("k", tasks.named.s(8), how="list")
    assert tasks.seen == [
        [Call([5], {"lane": "x"})],
        [Call([6], {"lane": "x"})],
        [Call([7], {"lane": "x"})],
        [Call([8], {})],
    ]
    assert tasks.seen[0][0].kwargs == {"lane": "x"}
    assert tasks.named.apply(([1, 2],)).get() == 2, "without delay it is called as it is written"
    assert tasks.reindex.delay("a", 1).get() == 1
    assert tasks.coordinator.collect("k", tasks.reindex.s("a", 2), idle=99).get() == 2


def test_a_paused_lane_still_collects(tasks: Any, coordinator_jobs: Inline) -> None:
    jobs = coordinator_jobs(tasks.coordinator)
    tasks.coordinator.pause("a", why="a test")
    calls = [tasks.reindex.delay("a", number) for number in range(3)]
    jobs.advance(60)
    calls.append(tasks.reindex.delay("a", 3))
    assert not tasks.seen
    tasks.coordinator.resume("a", why="a test")
    assert (tasks.seen, calls[0].get()) == ([3], 3)
