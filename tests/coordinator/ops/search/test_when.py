"""Bounds of time as people write them; what names no zone is in UTC."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator import Coordinator
from coordinator.core.store.times import instant, to_ms
from coordinator.errors import InvalidJob
from coordinator.ops.readings import FILTER
from coordinator.ops.search import when
from tests.harness.hand_node import Puppet

HOUR = 3_600_000


@pytest.fixture
def read(coordinator: Coordinator) -> Callable[[Any], int | None]:
    return lambda value: when.ms_of(coordinator.store, "since", value)


Read = Callable[[Any], int]


def test_a_time_of_day_is_the_last_one_that_has_passed(coordinator: Coordinator, read: Read) -> None:
    now = instant(coordinator.store.clock().wall)
    for hours in (-2, 2):
        at = (now + timedelta(hours=hours)).replace(second=0, microsecond=0)
        found = instant(read(f"{at:%H:%M}"))
        assert now - timedelta(days=1) < found <= now
        assert (found.hour, found.minute, found.second) == (at.hour, at.minute, 0)


def test_a_time_of_day_may_name_its_zone(coordinator: Coordinator, read: Read) -> None:
    at = instant(read("10:00+09:00"))
    assert (at.hour, at.minute) == (1, 0)
    assert to_ms(at) <= coordinator.store.clock().wall
    assert read("9:05Z") == read("09:05")


def test_days_begin_at_midnight_in_utc(coordinator: Coordinator, read: Read) -> None:
    now = instant(coordinator.store.clock().wall)
    today = instant(read("Today"))
    assert (today.hour, today.minute, today.second, today.microsecond) == (0, 0, 0, 0)
    assert timedelta(0) <= now - today < timedelta(days=1, seconds=1)
    assert read("today") - read("yesterday") == 24 * HOUR


def test_the_last_hour_is_an_hour_ago(coordinator: Coordinator, read: Read) -> None:
    for words, span in (("last hour", "1h"), ("last  day", "24 h"), ("last week", "7d")):
        assert abs(read(words) - read(span)) < 10_000
    assert abs(coordinator.store.now() - HOUR - read("last hour")) < 10_000


def test_the_newest_node_is_the_living_one_that_came_last(coordinator: Coordinator, read: Read) -> None:
    with pytest.raises(InvalidJob, match="no node is alive"):
        read("newest node")
    node, other = Puppet(coordinator.store, "n1@alpha"), Puppet(coordinator.store, "n2@beta")
    node.up()
    other.up()
    store = coordinator.store
    store.read("HSET", store.key("node", node.name), "since", "1000000000000")
    store.read("HSET", store.key("node", other.name), "since", "1500000000000")
    assert read("newest node") == 1_500_000_000_000


def test_nothing_is_no_bound(read: Read) -> None:
    assert [read(value) for value in (None, "")] == [None] * 2


def test_an_instant_is_utc_unless_it_says_else(read: Read) -> None:
    assert read("2026-01-01") == to_ms(datetime(2026, 1, 1, tzinfo=UTC))
    assert read("2026-01-01 10:00") == read("2026-01-01T19:00+09:00") == read(datetime(2026, 1, 1, 10, tzinfo=UTC))


def test_the_help_of_commands_names_what_the_error_names() -> None:
    assert any(when.WORDS in option.help for option in FILTER)


@pytest.mark.parametrize("wrong", ["25:00", "10:61", "tomorrow", "last", "10", "1x", "newest", 7, True])
def test_another_text_is_refused_with_those_that_are_not(read: Read, wrong: object) -> None:
    with pytest.raises(InvalidJob, match=r"since .*: give 90s, .*10:00.*newest node"):
        read(wrong)
