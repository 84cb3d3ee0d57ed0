"""Beats over the tables of django-celery-beat: what they send, what they write back, and a database that fails."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.db.backends.utils import CursorWrapper

from coordinator.django import beat as source_of_beat
from coordinator.django.beat import PeriodicTaskSource
from coordinator.scheduler import beat as scheduler
from coordinator.scheduler.beat import Scheduler
from coordinator.scheduler.entry import next_tick
from tests.coordinator.scheduler.beats import Beats, instant_of, pass_time, run, without_gap
from tests.harness.periodic_tasks import Tables, tables
from tests.harness.postgres import PostgresServer
from tests.harness.waiting import within


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Tables]:
    # A busy machine has several threads wait for one of them. A transaction that has read before it writes, as a save()
    # does for django-celery-beat's sign of a change, would not wait: SQLite refuses it at once beside another writer.
    patient = {"timeout": 30, "transaction_mode": "IMMEDIATE"}
    with tables(tmp_path.name, ENGINE="django.db.backends.sqlite3", NAME=tmp_path / "db", OPTIONS=patient) as made:
        yield made


class Fleet:
    """Beats over the tables, each with a thread of its own. They look more often than each second, so that tests are
    fast.
    """

    def __init__(self, beats: Beats, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(scheduler, "ROUND", 0.1)
        patch.setattr("coordinator.django.periodic_tasks.SEEN", timedelta(seconds=0.4))
        self._beats = beats
        self._sources: list[PeriodicTaskSource] = []

    def beat(self, writes: bool = True, app: Any = None) -> Scheduler:
        """`writes`: False: as a beat that is killed each time before it writes."""
        app = app or self._beats.app()
        source = PeriodicTaskSource(app.coordinator)
        if not writes:
            source._reader._write = lambda lasts: None  # type: ignore[method-assign]
        self._sources.append(source)
        app.coordinator.schedule_source(source)
        return Scheduler(app)

    def runs(self) -> Any:
        """What the first beat knows of the rows."""
        return self._sources[0]._reader._runs

    def stop(self) -> None:
        for source in self._sources:
            source.stop()


@pytest.fixture
def fleet(beats: Beats, rows: Tables, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    made = Fleet(beats, monkeypatch)
    yield made
    made.stop()


def sent(beats: Beats, name: str = "n") -> list[datetime]:
    return [instant_of(tick) for tick in beats.ids() if tick.startswith(f"{name}@")]


def test_two_beats_send_each_instant_of_a_row_once_and_count_it_once(beats: Beats, rows: Tables, fleet: Fleet) -> None:
    row = rows.add(every=0.2)
    pair = fleet.beat(), fleet.beat()
    run(*pair, until=lambda: len(sent(beats)) >= 5)
    row.refresh_from_db()
    row.interval = rows.interval(3600)
    row.save()
    run(*pair, until=lambda: next_tick(beats.store, "n").minute == 0)  # type: ignore[union-attr]
    count = len(sent(beats))
    run(*pair, until=lambda: rows.counted()[1] == count)
    pass_time(beats, 0.5, *pair)
    assert rows.counted() == (sent(beats)[-1], count)
    assert without_gap(beats.ids(), 0.2)


def test_of_two_beats_that_read_the_same_row_one_counts(beats: Beats, rows: Tables, fleet: Fleet) -> None:
    rows.add(every=0.2)
    beat = fleet.beat(writes=False)
    run(beat, until=lambda: len(sent(beats)) >= 3)
    runs = fleet.runs()
    [columns], ticks = runs.columns(["n"]), runs.ticks(["n"])
    assert [runs.count(columns, ticks["n"]) for _ in range(2)] == [True, False]
    assert rows.counted() == (ticks["n"].events[-1].at, len(ticks["n"].events))


def test_what_a_killed_beat_sent_is_counted_by_another_however_much_it_is(
    beats: Beats, rows: Tables, fleet: Fleet
) -> None:
    rows.add(every=0.1)
    run(fleet.beat(writes=False), until=lambda: len(sent(beats)) >= 25)
    assert rows.counted() == (None, 0)
    run(fleet.beat(), until=lambda: rows.counted()[1])
    last, count = rows.counted()
    assert count == len([at for at in sent(beats) if last and at <= last]) >= 25


def test_a_task_that_another_beat_sends_for_one_that_was_killed_is_counted_when_it_is_sent(
    beats: Beats, rows: Tables, fleet: Fleet
) -> None:
    rows.add(every=3600, headers={})
    rows.silently(date_changed=beats.now() - timedelta(hours=2))
    beat = fleet.beat()
    run(beat, until=lambda: beats.tick("n"))
    hour = beats.missed_hour()
    assert beats.take("n", hour, 1500)[0] == b"taken"
    another = fleet.beat()
    run(beat, another, until=lambda: rows.counted()[1])
    assert beats.messages()
    assert rows.counted() == (hour, 1)


def test_an_old_version_of_a_row_that_a_form_writes_is_counted_up_again(
    beats: Beats, rows: Tables, fleet: Fleet
) -> None:
    rows.add(every=0.2)
    beat = fleet.beat()
    run(beat, until=lambda: rows.counted()[1] >= 1)
    form = rows.row()
    run(beat, until=lambda: rows.counted()[1] >= form.total_run_count + 2)
    form.save()
    assert rows.counted()[1] == form.total_run_count
    run(beat, until=lambda: rows.counted()[1] >= form.total_run_count + 3)
    last, count = rows.counted()
    assert count == len([at for at in sent(beats) if last and at <= last])


def test_a_row_whose_last_run_was_taken_out_counts_nothing_twice(beats: Beats, rows: Tables, fleet: Fleet) -> None:
    """As the admin does for a row that it disables; here it is enabled again before a beat looks."""
    rows.add(every=0.2)
    beat = fleet.beat()
    run(beat, until=lambda: rows.counted()[1] >= 4)
    rows.silently(last_run_at=None)
    run(beat, until=lambda: rows.counted()[0])
    last, count = rows.counted()
    assert count == len([at for at in sent(beats) if last and at <= last])


def test_an_edit_in_the_admin_is_live_within_two_seconds(
    beats: Beats, rows: Tables, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "ROUND", 1.0)
    row = rows.add(every=3600)
    beat = fleet.beat()
    run(beat, until=lambda: beats.tick("n"))
    with within(10):
        row.interval = rows.interval(0.1)
        row.save()
        run(beat, until=lambda: sent(beats))
    row.delete()
    with within(10):
        run(beat, until=lambda: beats.tick("n") == {})


def test_an_idle_beat_asks_the_database_one_thing_a_second(
    beats: Beats, rows: Tables, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "ROUND", 1.0)
    rows.add(every=3600)
    beat = fleet.beat()
    run(beat, until=lambda: beats.tick("n"))
    pass_time(beats, 1.1, beat)
    asked: list[str] = []
    execute = CursorWrapper.execute

    def heard(self: Any, sql: str, *args: object) -> Any:
        asked.append(sql)
        return execute(self, sql, *args)

    monkeypatch.setattr(CursorWrapper, "execute", heard)
    pass_time(beats, 2.1, beat)
    assert 2 <= len(asked) <= 3
    assert all("periodictasks" in sql and "WHERE" in sql for sql in asked), asked


def test_an_edit_without_a_sign_is_read_within_a_minute(
    beats: Beats, rows: Tables, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source_of_beat.ANEW == 60
    monkeypatch.setattr(source_of_beat, "ANEW", 0.5)
    fast = rows.interval(0.1)
    rows.add(every=3600)
    beat = fleet.beat()
    run(beat, until=lambda: beats.tick("n"))
    version = beat._readings[1].version
    pass_time(beats, 1, beat)
    assert beat._readings[1].version == version
    rows.silently(interval=fast, headers='{"coordinate": {"key": "other"}}')
    run(beat, until=lambda: sent(beats), seconds=4)


def test_a_broken_row_is_named_and_harms_no_other(
    beats: Beats, rows: Tables, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    rows.add("bad", args="[1")
    rows.add("lost", crontab=rows.crontab())
    rows.add("keyless", headers={"coordinate": {"key": "a\nb"}})
    rows.add(every=0.2)
    rows.write("UPDATE django_celery_beat_crontabschedule SET timezone = 'Mars'")
    run(fleet.beat(), until=lambda: len(sent(beats)) >= 3 and rows.counted()[1])
    assert "schedule entry 'bad' is left out: args '[1' is no JSON: " in caplog.text
    assert "schedule entry 'lost' is left out: no time zone 'Mars' is known" in caplog.text
    assert "schedule entry 'keyless' is left out: " in caplog.text
    assert "cannot" not in caplog.text


def test_doctor_names_broken_rows_and_writes_nothing(beats: Beats, rows: Tables, fleet: Fleet) -> None:
    rows.add("bad", args="[1")
    rows.add("gone", expires=beats.now())
    app = beats.app()
    fleet.beat(app=app)
    [bad] = [finding for finding in app.coordinator.doctor() if finding.thing == "entry bad"]
    assert (bad.level, bad.code) == ("error", "app.schedule")
    assert bad.message.startswith("no beat sends it: args '[1' is no JSON: ")
    assert bad.fix == "fix it in the admin, Periodic tasks › bad"
    assert not [finding for finding in app.coordinator.doctor() if finding.thing == "beat_scheduler"]
    app.conf.beat_scheduler = "django_celery_beat.schedulers:DatabaseScheduler"
    [twice] = [finding for finding in app.coordinator.doctor() if finding.thing == "beat_scheduler"]
    assert "each twice beside a beat of the coordinator" in twice.message
    assert "CELERY_BEAT_SCHEDULER" in twice.fix
    app.coordinator.doctor()
    assert rows.row("gone").enabled


def test_a_row_without_a_key_is_an_ordinary_task_and_that_of_a_keyed_task_a_job(
    beats: Beats, rows: Tables, fleet: Fleet
) -> None:
    app = beats.app()

    def ship(number: int) -> None: ...

    app.task(ship, name="ship", coordinate={"key": "order/{number}"}, shared=False)
    rows.add("plain", every=0.2, task="sync", args=[1], headers={"tenant": "acme"})
    rows.add("keyed", every=0.2, task="ship", args=[7], headers={})
    run(fleet.beat(app=app), until=lambda: beats.messages() and sent(beats, "keyed"))
    headers = beats.messages()[-1]["headers"]
    assert (headers["task"], headers["tenant"], headers["periodic_task_name"]) == ("sync", "acme", "plain")
    assert headers["id"].startswith("plain@")
    assert beats.coordinator.job(beats.ids()[0]).key == "order/7"
    run(fleet.beat(), until=lambda: rows.counted("plain")[1] and rows.counted("keyed")[1])


def test_a_row_that_is_to_run_once_does_and_is_disabled(beats: Beats, rows: Tables, fleet: Fleet) -> None:
    rows.add(every=0.2, one_off=True)
    pair = fleet.beat(), fleet.beat()
    run(*pair, until=lambda: not rows.row().enabled)
    pass_time(beats, 0.7, *pair)
    [at] = sent(beats)
    assert rows.counted() == (at, 0)
    assert beats.tick("n") == {}


def test_a_clocked_time_that_has_passed_is_sent_soon_and_once_for_each_time_that_the_row_is_enabled(
    beats: Beats, rows: Tables, fleet: Fleet
) -> None:
    rows.add(clocked=rows.clocked(beats.now() - timedelta(days=1)), one_off=True)
    rows.silently(date_changed=beats.now() - timedelta(hours=5))
    pair = fleet.beat(), fleet.beat()
    for count in (1, 2):
        run(*pair, until=lambda: not rows.row().enabled, seconds=30)
        assert len(sent(beats)) == count
        assert beats.now() - sent(beats)[-1] < timedelta(seconds=20)
        rows.silently(enabled=True)  # as the admin's action does, which leaves the date of the last change as it was
        rows.changed()


def test_a_row_that_is_enabled_again_before_any_beat_knows_that_it_was_disabled_runs_again(
    beats: Beats, rows: Tables, fleet: Fleet
) -> None:
    rows.add(clocked=rows.clocked(beats.now()), one_off=True)
    table = "django_celery_beat_periodictask"
    rows.write(f"CREATE TRIGGER again AFTER UPDATE OF enabled ON {table} BEGIN UPDATE {table} SET enabled = 1; END")
    run(fleet.beat(), until=lambda: len(sent(beats)) >= 2)


def test_a_once_that_was_sent_while_the_row_could_not_be_written_is_not_sent_again(
    beats: Beats, rows: Tables, fleet: Fleet
) -> None:
    rows.add(clocked=rows.clocked(beats.now()), one_off=True)
    run(fleet.beat(writes=False), until=lambda: sent(beats))
    heir = fleet.beat()
    run(heir, until=lambda: not rows.row().enabled)
    pass_time(beats, 0.7, heir)
    assert len(sent(beats)) == 1


def test_a_once_that_an_operator_paused_or_skipped(beats: Beats, rows: Tables, fleet: Fleet) -> None:
    for name in ("paused", "skipped"):
        rows.add(name, clocked=rows.clocked(beats.now() + timedelta(seconds=1)), one_off=True)
    beat = fleet.beat()
    run(beat, until=lambda: beats.tick("paused") and beats.tick("skipped"))
    saved = rows.row("paused").date_changed
    beats.coordinator.entries.pause("paused")
    beats.coordinator.entries.skip_next("skipped")
    run(beat, until=lambda: not rows.row("skipped").enabled)
    pass_time(beats, 0.6, beat)
    assert beats.ids() == []
    paused, skipped = rows.row("paused"), rows.counted("skipped")
    assert (paused.enabled, paused.date_changed, skipped) == (True, saved, (None, 0))
    beats.coordinator.entries.resume("paused")
    run(beat, until=lambda: not rows.row("paused").enabled, seconds=8)
    assert len(sent(beats, "paused")) == 1
    assert beats.ids() == [f"paused@{sent(beats, 'paused')[0].isoformat().replace('+00:00', 'Z')}"]


def test_a_row_that_django_celery_beat_has_run_and_not_disabled_yet_is_not_run_again(
    beats: Beats, rows: Tables, fleet: Fleet
) -> None:
    rows.add(every=1, one_off=True, total_run_count=1)
    rows.silently(date_changed=beats.now() - timedelta(hours=5))
    run(fleet.beat(), until=lambda: not rows.row().enabled)
    assert sent(beats) == []


def test_a_row_that_expires_is_disabled(beats: Beats, rows: Tables, fleet: Fleet) -> None:
    rows.add(every=0.2, expires=(end := beats.now() + timedelta(seconds=1)))
    beat = fleet.beat()
    run(beat, until=lambda: not rows.row().enabled)
    run(beat, until=lambda: beats.tick("n") == {})
    assert sent(beats)
    assert all(at < end for at in sent(beats))
    assert beats.now() >= end


def test_a_row_that_is_enabled_again_catches_up_with_nothing(beats: Beats, rows: Tables, fleet: Fleet) -> None:
    row = rows.add(every=0.2)
    beat = fleet.beat()
    run(beat, until=lambda: sent(beats))
    row.enabled = False
    row.save()
    run(beat, until=lambda: beats.tick("n") == {})
    gone = beats.now()
    pass_time(beats, 0.7, beat)
    again = beats.now()
    row.enabled = True
    row.save()
    run(beat, until=lambda: sent(beats)[-1] > again)
    assert [at for at in sent(beats) if gone < at < again] == []


def test_a_database_that_fails_is_told_once_and_the_entries_stay_until_it_is_back(
    beats: Beats, rows: Tables, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    rows.add(every=0.2)
    beat = fleet.beat()
    run(beat, until=lambda: rows.counted()[1])
    rows.write("ALTER TABLE django_celery_beat_periodictasks RENAME TO away")
    rows.write("ALTER TABLE django_celery_beat_periodictask RENAME TO gone")
    count = len(sent(beats))
    run(beat, until=lambda: len(sent(beats)) >= count + 8)
    assert caplog.text.count("cannot read the schedule source") == 1
    assert "no such table: django_celery_beat_periodictasks" in caplog.text
    rows.write("ALTER TABLE away RENAME TO django_celery_beat_periodictasks")
    rows.write("ALTER TABLE gone RENAME TO django_celery_beat_periodictask")
    run(beat, until=lambda: rows.counted()[1] >= count + 8)
    assert without_gap(beats.ids(), 0.2)


def test_a_table_that_cannot_be_written_is_told_once_and_its_edits_are_read(
    beats: Beats, rows: Tables, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    rows.add(every=0.2)
    rows.write(
        "CREATE TRIGGER no BEFORE UPDATE OF total_run_count ON django_celery_beat_periodictask"
        " BEGIN SELECT RAISE(FAIL, 'read only'); END"
    )
    beat = fleet.beat()
    run(beat, until=lambda: len(sent(beats)) >= 7)
    assert caplog.text.count("cannot write to the tables of django-celery-beat") == 1
    rows.add("other", every=0.2)
    run(beat, until=lambda: sent(beats, "other"))


@pytest.mark.parametrize("table", ["periodictask", "periodictasks"])
def test_what_the_database_refused_to_write_of_a_row_that_is_over_is_written_at_the_next_look(
    beats: Beats, rows: Tables, fleet: Fleet, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    """Its end, and the sign of that by which other beats read it."""
    column = "enabled" if table == "periodictask" else "last_update"
    rows.write(
        f"CREATE TRIGGER no BEFORE UPDATE OF {column} ON django_celery_beat_{table}"
        " BEGIN SELECT RAISE(FAIL, 'locked'); END"
    )
    rows.rows.bulk_create([rows.once()])
    beat = fleet.beat()
    run(beat, until=lambda: "cannot write to the tables" in caplog.text)
    before = rows.sign()
    rows.write("DROP TRIGGER no")
    run(beat, until=lambda: not rows.row().enabled and rows.sign() != before)


class Served(NamedTuple):
    """The tables in a PostgreSQL, for beats that keep their connections. `admin`: a connection of its own."""

    rows: Tables
    admin: Any


@pytest.fixture
def served(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Served]:
    with postgres_server.database() as name, postgres_server.connect(name) as admin:
        where = {"HOST": "127.0.0.1", "PORT": postgres_server.port, "USER": "tests", "NAME": name}
        with tables(tmp_path.name, ENGINE="django.db.backends.postgresql", CONN_MAX_AGE=None, **where) as rows:
            yield Served(rows, admin)


@pytest.fixture
def served_fleet(beats: Beats, served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    made = Fleet(beats, monkeypatch)
    yield made
    made.stop()


def test_a_database_that_closed_the_connection_is_asked_over_a_new_one(
    beats: Beats, served: Served, served_fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    served.rows.add(every=0.2)
    beat = served_fleet.beat()
    run(beat, until=lambda: counted_anew(served.rows))
    for round_ in (1, 2):
        served.admin.execute(CLOSE)
        count = len(sent(beats))
        run(beat, until=lambda count=count: counted_anew(served.rows) >= count + 3)  # type: ignore[misc]
        assert caplog.text.count("cannot read the schedule source") == round_
    assert without_gap(beats.ids(), 0.2)


CLOSE = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""


def counted_anew(rows: Tables) -> int:
    from django.db import OperationalError, connections

    try:
        return rows.counted()[1]
    except OperationalError:
        connections[rows.alias].close()
        return 0


def test_a_database_that_hangs_holds_up_no_tick(
    beats: Beats, served: Served, served_fleet: Fleet, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert source_of_beat.LATE == 10
    monkeypatch.setattr(source_of_beat, "LATE", 0.5)
    served.rows.add(every=0.2)
    beat = served_fleet.beat()
    run(beat, until=lambda: served.rows.counted()[1])
    with served.admin.transaction():
        served.admin.execute("LOCK TABLE django_celery_beat_periodictasks")
        count = len(sent(beats))
        assert run(beat, until=lambda: len(sent(beats)) >= count + 8) < 0.6
        assert caplog.text.count("TimeoutError: the database of django-celery-beat does not answer") == 1
    run(beat, until=lambda: served.rows.counted()[1] >= count + 8)
    assert without_gap(beats.ids(), 0.2)
