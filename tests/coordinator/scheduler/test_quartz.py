"""The evaluator against Quartz itself (`samples/quartz_vectors.json`), against a plain scan, and over DST."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator.scheduler.quartz import Quartz, QuartzError
from tests.harness.each import each

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "samples" / "quartz_vectors.json").read_text())
VALID = [row for row in ROWS if "next" in row and not row.get("quirk")]
INVALID = [row for row in ROWS if "invalid" in row]
QUIRKS = [row for row in ROWS if row.get("quirk")]
BERLIN = ZoneInfo("Europe/Berlin")
SECOND = timedelta(seconds=1)


def instants(quartz: Quartz, after: str, count: int) -> list[str | None]:
    found: list[str | None] = []
    at: datetime | None = datetime.fromisoformat(after)
    while at is not None and len(found) < count:
        at = quartz.next(at)
        found.append(at.strftime("%Y-%m-%dT%H:%M:%SZ") if at else None)
    return found


def label(row: dict[str, Any]) -> str:
    return ascii(f"{row['expression']} {row.get('after', '')}")


def test_every_row_made_with_quartz_is_used() -> None:
    assert len(VALID) + len(INVALID) + len(QUIRKS) == len(ROWS) == 510


@each(lambda: VALID, label)
def test_the_next_instants_are_those_of_quartz(row: dict[str, Any]) -> None:
    assert instants(Quartz(row["expression"]), row["after"], len(row["next"])) == row["next"]


@each(lambda: INVALID, label)
def test_what_quartz_refuses_is_refused_with_a_way_out(row: dict[str, Any]) -> None:
    with pytest.raises(QuartzError, match="write"):
        Quartz(row["expression"])


DOCUMENTED = {
    "0 0 12 31W * ? *": ["2026-12-31", "2027-01-29", "2027-03-31", "2027-05-31"],
    "0 0 12 29W FEB ? *": ["2028-02-29", "2032-02-27", "2036-02-29", "2040-02-29"],
    "0 0 0 1 1 ? 2090/3": ["2090-01-01", "2093-01-01", "2096-01-01", "2099-01-01"],
    "0 0 0 ? * MON/2 *": ["2026-12-02", "2026-12-04", "2026-12-07", "2026-12-09"],
    "0 0 0 ? * MON-FRI/2 *": ["2026-12-02", "2026-12-04", "2026-12-07", "2026-12-09"],
    "0 0 0 1 JAN/3 ? *": ["2027-01-01", "2027-04-01", "2027-07-01", "2027-10-01"],
}


@pytest.mark.parametrize("expression", sorted({row["expression"] for row in QUIRKS}), ids=ascii)
def test_where_quartz_leaves_its_documentation_the_documentation_holds_or_the_text_is_refused(expression: str) -> None:
    if expression in DOCUMENTED:
        days = [at and at[:10] for at in instants(Quartz(expression), "2026-12-01T00:00:00Z", 4)]
        assert days == DOCUMENTED[expression]
    else:
        with pytest.raises(QuartzError, match="write"):
            Quartz(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("0 0 12 ? * MO *", "day of week 'MO': 'MO' is not understood; write 1-7"),
        ("0 61 12 ? * 2 *", "minutes '61': 61 is not a value of this field; write 0-59"),
        ("0 0 12 15W,20 * ? *", "day of month '15W,20': .* alone L, L-3, 15W, LW"),
        ("0 0 12 * * * *", "day of month .*, day of week .*: write '\\?' in exactly one"),
        ("0 0 12 * *", "has 5 fields; write sec min hour mday mon wday"),
        ("0 0 12 * 13 ? *", "month '13'"),
        ("0 0 24 * * ? *", "hours '24'"),
        ("60 0 0 * * ? *", "seconds '60'"),
        ("0 0 0 * * ? 2200", "year '2200'"),
    ],
)
def test_an_error_names_the_field_the_text_and_the_way_out(expression: str, message: str) -> None:
    with pytest.raises(QuartzError, match=message):
        Quartz(expression)


@given(st.text("0123456789*?/,-#LWMONFRIJA \u0663;", max_size=30))
def test_any_text_is_a_schedule_or_an_error_and_never_anything_else(text: str) -> None:
    try:
        quartz = Quartz(text)
    except QuartzError:
        return
    quartz.next(datetime(2026, 11, 21, tzinfo=UTC))


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> tuple[str, frozenset[int]]:
    """A field of ranges and steps, and the values it means, worked out by walking."""
    texts, values = [], set()
    for _ in range(draw(st.integers(1, 2))):
        start, end, step = draw(st.integers(low, high)), draw(st.integers(low, high)), draw(st.integers(1, 9))
        texts.append(f"{start}-{end}/{step}")
        value, walked = start, 0
        while True:
            if walked % step == 0:
                values.add(value)
            if value == end:
                break
            value, walked = low if value == high else value + 1, walked + 1
    return ",".join(texts), frozenset(values)


@settings(deadline=None)  # a busy machine
@given(
    fields(0, 59), fields(0, 59), fields(0, 23), fields(1, 31), st.datetimes(datetime(2024, 1, 1), datetime(2032, 1, 1))
)
def test_nothing_lies_between_an_instant_and_the_next(
    sec: tuple[str, frozenset[int]],
    minute: tuple[str, frozenset[int]],
    hour: tuple[str, frozenset[int]],
    mday: tuple[str, frozenset[int]],
    naive: datetime,
) -> None:
    after = naive.replace(tzinfo=UTC)
    found = Quartz(f"{sec[0]} {minute[0]} {hour[0]} {mday[0]} * ? *").next(after)
    day = after.date()
    while True:
        times = (
            datetime(day.year, day.month, day.day, h, m, s, tzinfo=UTC)
            for h in sorted(hour[1])
            for m in sorted(minute[1])
            for s in sorted(sec[1])
        )
        expected = next((at for at in times if at > after), None) if day.day in mday[1] else None
        if expected is not None:
            break
        day += timedelta(days=1)
    assert found == expected


@pytest.mark.parametrize("after", [datetime.min, datetime(1969, 12, 31, 23, 59, 59), datetime(1970, 1, 1)])
def test_years_begin_at_1970(after: datetime) -> None:
    first = Quartz("0 0 0 1 1 ? *").next(after.replace(tzinfo=UTC))
    assert first == datetime(1970 + (after.year == 1970), 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("after", [datetime.max, datetime(2199, 12, 31, 23, 59, 59)])
def test_years_end_at_2199(after: datetime) -> None:
    assert Quartz("* * * * * ?").next(after.replace(tzinfo=UTC)) is None


@pytest.mark.parametrize("zone", [UTC, BERLIN, ZoneInfo("Pacific/Kiritimati"), timezone(timedelta(hours=-23))])
def test_what_never_comes_is_denied_from_the_first_year_on(zone: Any) -> None:
    assert Quartz("0 0 0 30 FEB ? *", zone).next(datetime.min.replace(tzinfo=UTC)) is None
    assert Quartz("0 0 0 ? FEB 2#5 2027/4", zone).next(datetime.max.replace(tzinfo=UTC)) is None


def test_an_instant_has_a_zone_and_comes_back_in_utc() -> None:
    quartz = Quartz("0 0 12 * * ?")
    with pytest.raises(ValueError, match="no time zone"):
        quartz.next(datetime(2026, 1, 1))
    found = quartz.next(datetime(2026, 1, 1, 13, 30, tzinfo=BERLIN))
    assert found == datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert found is not None
    assert found.tzinfo is UTC


def test_a_part_of_a_second_after_an_instant_does_not_give_it_again() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert Quartz("* * * * * ?").next(at + timedelta(microseconds=1)) == at + SECOND


def test_a_wall_time_the_clocks_skip_happens_once_at_the_end_of_the_gap() -> None:
    quartz = Quartz("0 30 2 * * ?", BERLIN)  # 2026-03-29, 02:00 becomes 03:00
    assert instants(quartz, "2026-03-27T12:00:00Z", 3) == [
        "2026-03-28T01:30:00Z",
        "2026-03-29T01:00:00Z",
        "2026-03-30T00:30:00Z",
    ]
    dense = instants(Quartz("0 0/20 * * * ?", BERLIN), "2026-03-29T00:20:00Z", 4)
    assert dense == [f"2026-03-29T{at}:00Z" for at in ("00:40", "01:00", "01:20", "01:40")]


def test_a_wall_time_that_comes_twice_happens_the_first_time_only() -> None:
    quartz = Quartz("0 30 2 * * ?", BERLIN)  # 2026-10-25, 03:00 becomes 02:00
    assert instants(quartz, "2026-10-24T12:00:00Z", 2) == ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    assert instants(quartz, "2026-10-25T01:10:00Z", 1) == ["2026-10-26T01:30:00Z"]
    assert instants(Quartz("0 0/30 * * * ?", BERLIN), "2026-10-25T00:30:00Z", 2) == [
        "2026-10-25T02:00:00Z",
        "2026-10-25T02:30:00Z",
    ]


@given(
    st.sampled_from(["0 0/20 * * * ?", "0 30 2 * * ?", "15 10,50 0-3 * * ?", "* * * L * ?", "0 0 0 ? * SUN"]),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"]),
    st.datetimes(datetime(2005, 1, 1), datetime(2030, 1, 1)),
    st.timedeltas(timedelta(0), timedelta(hours=4)),
)
@example("0 0/20 * * * ?", "Europe/Berlin", datetime(2026, 10, 25, 0, 50), timedelta(hours=1))
@example("0 30 2 * * ?", "Europe/Berlin", datetime(2026, 3, 29, 0, 59, 59), timedelta(seconds=1))
@example("0 0 0 ? * SUN", "America/Sao_Paulo", datetime(2017, 10, 15, 2, 59), timedelta(minutes=2))
@example("0 0/20 * * * ?", "Pacific/Apia", datetime(2011, 12, 30, 9, 59), timedelta(hours=1))
def test_in_any_zone_the_next_instant_is_later_never_goes_back_and_is_the_same_from_just_before(
    expression: str, zone: str, naive: datetime, later: timedelta
) -> None:
    quartz, after = Quartz(expression, ZoneInfo(zone)), naive.replace(tzinfo=UTC)
    found, beyond = quartz.next(after), quartz.next(after + later)
    assert found is not None
    assert beyond is not None
    assert after < found <= beyond
    assert quartz.next(found - SECOND) == found


@pytest.mark.parametrize(
    ("mday", "wday", "read", "says"),
    [
        ("?", "?", "* ?", "day of month '?' read as '*'"),
        ("*", "*", "* ?", "day of week '*' read as '?'"),
        ("*", "2-6", "? 2-6", "day of month '*' read as '?'"),
        ("15", "*", "15 ?", "day of week '*' read as '?'"),
        ("15", "2-6", "15 ?", "day of week '2-6' read as '?'"),
        ("?", "2-6", "? 2-6", None),
        ("*", "?", "* ?", None),
    ],
)
def test_a_misplaced_question_mark_is_repaired_and_said(mday: str, wday: str, read: str, says: str | None) -> None:
    quartz = Quartz.from_parts("0", "42", "*", mday, "*", wday, "*")
    mday_read, wday_read = read.split()
    assert quartz.expression == f"0 42 * {mday_read} * {wday_read} *"
    assert (quartz.repaired or "").startswith(says or "")
    assert (quartz.repaired is None) == (says is None)


def test_an_empty_or_split_part_shifts_no_field() -> None:
    for parts in (("", "0 0", "1", "*", "*", "?", "*"), ("0", "0 0", "1", "*", "*", "?", "*")):
        with pytest.raises(QuartzError, match="one field without spaces"):
            Quartz.from_parts(*parts)


def test_equal_schedules_are_equal_whatever_their_case_and_spacing() -> None:
    assert Quartz("0 0  12 ? * mon") == Quartz("0 0 12 ? * MON *")
    assert len({Quartz("0 0 12 ? * mon"), Quartz("0 0 12 ? * MON *")}) == 1
    assert Quartz("0 0 12 ? * MON") != Quartz("0 0 12 ? * MON", BERLIN)
    assert Quartz("0 0 12 ? * MON") != Quartz("0 0 12 ? * TUE")
    assert repr(Quartz("0 0 12 ? * MON", BERLIN)) == "Quartz('0 0 12 ? * MON *', Europe/Berlin)"
