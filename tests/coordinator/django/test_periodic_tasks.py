"""Rows of django-celery-beat's tables as entries of the schedule."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coordinator.scheduler.entry import Entry
from coordinator.scheduler.schedules import Schedule, text_of
from tests.harness.periodic_tasks import Tables, tables

NOON = datetime(2027, 1, 4, 12, tzinfo=UTC)  # a Monday


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Tables]:
    with tables(tmp_path.name, ENGINE="django.db.backends.sqlite3", NAME=tmp_path / "db") as made:
        yield made


def entries(rows: Tables, zone: Any = None) -> dict[str, Entry]:
    from coordinator.django.periodic_tasks import entry_of, read_rows

    return {row.name: entry_of(row, zone, lambda entry: None) for row in read_rows(rows.rows.using(rows.alias))}


def planned(rows: Tables, name: str = "n") -> Schedule:
    return entries(rows)[name].planned()


def reason(rows: Tables, name: str = "n") -> str:
    with pytest.raises(ValueError) as failed:
        planned(rows, name)
    return str(failed.value)


def saved(rows: Tables, at: datetime, name: str = "n") -> None:
    rows.silently(name, date_changed=at)


def test_a_row_s_arguments_headers_and_routes_are_those_of_its_entry(rows: Tables) -> None:
    until = NOON + timedelta(days=1)
    rows.add(args=[1], kwargs={"at": 2}, headers={"tenant": "acme"}, queue="mail", priority=0, expires=until)
    rows.add("bare", headers="{}", args="", kwargs="", exchange="", routing_key="r", expire_seconds=30)
    rows.add("off", enabled=False)
    found = entries(rows)
    assert found.keys() == {"n", "bare"}
    headers = {"tenant": "acme", "periodic_task_name": "n"}
    assert (found["n"].task, found["n"].args, found["n"].kwargs) == ("sync", [1], {"at": 2})
    assert found["n"].options == {"queue": "mail", "priority": 0, "expires": until, "headers": headers}
    assert found["n"].key is None
    assert found["bare"].options == {
        "routing_key": "r", "expires": 30, "headers": {"periodic_task_name": "bare"},
    }  # fmt: skip


def test_the_header_coordinate_has_what_the_table_has_no_column_for(rows: Tables) -> None:
    own = {"key": "report", "when_busy": "skip", "misfire": "all", "catch_up": 5, "jitter": 2}
    rows.add(headers={"coordinate": own, "tenant": "acme"})
    rows.add("past", headers={"coordinate": False})
    entry = entries(rows)["n"]
    assert {name: getattr(entry, name) for name in own} == own
    assert entry.options == {"headers": {"tenant": "acme", "periodic_task_name": "n"}}
    assert entries(rows)["past"].options == {"headers": {"coordinate": False, "periodic_task_name": "past"}}


def test_each_kind_of_schedule_has_the_instants_that_the_admin_shows(rows: Tables) -> None:
    rows.add("interval", 90)
    rows.add("part", 0.5)
    rows.add("crontab", crontab=rows.crontab("30", "Europe/Berlin", hour="7", day_of_week="mon-fri"))
    rows.add("solar", solar=rows.solar())
    rows.add("clocked", clocked=rows.clocked(NOON + timedelta(seconds=5, microseconds=1)), one_off=True)
    found = {name: entry.planned() for name, entry in entries(rows).items()}
    assert found["interval"].next(NOON) == NOON + timedelta(seconds=90)
    assert found["part"].next(NOON) == NOON + timedelta(seconds=0.5)
    assert found["crontab"].next(NOON) == datetime(2027, 1, 5, 6, 30, tzinfo=UTC)
    sunset = found["solar"].next(NOON)
    assert sunset is not None
    assert NOON + timedelta(hours=3) < sunset < NOON + timedelta(hours=3.2)
    assert found["clocked"].next(NOON) == NOON + timedelta(seconds=6)
    assert found["clocked"].next(NOON + timedelta(seconds=6)) is None


def test_a_project_that_leaves_the_crontabs_zones_out_gives_all_its_own(rows: Tables) -> None:
    rows.add(crontab=rows.crontab("0", "Asia/Tokyo", hour="7"))
    assert entries(rows, UTC)["n"].planned().next(NOON) == datetime(2027, 1, 5, 7, tzinfo=UTC)


def test_a_start_time_is_the_first_instant_of_an_interval_and_bounds_a_crontab(rows: Tables) -> None:
    start = NOON + timedelta(minutes=7, microseconds=1)
    rows.add(every=3600, start_time=start)
    rows.add("crontab", crontab=rows.crontab("0"), start_time=start)
    first = NOON + timedelta(minutes=7, milliseconds=1)
    assert planned(rows).next(NOON) == first
    assert planned(rows).next(first) == first + timedelta(hours=1)
    assert planned(rows, "crontab").next(NOON) == NOON + timedelta(hours=1)


def test_nothing_is_due_at_or_after_the_instant_at_which_a_row_expires(rows: Tables) -> None:
    rows.add(every=60, expires=NOON + timedelta(minutes=2))
    assert planned(rows).next(NOON) == NOON + timedelta(minutes=1)
    assert planned(rows).next(NOON + timedelta(minutes=1)) is None


def test_a_row_that_is_to_run_once_has_one_instant_that_follows_from_the_row(rows: Tables) -> None:
    rows.add(every=60, one_off=True)
    rows.add("start", every=60, one_off=True, start_time=NOON + timedelta(seconds=7))
    rows.add("past", clocked=rows.clocked(NOON - timedelta(days=7)), one_off=True)
    for name in ("n", "start", "past"):
        saved(rows, NOON - timedelta(seconds=1.5), name)
    for name, at in (("n", 60), ("start", 7), ("past", 1)):
        once = planned(rows, name)
        assert once.next(NOON - timedelta(days=9)) == NOON + timedelta(seconds=at)
        assert once.next(NOON + timedelta(seconds=at)) is None
    saved(rows, NOON - timedelta(seconds=2), "n")
    assert planned(rows).next(NOON - timedelta(days=9)) == NOON


def test_an_interval_with_a_start_has_a_text_by_which_operators_give_it(rows: Tables) -> None:
    rows.add(every=3600, start_time=NOON)
    schedule = entries(rows)["n"].schedule
    assert not isinstance(schedule, int | float | str)
    assert text_of(schedule) == f"every 3600 from {NOON.isoformat()}"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("args", "[1", "args '[1' is no JSON: "),
        ("args", '{"a": 1}', "args is a list in JSON, not '{\"a\": 1}'"),
        ("kwargs", "[]", "kwargs is an object in JSON, not '[]'"),
        ("headers", "no", "headers 'no' is no JSON: "),
        ("headers", '{"coordinate": 5}', "the header coordinate is false, or an object such as "),
        ("headers", '{"coordinate": {"kye": "a"}}', "the header coordinate has no field 'kye'; did you mean 'key'?"),
        ("headers", '{"coordinate": {"task": "other"}}', "the header coordinate has no field 'task'"),
        ("task", "", "task '': a name is 1 to 255 bytes of printable text"),
        ("interval_id", None, "it has no schedule: give it one of interval, crontab, solar and clocked"),
        ("interval_id", 99, "the row of its interval is gone: give it another schedule"),
        ("crontab_id", 1, "it has the schedules interval, crontab: give it one of "),
    ],
)
def test_a_row_that_says_what_cannot_be_says_why(rows: Tables, column: str, value: Any, said: str) -> None:
    rows.add()
    rows.write("PRAGMA foreign_keys = OFF")
    rows.write(f"UPDATE django_celery_beat_periodictask SET {column} = %s", value)
    assert reason(rows).startswith(said)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("minute", "61", "its crontab 61 * * * *: Invalid end range: 61 > 59."),
        ("minute", "", "its crontab  * * * *: empty part"),
        ("day_of_week", "7", "its crontab * * * * 7: Invalid end range: 7 > 6."),
        ("timezone", "Mars/Olympus", "no time zone 'Mars/Olympus' is known: give a name such as Europe/Berlin"),
    ],
)
def test_a_crontab_that_says_what_cannot_be_breaks_its_rows_alone(
    rows: Tables, column: str, value: str, said: str
) -> None:
    rows.add(crontab=rows.crontab())
    rows.add("good", crontab=rows.crontab())
    rows.write(f"UPDATE django_celery_beat_crontabschedule SET {column} = %s WHERE id = 1", value)
    assert reason(rows) == said
    assert planned(rows, "good").next(NOON) == NOON + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("every", "period", "said"),
    [
        (5, "fortnights", "its interval has the period 'fortnights': give one of days, hours, minutes, "),
        (1500, "microseconds", "an interval of 0.0015 s: give 0.1 s to 366 days, in whole milliseconds"),
        (0, "seconds", "an interval of 0.0 s: give "),
        (10**12, "days", ""),
    ],
)
def test_an_interval_that_cannot_be_breaks_its_rows(rows: Tables, every: int, period: str, said: str) -> None:
    rows.add()
    rows.write("UPDATE django_celery_beat_intervalschedule SET every = %s, period = %s", every, period)
    assert reason(rows).startswith(said)
