"""A refresh beside a sync, in the orders that their steps can have, or in every one."""

import itertools
from collections.abc import Iterator
from datetime import datetime

import pytest

from tasks import instants
from tests.harness.long import long
from tests.tasks.conftest import RIVER, day, river_with
from tests.tasks.nodelist.lists import Lists, Turns, calls, synced

A = RIVER.identifier
EACH = long(7, 1)
"""Of so many orders one is tried."""


def orders(refresh: int, sync: int) -> Iterator[tuple[int, str]]:
    for number, places in enumerate(itertools.combinations(range(refresh + sync), sync)):
        if number % EACH == 0:
            yield number, "".join("S" if place in places else "R" for place in range(refresh + sync))


def interleaved(lists: Lists, order: str, started_from: datetime, until: datetime, fence: int) -> bool:
    """What a sync was told that ran beside a refresh, and was written by a node."""
    one, two = lists.writer("sync"), lists.writer("refresh", "two")
    steps = {"S": calls(one, "update note", "write"), "R": calls(two, "stored update note", "read")}
    with pytest.MonkeyPatch.context() as patch:
        told = Turns(patch, order, steps).run(
            S=lambda: synced(one, A, until, fence, started_from),
            R=lambda: two.refresh(),
        )
    return bool(told["S"])


def test_a_sync_beside_a_refresh_is_kept(lists: Lists) -> None:
    last = day(0)
    lists.sync(last, 1, A)
    for number, order in orders(3, 4):
        assert interleaved(lists, order, last, day(number + 1), number + 2), order
        last = day(number + 1)
        assert lists.dates(A).last_harvested == last, order
        lists.agree()


def test_a_sync_and_an_outside_change_that_a_refresh_takes_in_are_both_kept(lists: Lists) -> None:
    last = day(0)
    lists.sync(last, 1, A)
    for number, order in orders(5, 4):
        lists.outside(A, description=f"by hand {number}")
        assert interleaved(lists, order, last, day(number + 1), number + 2), order
        last = day(number + 1)
        assert lists.listed(A).member == river_with(description=f"by hand {number}", last_harvested=last), order
        lists.agree()


def test_an_outside_reset_reaches_the_document_whatever_the_sync_beside_it_was_told(lists: Lists) -> None:
    for number, order in orders(5, 4):
        lists.nodelist.reset(A)
        lists.sync(day(1), 2 * number + 1, A)
        lists.outside(A, last_harvested=instants.NEVER)
        interleaved(lists, order, day(1), day(2), 2 * number + 2)
        assert lists.dates(A).last_harvested == instants.NEVER, order
        lists.agree()
