"""What becomes of instants that no beat sent, of jitter, zones and bounds."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from celery.schedules import solar
from hypothesis import given
from hypothesis import strategies as st

from coordinator.scheduler import steering
from coordinator.scheduler.entry import Entry
from coordinator.scheduler.entry_plan import LAG, Due, EntryPlan, jitter_of
from coordinator.scheduler.schedules import Every, Quartz, Schedule, schedule_of
from tests.coordinator.scheduler.beats import Beats, entry, instant_of, look_again, source

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MINUTE = timedelta(minutes=1)


def taken(plan: EntryPlan, now: datetime, grace: timedelta) -> list[Due]:
    """All that a beat does with an entry at this moment."""
    found = []
    while one := plan.due(now, grace):
        found.append(one)
        plan.count_from(one.instant)
    return found


def plan(**given: object) -> EntryPlan:
    found = EntryPlan(Entry(**{"name": "n", "schedule": 60, "task": "t", **given}))  # type: ignore[arg-type]
    found.count_from(NOON)
    return found


def test_skip_sends_nothing_that_was_missed() -> None:
    (passed,) = taken(plan(misfire="skip"), NOON + 10.5 * MINUTE, HOUR)
    assert passed == Due(NOON + 10 * MINUTE, sent=False, missed=10)


def test_all_sends_every_missed_instant_in_order() -> None:
    found = taken(plan(misfire="all"), NOON + 10.5 * MINUTE, HOUR)
    assert found == [Due(NOON + n * MINUTE) for n in range(1, 11)]


def test_all_makes_up_for_the_last_ones_up_to_its_number() -> None:
    found = taken(plan(misfire="all", catch_up=3), NOON + 10.5 * MINUTE, HOUR)
    assert found[0] == Due(NOON + 7 * MINUTE, sent=False, missed=7)
    assert found[1:] == [Due(NOON + n * MINUTE) for n in (8, 9, 10)]


def test_the_grace_bounds_the_age_of_what_is_made_up_for() -> None:
    found = taken(plan(misfire="all"), NOON + 10.5 * MINUTE, 3 * MINUTE)
    assert found[0] == Due(NOON + 7 * MINUTE, sent=False, missed=7)
    assert [one.instant for one in found[1:]] == [NOON + n * MINUTE for n in (8, 9, 10)]


@given(
    st.integers(0, 40_000), st.sampled_from(["once", "all", "skip"]), st.integers(0, 5), st.sampled_from([0, 45, 700])
)
def test_whatever_was_missed_each_instant_is_taken_once_in_order_or_passed_over(
    gone: int, misfire: str, catch_up: int, jitter: float
) -> None:
    one = plan(schedule=60 * 7, misfire=misfire, catch_up=catch_up, jitter=jitter)
    now = NOON + timedelta(seconds=gone)
    found = taken(one, now, HOUR)
    instants = [due_.instant for due_ in found]
    assert instants == sorted(set(instants))
    late = [due_ for due_ in found if due_.sent and now - one.fires(due_.instant) > LAG]
    assert len(late) <= {"once": 1, "skip": 0, "all": catch_up}[misfire]
    assert all(one.fires(due_.instant) <= now for due_ in found if due_.sent)
    assert one.at is not None
    assert one.at > now


@dataclass
class Counted:
    """Counts how often it is asked."""

    schedule: Schedule
    asked: int = 0

    def next(self, after: datetime) -> datetime | None:
        self.asked += 1
        return self.schedule.next(after)


@pytest.mark.parametrize("misfire", ["once", "all", "skip"])
@pytest.mark.parametrize("given_schedule", [Every(0.1), Quartz("* * * * * ?"), Quartz("* * 3 1 * ?")])
def test_a_beat_that_was_away_for_a_year_looks_at_few_instants(misfire: str, given_schedule: Schedule) -> None:
    for jitter, grace in product((0, 86400), (HOUR, 1000 * DAY)):
        one = plan(schedule=given_schedule, misfire=misfire, jitter=jitter)
        one.schedule = counted = Counted(given_schedule)
        for _ in range(5):
            counted.asked = 0
            found = one.due(NOON + 365 * DAY, grace)
            assert counted.asked < 10_000
            one.count_from(found.instant if found else NOON)


def test_catching_up_with_many_instants_looks_at_each_a_few_times() -> None:
    one = plan(schedule=0.1, misfire="all", catch_up=10_000)
    one.schedule = counted = Counted(Every(0.1))
    found = taken(one, NOON + 365 * DAY, HOUR)
    assert [due_.sent for due_ in found[:3]] == [False, False, True]
    assert sum(due_.sent for due_ in found) == 10_000 + 101
    assert counted.asked < 1_000_000


def test_the_next_instants_of_an_entry_that_nobody_sent_for_a_year_are_found_among_few() -> None:
    counted = Counted(Every(0.1))
    found = steering._upcoming("n", counted, NOON - 365 * DAY, NOON, 86400, 1000)
    assert len(set(found)) == 1000
    assert all(at + jitter_of("n", at, 86400) > NOON for at in found)
    assert counted.asked < 3000


def test_what_was_missed_is_counted_up_to_a_bound() -> None:
    found = [taken(plan(misfire="skip"), NOON + (gone + 0.5) * MINUTE, DAY) for gone in (999, 1000, 5000)]
    assert [one.missed for (one,) in found] == [999, 1000, 1000]


def test_jitter_is_the_same_in_all_beats_and_no_instant_is_sent_early_or_much_later() -> None:
    late = [jitter_of("n", NOON + n * MINUTE, 30) for n in range(200)]
    assert late == [jitter_of("n", NOON + n * MINUTE, 30) for n in range(200)]
    assert all(timedelta(0) <= one <= timedelta(seconds=30) for one in late)
    assert len(set(late)) > 150
    assert late != [jitter_of("m", NOON + n * MINUTE, 30) for n in range(200)]


def test_an_instant_with_jitter_keeps_its_id_and_waits_for_its_time() -> None:
    one = plan(jitter=50)
    assert one.at == NOON + MINUTE + jitter_of("n", NOON + MINUTE, 50)
    assert one.due(one.at - timedelta(milliseconds=1), HOUR) is None
    assert one.due(one.at, HOUR) == Due(NOON + MINUTE)
    long = plan(jitter=3000)
    assert long.at is not None
    assert long.due(long.at, HOUR) == Due(NOON + MINUTE), "later than a lag, and yet in time"


def test_an_entry_has_a_first_and_a_last_instant() -> None:
    bounded = Entry("n", 60, "t", first=NOON + 5 * MINUTE, last=(NOON + 6 * MINUTE).replace(tzinfo=None)).planned()
    first = bounded.next(NOON)
    assert first == NOON + 5 * MINUTE
    assert bounded.next(first) == NOON + 6 * MINUTE
    assert bounded.next(NOON + 6 * MINUTE) is None


@pytest.mark.parametrize("zone", ["Europe/Berlin", ZoneInfo("Europe/Berlin")], ids=["named", "given"])
def test_an_entry_goes_by_its_own_zone(zone: str | ZoneInfo) -> None:
    nightly = Entry("n", "0 30 2 * * ?", "t", zone=zone).planned()
    assert nightly.next(NOON) == Quartz("0 30 2 * * ?", ZoneInfo("Europe/Berlin")).next(NOON) == NOON + 13.5 * HOUR


def test_an_event_of_the_sun_is_one_instant_wherever_a_beat_begins_to_look() -> None:
    sunset = schedule_of(solar("sunset", 52.5, 13.4))
    first = sunset.next(NOON)
    assert first is not None
    assert datetime(2026, 11, 21, 15, tzinfo=UTC) < first < datetime(2026, 11, 21, 15, 20, tzinfo=UTC)
    assert {sunset.next(NOON - n * HOUR / 7) for n in range(100)} == {first}
    second = sunset.next(first)
    assert second is not None
    assert timedelta(hours=23.8) < second - first < timedelta(hours=24.2)


def test_where_the_sun_does_not_rise_the_next_day_counts_on_which_it_does() -> None:
    sunrise = schedule_of(solar("sunrise", 69.6, 18.9))  # Tromsø
    found = sunrise.next(datetime(2026, 12, 1, tzinfo=UTC))
    assert found is not None
    assert datetime(2027, 1, 12, tzinfo=UTC) < found < datetime(2027, 1, 18, tzinfo=UTC)


def test_a_new_field_that_an_entry_does_not_name_leaves_its_hash_as_it_was() -> None:
    assert Entry("n", 60, "t").hash(Every(60)) == Entry("n", 60, "t", misfire="once", jitter=0.0).hash(Every(60))
    assert Entry("n", 60, "t").hash(Every(60)) != Entry("n", 60, "t", misfire="all").hash(Every(60))


def test_beats_make_up_for_every_missed_instant_and_history_tells_what_was_missed(beats: Beats) -> None:
    given = entry(schedule=60, misfire="all", catch_up=4)
    beats.beat(source(given)).tick()
    beats.absent("n", beats.now() - 10 * MINUTE)
    several = [beats.beat(source(given)) for _ in range(2)]
    for beat in several * 2:
        look_again(beat)
    late = [instant_of(job_id) for job_id in beats.ids() if beats.now() - instant_of(job_id) > LAG]
    assert len(late) == 4
    assert late == sorted(late)
    assert next(one.missed for one in beats.coordinator.entries.history("n") if one.word == "missed") in (5, 6)
