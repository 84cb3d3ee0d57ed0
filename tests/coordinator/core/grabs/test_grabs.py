"""Grabs: one process wins an instance, the others learn who, and how it ends."""

import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from subprocess import PIPE

import pytest
from celery import Celery

from coordinator import Coordinator, Grab, InvalidJob, WouldDeadlock
from coordinator.core.jobs.instances import lane_of
from coordinator.core.locks.leases import holders
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import start

LONGEST = 200


def test_one_wins_and_the_others_learn_at_once_who_did_and_log_it_once(
    coordinator: Coordinator, other: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    won = coordinator.grab("timer", 7, "first")
    assert (won.won, won.state, won.attempt) == (True, "running", 1)
    lost = other.grab("timer", "7", "second", on_losing="incomplete")
    assert (lost.won, lost.state, lost.fence) == (False, "incomplete", won.fence)
    assert lost.winner == won.winner
    assert lost.winner
    assert lost.winner.identifier == "first"
    assert caplog.messages == [f"grab timer 7: second lost to first ({lost.winner.host}, pid {lost.winner.pid})"]
    won.complete()


MANY = """
import sys
from coordinator import Coordinator
client = Coordinator(url=sys.argv[1], prefix=sys.argv[2])
print(*(number for number in range(100) if client.grab("many", number, sys.argv[3]).won))
sys.stdout.flush()
sys.stdin.read()
"""


def test_ten_processes_grab_a_hundred_instances_and_win_each_once(redis_server: RedisServer, prefix: str) -> None:
    argv = ["-c", MANY, redis_server.url(0), prefix]
    with ExitStack() as stack:
        processes = [stack.enter_context(start([*argv, str(number)], stdin=PIPE, stdout=PIPE)) for number in range(10)]
        wins: Counter[str] = Counter()
        for process in processes:
            assert process.stdout
            wins.update(process.stdout.readline().split())
        for process in processes:
            process.communicate()
    assert wins == Counter(str(number) for number in range(100))


def test_one_that_another_thread_ended_is_not_held_by_the_thread_that_took_it(
    coordinator: Coordinator, other: Coordinator
) -> None:
    first, stack = coordinator.grab("job", "a", "one"), ExitStack()
    stack.enter_context(coordinator.lock("door"))
    with ThreadPoolExecutor() as pool:
        pool.submit(first.fail, "no").result()
        pool.submit(stack.close).result()
    assert holders() == []
    second, third = other.grab("job", "a", "two"), coordinator.grab("job", "a", "three")
    assert (second.won, third.won) == (True, False)
    second.complete("well")
    with third:
        assert (third.state, third.result) == ("complete", "well")


def test_leaving_completes_and_an_exception_fails_so_that_it_may_be_grabbed_again(coordinator: Coordinator) -> None:
    with pytest.raises(ValueError, match="bad"), coordinator.grab("job", "a", "one") as failing:
        raise ValueError("bad")
    assert (failing.state, failing.reason) == ("failed", "ValueError: bad")
    with coordinator.grab("job", "a", "two") as again:
        assert (again.won, again.attempt) == (True, 2)
        assert again.fence > failing.fence
    assert again.state == "complete"
    (seen,) = coordinator.grabs("job")
    assert (seen.state, seen.attempt, seen.winner and seen.winner.identifier) == ("complete", 2, "two")


@pytest.mark.parametrize("end", ["complete", "failed"])
def test_a_loser_hears_the_end_at_once(
    coordinator: Coordinator, other: Coordinator, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("coordinator.core.grabs.grab._POLL", 60.0)
    grab = coordinator.grab("job", "a", "one")
    loser, heard = other.grab("job", "a", "two", on_losing="incomplete"), list[str]()
    thread = threading.Thread(target=lambda: heard.append(loser.wait(60)))
    thread.start()
    channel = coordinator.store.key("grabbed", lane_of("job", "a"))
    wait_until(lambda: coordinator.store.read("PUBSUB NUMSUB", channel)[0][1] == 1)
    (grab.complete if end == "complete" else grab.fail)("because")
    thread.join(20)
    assert heard == [end] == [loser.state], "the poll alone takes a minute"
    assert "because" in (loser.result, loser.reason)
    assert not loser.won


@pytest.mark.parametrize(
    ("on_losing", "state"), [("incomplete", "incomplete"), ("complete", "complete"), ("wait", "waiting")]
)
def test_the_state_of_a_loser_is_the_one_that_it_asked_for(
    coordinator: Coordinator, on_losing: str, state: str
) -> None:
    grab = coordinator.grab("job", "a", "one")
    assert coordinator.grab("job", "a", "two", on_losing=on_losing).state == state  # type: ignore[arg-type]
    grab.complete()


@pytest.mark.parametrize("name", ["", " \n", "a\x1fb", "x" * (LONGEST + 1), None, 1.5])
def test_a_name_that_cannot_be_one_is_refused_and_says_which(coordinator: Coordinator, name: object) -> None:
    for place, names in {
        "key": (name, "i", "who"), "instance": ("k", name, "who"), "identifier": ("k", "i", name),
    }.items():  # fmt: skip
        with pytest.raises(InvalidJob, match=place):
            coordinator.grab(*names)  # type: ignore[arg-type]
    assert coordinator.grabs() == []


def test_names_of_any_script_and_length_are_their_own_instances(coordinator: Coordinator) -> None:
    names = [("a@b", "c"), ("a", "b@c"), ("a/b", "c"), ("a", "b/c"), ("日" * LONGEST, "ж" * LONGEST)]
    for key, instance in names:
        before = coordinator.store.now()
        wait_until(lambda before=before: coordinator.store.now() > before)
        with coordinator.grab(key, instance, "ö" * LONGEST) as grab:
            assert grab.won
    assert {(one.key, one.instance) for one in coordinator.grabs()} == set(names)
    found, after = list[tuple[str, str]](), ""
    while page := coordinator.grabs(most=2, after=after):
        found, after = [*found, *((one.key, one.instance) for one in page)], page[-1].cursor
        coordinator.grab("a", f"later {len(found)}", "z").complete()  # it stands before the page
    assert found == [("a", "b/c"), ("a", "b@c"), *names[2:3], *names[:1], *names[4:]]
    assert [one.instance for one in coordinator.grabs("a", after="a/b%2Fc")] == ["b@c"]
    with pytest.raises(InvalidJob, match="start from the first page"):
        coordinator.grabs(after="a/forgotten")


def test_instances_do_not_wait_for_each_other_and_no_lane_of_a_job_is_in_their_way(coordinator: Coordinator) -> None:
    with (
        coordinator.lock("job"),
        coordinator.lock("grab/job/a"),
        coordinator.grab("job", "a", "one") as one,
        coordinator.grab("job", "b", "two") as two,
    ):
        assert (one.won, two.won) == (True, True)


def test_a_function_runs_for_the_call_that_wins(coordinator: Coordinator) -> None:
    calls: list[int] = []

    @coordinator.run_once(key="nightly", instance=lambda day, **_: day, identifier="server 1")
    def work(day: int, factor: int = 2) -> int:
        calls.append(day)
        if day == 13:
            raise ValueError("unlucky")
        return day * factor

    first, second = work(4, factor=3), work(4)
    assert isinstance(first, Grab)
    assert isinstance(second, Grab)
    assert (first.won, first.result, second.won, second.result, calls) == (True, 12, False, 12, [4])
    with pytest.raises(ValueError, match="unlucky"):
        work(13)
    assert {one.instance: one.state for one in coordinator.grabs("nightly")} == {"4": "complete", "13": "failed"}


def test_key_and_instance_of_a_function_are_made_of_all_arguments_of_the_call(coordinator: Coordinator) -> None:
    @coordinator.run_once(key=lambda *_, kind: kind, instance=lambda day, *, kind: f"{day} {kind}")
    def work(day: int, *, kind: str) -> None: ...

    for day, kind in ((1, "a"), (1, "b"), (2, "a"), (1, "a")):
        work(day, kind=kind)
    assert sorted((one.key, one.instance) for one in coordinator.grabs()) == [("a", "1 a"), ("a", "2 a"), ("b", "1 b")]


def test_a_celery_task_that_grabs_gives_json(coordinator: Coordinator) -> None:
    app = Celery("grabs", broker="memory://", set_as_current=False)

    @app.task
    @coordinator.run_once(key="nightly", instance=str, identifier="server 1")
    def work(day: int) -> int:
        return day + 1

    won, lost = work.apply([5]).get(), work.apply([5]).get()
    assert (won["won"], won["result"], lost["won"], lost["result"]) == (True, 6, False, 6)
    assert lost["winner"]["identifier"] == "server 1"


def test_what_is_asked_for_must_make_sense(coordinator: Coordinator) -> None:
    with pytest.raises(InvalidJob, match="on_losing 'give up': one of incomplete, complete, wait"):
        coordinator.grab("job", "a", "one", on_losing="give up")  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="attempts is a whole number from 1"):
        coordinator.grab("job", "a", "one", attempts=0)
    with pytest.raises(InvalidJob, match=r"ttl is a number of seconds from 0.2"):
        coordinator.grab("job", "a", "one", ttl=0)
    with (
        coordinator.grab("job", "a", "one"),
        pytest.raises(WouldDeadlock, match="this process holds job a already"),
        coordinator.grab("job", "a", "two"),
    ):
        pass
    with (
        coordinator.grab("job", "b", "one"),
        pytest.raises(InvalidJob, match="has not won; the state is waiting"),
    ):
        coordinator.grab("job", "b", "two").complete()
