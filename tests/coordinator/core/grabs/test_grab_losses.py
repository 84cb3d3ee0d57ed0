"""Grabs whose winner dies, whose lease lapses, whose replies are lost: nothing is done twice, nothing is lost."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from subprocess import PIPE

import pytest

from coordinator import Coordinator, Grab, LeaseLost, StoreUnavailable, WaitTimeout
from coordinator.core.grabs.grab import Grabber, Terms
from coordinator.core.jobs.instances import lane_of
from coordinator.core.locks.leases import Lease, Renewer
from tests.coordinator.conftest import ClientAt
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import start


@pytest.fixture
def behind(proxy: Proxy, client_at: ClientAt) -> Coordinator:
    """A client whose way to Redis can be cut."""
    return client_at(proxy.url(0), timeout=0.5)


def lapse(grab: Grab) -> None:
    """As a process that stands still: nobody renews its lease."""
    assert grab._lease
    grab._grabber.renewer.drop(grab._lease)


def waiting(*losers: Grab) -> tuple[list[str], list[threading.Thread]]:
    heard = list[str]()
    threads = [threading.Thread(target=lambda one=one: heard.append(one.wait(30))) for one in losers]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    return heard, threads


WINNER = """
import sys, time
from coordinator import Coordinator
client = Coordinator(url=sys.argv[1], prefix=sys.argv[2])
print(client.grab("job", "a", "dies", ttl=1).won, flush=True)
time.sleep(600)
"""


def test_one_of_five_that_wait_takes_over_from_a_winner_that_was_killed(
    coordinator: Coordinator, redis_server: RedisServer, prefix: str
) -> None:
    argv = ["-c", WINNER, redis_server.url(0), prefix]
    with start(argv, stdout=PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == "True\n"
        losers = [coordinator.grab("job", "a", f"waits {n}", ttl=1) for n in range(5)]
        fence = losers[0].fence
        heard, threads = waiting(*losers)
        process.kill()
    wait_until(lambda: heard)
    (winner,) = (one for one in losers if one.won)
    assert (heard, winner.attempt) == (["abandoned"], 2)
    assert winner.fence > fence
    winner.complete("done")
    for thread in threads:
        thread.join()
    assert sorted(heard) == ["abandoned", *["complete"] * 4]
    assert [one.result for one in losers] == ["done"] * 5


def test_one_that_waits_looks_each_second_since_nobody_tells_of_a_winner_that_died(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    winner, loser, waits = coordinator.grab("job", "a", "dies"), coordinator.grab("job", "a", "waits"), list[float]()

    @contextmanager
    def listening(_: Grabber, key: str, instance: str) -> Iterator[Callable[[float], None]]:
        yield waits.append

    monkeypatch.setattr(Grabber, "listening", listening)
    monkeypatch.setattr(loser, "_poll_end", lambda: "complete" if len(waits) == 3 else None)
    assert loser.wait() == "complete"
    assert waits == [1.0] * 3
    winner.complete()


def test_work_that_fails_is_tried_by_those_who_wait_up_to_the_attempts_and_then_left(coordinator: Coordinator) -> None:
    dead = coordinator.grab("job", "a", "dies", ttl=0.2)
    lapse(dead)
    wait_until(lambda: coordinator.grabs("job")[0].state == "abandoned")
    first = coordinator.grab("job", "a", "one", attempts=2)
    losers = [coordinator.grab("job", "a", f"waits {number}", attempts=2) for number in range(3)]
    heard, threads = waiting(*losers)
    first.fail("no disk")
    wait_until(lambda: heard)
    (second,) = (one for one in losers if one.won)
    assert (heard, second.attempt, second.fence > first.fence) == (["failed"], 3, True)
    second.fail("no disk again")
    for thread in threads:
        thread.join()
    assert heard == ["failed"] * 3
    assert [(one.won, one.state, one.reason) for one in losers if one is not second] == [
        (False, "failed", "no disk again")
    ] * 2
    last = coordinator.grab("job", "a", "asks late", attempts=2)
    assert (last.won, last.state, last.reason) == (False, "failed", "no disk again")
    assert (last.wait(1), last.won) == ("failed", False)
    assert coordinator.grab("job", "a", "asks for more", attempts=3).won, "each goes by its own number"


def test_an_instance_that_is_released_is_taken_over_and_its_old_winner_is_fenced_out(coordinator: Coordinator) -> None:
    stuck, loser = coordinator.grab("job", "a", "stuck"), coordinator.grab("job", "a", "waits")
    heard, threads = waiting(loser)
    assert coordinator.release_grab("job", "a", why="it hangs", by="ann") == "stuck"
    for thread in threads:
        thread.join()
    assert (heard, loser.won, loser.attempt, loser.fence > stuck.fence) == (["abandoned"], True, 2, True)
    for act in (stuck.check, stuck.complete, stuck.fail):
        with pytest.raises(LeaseLost):
            act()
    (seen,) = coordinator.grabs("job")
    (before,) = seen.earlier
    assert (seen.state, seen.value, before.state, before.attempt, before.fence) == (
        "running", None, "abandoned", 1, stuck.fence
    )  # fmt: skip
    assert before.winner == stuck.winner
    assert isinstance(before.value, dict)
    assert {name: before.value[name] for name in ("type", "message", "by")} == {
        "type": "Released", "message": "it hangs", "by": "ann",
    }  # fmt: skip
    assert coordinator.release_grab("job", "a", 1, why="the answer was lost") is None
    loser.complete("done")
    assert coordinator.release_grab("job", "a", why="again") is None
    assert coordinator.grabs("job")[0].state == "complete"


def test_work_that_failed_for_good_is_tried_again_after_a_release_and_ten_earlier_winners_are_known(
    coordinator: Coordinator,
) -> None:
    for number in range(12):
        coordinator.grab("job", "a", "one", attempts=20).fail(number)
    assert coordinator.grab("job", "a", "two").state == "failed"
    assert coordinator.release_grab("job", "a", why="the disk is back") == "one"
    for _ in range(3):
        coordinator.grab("job", "a", "two").fail("anew")
    assert not coordinator.grab("job", "a", "two").won
    (seen,) = coordinator.grabs("job")
    assert [one.attempt for one in seen.earlier] == list(range(14, 4, -1))
    assert isinstance(released := seen.earlier[2].value, dict)
    assert (released["message"], released["reason"]) == ("the disk is back", 11)
    assert [one.value for one in seen.earlier[3:]] == list(range(10, 3, -1))


def test_a_loser_that_does_not_wait_to_take_over_is_told_that_the_instance_is_abandoned(
    coordinator: Coordinator,
) -> None:
    grab = coordinator.grab("job", "a", "one", ttl=0.5)
    loser = coordinator.grab("job", "a", "two", on_losing="incomplete")
    lapse(grab)
    assert (loser.wait(60), loser.won, loser.state) == ("abandoned", False, "incomplete")
    assert coordinator.grabs("job")[0].state == "abandoned"
    assert coordinator.grab("job", "a", "three").attempt == 2


def test_a_process_that_was_forked_does_not_end_its_parents_grab(coordinator: Coordinator) -> None:
    with coordinator.grab("job", "a", "one") as grab:
        grab._pid -= 1  # as in a child
    assert coordinator.grabs("job")[0].state == "running"
    grab.complete()


def test_a_lost_reply_is_recognised_as_ones_own_win_and_a_completion_as_ones_own(
    behind: Coordinator, proxy: Proxy
) -> None:
    behind.grab("warm", "up", "one").complete()
    proxy.lose_reply(b"grab_take")
    grab = behind.grab("job", "a", "one")
    assert proxy.lost.is_set()
    assert (grab.won, grab.attempt) == (True, 1)
    proxy.lost.clear()
    proxy.lose_reply(b"grab_end")
    grab.complete("once")
    assert proxy.lost.is_set()
    assert behind.grabs("job")[0].value == "once"


def test_a_process_that_takes_over_hears_of_it_also_where_the_next_reply_is_lost(
    behind: Coordinator, coordinator: Coordinator, proxy: Proxy
) -> None:
    class Losing(Renewer):
        def add(self, lease: Lease, ttl: float, since: float) -> None:
            super().add(lease, ttl, since)
            proxy.lose_reply(b"grab_look")

    first = coordinator.grab("job", "a", "one")
    grabber = replace(behind._grabber, renewer=Losing(behind.store))
    second = grabber.grab("job", "a", "two", Terms(30, "wait", 60, 3))
    assert first._lease
    coordinator.cancel(first._lease.job_id)
    assert (second.wait(60), second.won) == ("abandoned", True)
    second.complete()


def test_an_error_of_the_store_is_an_error_and_never_a_loss(behind: Coordinator, proxy: Proxy) -> None:
    behind.grab("warm", "up", "one").complete()
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        behind.grab("job", "a", "one")
    proxy.heal()
    assert behind.grab("job", "a", "two").won


def test_a_completion_that_could_not_be_stored_is_not_reported_as_done_and_another_takes_over(
    behind: Coordinator, coordinator: Coordinator, proxy: Proxy
) -> None:
    grab = behind.grab("job", "a", "one", ttl=30)
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        grab.complete()
    assert grab.state == "running"
    proxy.heal()
    grab.complete()  # asked again while the lease lasts
    assert grab.state == "complete"
    proxy.heal()
    with pytest.raises(StoreUnavailable), behind.grab("job", "b", "one", ttl=1):
        proxy.cut()
    proxy.heal()
    waiting = coordinator.grab("job", "b", "two", on_losing="wait")
    assert waiting.won or (waiting.wait(60), waiting.won) == ("abandoned", True)
    assert waiting.attempt == 2
    waiting.complete()


def test_a_wait_outlives_a_store_that_is_away(behind: Coordinator, coordinator: Coordinator, proxy: Proxy) -> None:
    grab = coordinator.grab("job", "a", "one")
    loser, heard = behind.grab("job", "a", "two"), list[str]()
    thread = threading.Thread(target=lambda: heard.append(loser.wait(30)))
    thread.start()
    channel = coordinator.store.key("grabbed", lane_of("job", "a"))
    wait_until(lambda: coordinator.store.read("PUBSUB NUMSUB", channel)[0][1] == 1)
    proxy.cut()
    grab.complete("meanwhile")
    time.sleep(1.2)  # longer than one poll
    assert not heard
    proxy.heal()
    thread.join(60)
    assert (heard, loser.result) == (["complete"], "meanwhile")


def test_a_wait_ends_past_its_limit_when_it_is_stopped_and_when_the_record_is_gone(coordinator: Coordinator) -> None:
    grab = coordinator.grab("job", "a", "one", ttl=5)
    loser = coordinator.grab("job", "a", "two")
    with pytest.raises(WaitTimeout):
        loser.wait(0.2)
    threading.Timer(0.2, loser.stop).start()
    assert loser.wait(60) == "stopped"
    other = coordinator.grab("job", "a", "three", on_losing="incomplete")
    coordinator.store._client.delete(coordinator.store.key("grab", lane_of("job", "a")))
    assert other.wait(60) == "abandoned"
    with pytest.raises(WaitTimeout):
        loser.wait(0.2)  # its lane is held
    with pytest.raises(LeaseLost):
        grab.complete()
    assert (loser.wait(60), loser.won) == ("abandoned", True), "its lane is free at once"
