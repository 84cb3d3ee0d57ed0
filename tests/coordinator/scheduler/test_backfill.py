"""Past instants of an entry run as jobs, each once, whatever beats, callers and operators do meanwhile."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator import InvalidJob, UnknownEntry, UnknownJob
from coordinator.core.store import steps
from coordinator.core.store.times import to_ms
from coordinator.errors import StoreUnavailable
from coordinator.scheduler.backfill import quota_of
from coordinator.scheduler.beat import Scheduler
from coordinator.scheduler.entry import Entry, tick_id
from coordinator.scheduler.entry_plan import EntryPlan
from tests.coordinator.scheduler.beats import Beats, entry, look_again, source
from tests.harness.hand_node import Puppet, Taken
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer

MARCH = datetime(2026, 3, 1, tzinfo=UTC)
NIGHT, HOURLY = "0 0 2 * * ?", "0 0 * * * ?"


def nights(number: int, first: int = 1) -> list[str]:
    return [f"n@2026-03-{day:02}T02:00:00Z" for day in range(first, first + number)]


def nightly(**rest: Any) -> Entry:
    return entry(**({"schedule": NIGHT, "task": "shop.work"} | rest))


class World:
    """A beat with the entry `n`, and a node that is played by hand."""

    def __init__(self, beats: Beats, **rest: Any) -> None:
        self.beats = beats
        self.entries = beats.coordinator.entries
        self.node = Puppet(beats.store)
        self.node.up(capacity=50, queue=beats.prefix)
        self.beat: Scheduler = beats.beat(source(nightly(**rest)))
        self.beat.tick()

    def fill(self, number: int, **rest: Any) -> Any:
        return self.entries.backfill("n", MARCH, MARCH + timedelta(days=number), **rest)

    def look(self, beat: Scheduler | None = None) -> None:
        """A beat looks at its backfills."""
        (beat or self.beat)._follow_at = 0.0
        look_again(beat or self.beat)

    def run(self, state: str = "succeeded", most: int = 1000) -> list[str]:
        """Run what is in line, until nothing more comes. Returns the ids, in the order in which they ran."""
        ran: list[str] = []
        self.look()
        while len(ran) < most and (taken := self.node.take()):
            self.node.finish(taken, state)
            ran.append(taken.id)
            self.look()
        return ran

    def at_work(self) -> list[Taken]:
        return list(iter(self.node.take, None))

    @property
    def status(self) -> Any:
        return self.entries.entry("n").backfill


@pytest.fixture
def world(beats: Beats) -> World:
    return World(beats)


@pytest.fixture
def loose(beats: Beats) -> World:
    return World(beats, key=None)


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


def test_each_instant_of_a_range_runs_once_the_oldest_first(world: World) -> None:
    planned = world.entries.plan_backfill("n", "2026-03-01", "2026-03-11")
    assert world.status is None
    asked = world.fill(10, why="new report", by="ann")
    assert asked == planned
    assert (asked.number, asked.new, asked.first) == (10, 10, MARCH + timedelta(hours=2))
    assert str(asked) == "10 of 10 instants to run"
    assert world.run() == nights(10)
    assert str(world.status) == "10 of 10 succeeded"
    assert world.status.over
    assert world.fill(10).new == 0
    assert world.run() == []
    acts = [(one.word, one.by, one.why) for one in world.entries.history("n") if one.kind == "act"]
    said = "backfill 2026-03-01T00:00:00+00:00 2026-03-11T00:00:00+00:00"
    assert acts == [(said, "ann", "new report")]


def test_its_jobs_know_their_instants_and_the_newest_may_be_first(world: World) -> None:
    world.fill(4, reverse=True)
    assert world.run() == nights(4)[::-1]
    job = world.beats.coordinator.job(nights(1)[0])
    assert (job.id, job.keys) == (tick_id("n", MARCH + timedelta(hours=2)), ("n",))


def test_a_lane_has_two_of_its_jobs_and_others_overtake_the_one_that_waits(world: World) -> None:
    world.fill(20, at_once=9)
    for _ in range(3):
        world.look()
    (first,) = world.at_work()
    assert (first.id, world.beats.coordinator.lane("n").length) == (nights(1)[0], 2)
    world.node.submit("n", job_id="other", queue=world.beats.prefix)
    world.node.finish(first)
    assert [one.id for one in world.at_work()] == ["other"]


def test_no_more_are_at_work_than_at_once_says_and_that_can_be_changed_at_work(loose: World) -> None:
    loose.fill(20, at_once=3)
    loose.look()
    held = loose.at_work()
    assert [one.id for one in held] == nights(3)
    for _ in range(3):
        loose.look()
    assert loose.status.in_line == 6
    assert loose.at_work() == []
    loose.fill(20, at_once=5)
    loose.look()
    assert len(loose.at_work()) == 2
    quota = loose.beats.coordinator.quota_status(quota_of("n")).quota
    assert (quota.concurrency, quota.used) == (5, 5)


def test_of_several_beats_each_instant_is_put_in_line_by_one(beats: Beats) -> None:
    world = World(beats, key=None)
    more = [beats.beat(source(nightly(key=None))) for _ in range(2)]
    for beat in more:
        beat.tick()
    world.fill(28, at_once=2)
    ran: list[str] = []
    while not world.status.over:
        for beat in (world.beat, *more):
            world.look(beat)
        for taken in world.at_work():
            world.node.finish(taken)
            ran.append(taken.id)
    assert sorted(ran) == nights(28)
    assert beats.coordinator.counts()["created"] == 28


def late_call(world: World, day: int, room: int) -> tuple[str, str]:
    """What a beat does that looked at its backfill, and then stood still."""
    backfilling, plan = world.beat._backfilling, EntryPlan(nightly(key=None))
    keys, signature, options = backfilling._parts(plan.entry)
    at = MARCH + timedelta(days=day - 1, hours=2)
    return backfilling._call(plan, keys, signature, options, at, room).run(world.beats.store)


def test_a_beat_that_stood_still_runs_nothing_again_and_puts_no_more_in_line_than_there_is_room(loose: World) -> None:
    loose.fill(5)
    assert loose.run(most=2) == nights(2)
    for job_id in nights(2):
        loose.beats.client.delete(loose.beats.store.key("job", job_id))
    assert late_call(loose, 1, room=100) == ("over", "")
    assert loose.status.in_line == 2
    assert late_call(loose, 5, room=2) == ("full", "")
    assert late_call(loose, 5, room=3)[0] == "queued"
    loose.entries.stop_backfill("n")
    assert late_call(loose, 4, room=100) == ("over", "")


def test_its_jobs_drive_no_ticks_out_of_the_history(world: World) -> None:
    world.fill(5)
    world.run()
    assert [one.kind for one in world.entries.history("n")] == ["act"]
    assert len(world.beats.store.read("LRANGE", world.beats.store.key("ticks", "n"), 0, -1)) == 1


def test_a_stop_takes_out_of_line_what_did_not_start_and_the_same_call_goes_on(loose: World) -> None:
    loose.fill(10, at_once=2)
    loose.look()
    first, second = loose.at_work()
    assert loose.entries.stop_backfill("n", why="the store is full", by="ann")
    assert not loose.entries.stop_backfill("n")
    status = loose.status
    assert (status.to_come, status.in_line, status.stopped["why"]) == (8, 2, "the store is full")
    assert str(status) == "0 of 10 succeeded, 2 in line, stopped"
    loose.node.finish(first)
    loose.node.finish(second)
    assert loose.run() == []
    assert loose.fill(10, at_once=2).to_come == 8
    assert loose.status.stopped is None
    assert loose.run() == nights(8, 3)
    assert str(loose.status) == "10 of 10 succeeded"
    assert loose.beats.coordinator.counts()["created"] == 10


def test_a_stop_leaves_the_lane_to_others(world: World) -> None:
    world.fill(10)
    world.look()
    world.entries.stop_backfill("n")
    assert world.beats.coordinator.lane("n").length == 0
    assert world.run() == []


def test_what_failed_is_named_and_runs_again_only_by_a_retry(world: World) -> None:
    world.fill(3)
    assert world.run("failed") == nights(3)
    assert str(world.status) == "0 of 3 succeeded, 3 failed"
    assert sorted(world.status.failed_ids) == nights(3)
    again = world.fill(3)
    assert (again.new, again.failed) == (0, 3)
    assert "3 ended without success (`retry` runs such a job again)" in str(again)
    assert world.run() == []
    world.beats.coordinator.retry(nights(1)[0])
    assert str(world.status) == "0 of 3 succeeded, 2 failed, 1 in line"
    assert world.run() == nights(1)
    assert str(world.status) == "1 of 3 succeeded, 2 failed"


def test_an_instant_that_a_cancel_ended_is_not_put_in_line_again(world: World) -> None:
    world.fill(3)
    world.look()
    world.beats.coordinator.cancel(nights(2)[1])
    assert world.run() == [nights(3)[0], nights(3)[2]]
    assert (world.status.succeeded, world.status.ended) == (2, 1)


def test_an_instant_that_ran_is_known_when_its_record_is_gone(world: World) -> None:
    world.fill(3)
    world.run()
    client = world.beats.client
    for job_id in nights(3):
        assert client.delete(world.beats.store.key("job", job_id))
    assert (world.fill(5).new, world.run()) == (2, nights(2, 4))


@pytest.mark.parametrize(("line", "ran"), [
    (["{at} 0 queued 0 b:1", "={at} succeeded 5"], True),
    (["{at} 0 queued 0 b:1", "={at} failed 5"], False),
    (["{at} 0 queued 0 b:1", "={at} failed 5", "={at} succeeded 6"], True),
    (["{at} 0 sent 0 b:1"], True),
    (["{at} 0 coalesced 0 b:1"], True),
    (["{at} 0 skipped 0 b:1"], False),
    (["{at} 0 missed 3 b:1"], False),
])  # fmt: skip
def test_the_history_tells_which_instants_ran(world: World, line: list[str], ran: bool) -> None:
    at = to_ms(MARCH + timedelta(hours=2))
    world.beats.client.rpush(world.beats.store.key("ticks", "n"), *(one.format(at=at) for one in line))
    asked = world.fill(2)
    assert (asked.new, asked.succeeded) == (2 - ran, int(ran))
    assert world.run() == nights(2)[int(ran) :]


def test_an_instant_that_no_beat_took_is_left_to_the_beats(beats: Beats) -> None:
    world = World(beats, misfire="all")
    beats.absent("n", MARCH + timedelta(days=3))
    asked = world.fill(5)
    assert (asked.new, asked.beats, str(asked)) == (3, 2, "3 of 5 instants to run, 2 still to be sent by beats")


def test_an_instant_that_a_beat_is_sending_is_left_to_the_beats(beats: Beats) -> None:
    world = World(beats, key=None)
    beats.absent("n", MARCH + timedelta(days=3))
    assert beats.take("n", MARCH + timedelta(days=3, hours=2), claim=60000)[0] == b"taken"
    asked = world.fill(4)
    assert (asked.new, asked.beats) == (3, 1)


def hours(beats: Beats, number: int) -> tuple[datetime, datetime]:
    """The range of so many hours before the one that has begun."""
    hour = beats.now().replace(minute=0, second=0, microsecond=0)
    return hour - timedelta(hours=number), hour


def test_a_tick_whose_job_is_in_line_is_there_already_and_its_end_is_seen(beats: Beats) -> None:
    world = World(beats, schedule=HOURLY)
    since, hour = hours(beats, 2)
    beats.missed_hour()
    look_again(beats.beat(source(nightly(schedule=HOURLY))))
    assert world.beats.coordinator.job(tick_id("n", hour)).state == "ready"
    asked = world.entries.backfill("n", since, beats.now())
    assert (asked.new, asked.in_line) == (2, 1)
    assert world.run() == [tick_id("n", at) for at in (hour, since, since + timedelta(hours=1))]
    assert str(world.status) == "3 of 3 succeeded"
    (tick,) = [one for one in world.entries.history("n") if one.kind == "tick"]
    assert tick.state == "succeeded"


@pytest.mark.parametrize("foreign", [False, True])
def test_a_tick_that_is_skipped_for_a_job_of_the_backfill_runs_as_a_part_of_it(beats: Beats, foreign: bool) -> None:
    world = World(beats, schedule=HOURLY, when_busy="skip")
    since, hour = hours(beats, 2)
    if foreign:
        world.node.submit("n", job_id="other", queue=beats.prefix)
    world.entries.backfill("n", since, hour)
    world.look()
    beats.missed_hour()
    late = beats.beat(source(nightly(schedule=HOURLY, when_busy="skip")))
    look_again(late)
    (tick,) = [one for one in world.entries.history("n") if one.kind == "tick"]
    assert (tick.word, tick.at) == ("skipped", hour)
    mine = [tick_id("n", at) for at in (since, since + timedelta(hours=1))]
    assert world.run() == (["other", *mine] if foreign else [*mine, tick_id("n", hour)])
    assert world.status.number == (2 if foreign else 3)


def test_a_job_whose_record_was_lost_is_put_in_line_again(loose: World) -> None:
    loose.fill(3)
    loose.look()
    assert loose.status.in_line == 2
    store = loose.beats.store
    loose.beats.client.delete(store.key("job", nights(1)[0]))
    loose.look()
    assert loose.status.in_line == 2
    assert loose.beats.coordinator.job(nights(1)[0]).state in ("ready", "waiting")


def test_a_reply_that_is_lost_does_no_harm(world: World, proxy: Proxy, beats: Beats) -> None:
    far = Beats(beats.server, beats.prefix, url=proxy.url(0)).coordinator
    proxy.lose_reply(b"entry_backfill")
    with pytest.raises(StoreUnavailable):
        far.entries.backfill("n", MARCH, "2026-03-04")
    assert far.entries.backfill("n", MARCH, "2026-03-04").new == 0
    beat = Beats(beats.server, beats.prefix, url=proxy.url(0)).beat(source(nightly()))
    beat.tick()
    proxy.lose_reply(b"backfill_take")
    world.look(beat)
    assert world.status.in_line > 0
    assert world.run() == nights(3)
    assert beats.coordinator.counts()["created"] == 3


def test_a_caller_that_was_killed_in_the_middle_is_finished_by_the_same_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.scheduler.backfill.CHUNK", 2)
    usual, calls = steps.entry_backfill, []

    def once(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return usual(*args)

    with monkeypatch.context() as cut:
        cut.setattr(steps, "entry_backfill", once)
        with pytest.raises(KeyboardInterrupt):
            world.fill(5)
    assert world.status.number == 2
    assert world.fill(5).new == 3
    assert world.run() == nights(5)
    assert len([one for one in world.entries.history("n") if one.kind == "act"]) == 2


def test_a_job_that_cannot_be_made_is_told_and_another_call_tries_again(world: World) -> None:
    world.fill(3)
    world.beats.coordinator.drop_quota(quota_of("n"))
    world.look()
    assert world.status.error == f"quota {quota_of('n')} is not declared any more"
    assert str(world.status) == "0 of 3 succeeded, stopped"
    assert world.run() == []
    world.fill(3)
    assert world.status.error == ""
    assert world.run() == nights(3)


def test_a_task_that_is_keyed_itself_stays_in_its_lane(beats: Beats) -> None:
    beat = beats.beat(source(nightly(key=None, kwargs={"shelf": "7"}, options={"exchange": "x", "expires": 5})))

    @beat.app.task(
        name="shop.work", shared=False, coordinate={"key": "shelf/{shelf}", "when_busy": "skip", "uses": "licence"}
    )
    def work(shelf: str) -> None:
        """Never run here."""

    beats.coordinator.quota("licence", concurrency=1)
    beat.tick()
    beats.coordinator.entries.backfill("n", MARCH, "2026-03-04", at_once=3)
    beat._follow_at = 0.0
    look_again(beat)
    jobs = [beats.coordinator.job(job_id) for job_id in nights(2)]
    assert [(job.keys, job.priority, sorted(job.uses)) for job in jobs] == [
        (("shelf/7",), -1, [quota_of("n"), "licence"])
    ] * 2
    with pytest.raises(UnknownJob):
        beats.coordinator.job(nights(3)[2])


def test_the_options_of_a_tick_do_not_drop_the_jobs_of_a_backfill(beats: Beats) -> None:
    submit: Any = {"max_waiting": 1, "priority": 5, "uses": {"licence": 2}}
    world = World(beats, when_busy="defer", submit=submit, options={"expires": 1, "queue": beats.prefix})
    beats.coordinator.quota("licence", concurrency=2)
    world.fill(3)
    world.look()
    job = beats.coordinator.job(nights(1)[0])
    assert (job.priority, job.uses["licence"].units) == (-1, 2)
    assert beats.client.hget(beats.store.key("job", job.id), "expires") is None
    assert world.run() == nights(3)


def test_a_paused_entry_can_be_filled_and_an_operators_schedule_counts(world: World) -> None:
    world.entries.pause("n")
    world.entries.change("n", "0 0 3 ? * SUN")
    asked = world.fill(14)
    assert (asked.number, asked.first) == (2, datetime(2026, 3, 1, 3, tzinfo=UTC))
    assert world.run() == ["n@2026-03-01T03:00:00Z", "n@2026-03-08T03:00:00Z"]


def test_a_beat_with_an_older_version_of_the_entry_puts_nothing_in_line(beats: Beats) -> None:
    world = World(beats)
    world.fill(3)
    world.beat._backfilling.go_on(EntryPlan(nightly(args=["old"])), 1)
    assert world.status.to_come == 3
    world.beat._backfilling.go_on(EntryPlan(nightly()), 1)
    assert world.status.to_come == 1


@pytest.mark.parametrize(("since", "until", "said"), [
    ("2026-03-01", "2026-03-01T01:00:00Z", "no instant from 2026-03-01 00:00:00Z to 2026-03-01 01:00:00Z"),
    ("2026-03-05", "2026-03-01", "since 2026-03-05 00:00:00Z is not before until 2026-03-01 00:00:00Z"),
    ("2026-03-01", "2126-03-01", "until 2126-03-01 00:00:00Z is to come: beats send those instants; leave until out"),
    ("soon", None, "since 'soon': give an instant, such as 2026-01-01"),
    (7, None, "since 7: give an instant, such as 2026-01-01"),
    ("1960-03-01", None, "give an instant from 1970 on"),
    ("1970-01-01", None, "more than 10,000 instants in that range: give until='1997-05-19T02:00:00"),
])  # fmt: skip
def test_a_range_that_cannot_be_filled_is_named_with_the_way_out(
    world: World, since: Any, until: Any, said: str
) -> None:  # fmt: skip
    for call in (world.entries.backfill, world.entries.plan_backfill):
        with pytest.raises(InvalidJob) as refused:
            call("n", since, until)
        assert said in str(refused.value)
    assert world.status is None
    with pytest.raises(UnknownEntry):
        world.entries.backfill("m", "2026-03-01")
    with pytest.raises(UnknownEntry):
        world.entries.stop_backfill("m")
    with pytest.raises(InvalidJob, match="at_once"):
        world.entries.backfill("n", "2026-03-01", "2026-03-04", at_once=0)
