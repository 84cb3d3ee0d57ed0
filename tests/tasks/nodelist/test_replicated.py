"""Writers of the nodelist, over a real slapd and on two disks: nothing is overwritten, nothing is lost."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks import instants
from tasks.catalog import catalog
from tasks.documents.copy import Copy, text_of
from tasks.documents.errors import Changed
from tasks.nodelist.entries import KEPT, Kept
from tasks.nodelist.protocol import SOON, WRITTEN, Dates
from tasks.nodelist.stores import Listed, State
from tests.harness.slapd import SlapdServer, dn
from tests.tasks.conftest import RIVER, OverLdap, day, document, river_with
from tests.tasks.nodelist.lists import NAME, Lists, Pause, setting

A, B = RIVER.identifier, "urn:node:other"
NEVER = "1900-01-01T00:00:00Z"


@pytest.fixture
def lists(river: State, over_ldap: OverLdap) -> Iterator[Lists]:
    """RIVER is in LDAP, and was taken in."""
    with over_ldap() as lists:
        lists.nodelist.refresh()
        yield lists


def in_ldap(slapd: SlapdServer, *attributes: str) -> list[str]:
    entry = slapd.entry(dn(A), *attributes)
    return [entry[name][0].decode() for name in attributes]


def test_a_sync_moves_dates_forward_everywhere_and_never_back(slapd: SlapdServer, lists: Lists) -> None:
    assert lists.sync(day(2), 10, A)
    assert lists.sync(day(1), 11, A)
    assert lists.dates(A) == Dates(day(2), RIVER.last_complete_harvest)
    assert in_ldap(slapd, "d1NodeLastHarvested") == ["2025-01-03T00:00:00.000+00:00"]
    lists.agree()


def test_a_stale_fence_is_refused_and_nothing_of_it_arrives(slapd: SlapdServer, lists: Lists) -> None:
    lists.sync(day(1), 11, A)
    mark = slapd.mark()
    with pytest.raises(catalog.Superseded) as caught:
        lists.sync(day(2), 10, A)
    assert (caught.value.fence, caught.value.seen) == (10, 11)
    assert lists.dates(A).last_harvested == day(1)
    assert slapd.operations(mark) == []


def test_a_sync_of_a_member_that_was_reset_or_removed_meanwhile_writes_nothing(
    slapd: SlapdServer, lists: Lists
) -> None:
    lists.sync(day(1), 11, A)
    lists.nodelist.reset(A)
    assert not lists.nodelist.harvested(A, Dates(day(2), None), fence=12, started_from=day(1))
    assert lists.dates(A) == Dates(instants.NEVER, instants.NEVER - instants.TICK)  # RIVER never had a complete pass
    assert lists.nodelist.reset(A) == WRITTEN  # of a first pass that has begun since
    assert not lists.nodelist.harvested(A, Dates(day(2), None), fence=12, started_from=instants.NEVER)
    assert in_ldap(slapd, "d1NodeLastHarvested") == ["1899-12-31T23:59:59.999+00:00"]
    lists.agree()
    with pytest.raises(ValueError, match="is in the list"):
        lists.nodelist.purged(A, fence=13, why="gone", by="ann")
    assert lists.nodelist.change(A, lambda _: None, why="gone") == WRITTEN
    lists.nodelist.purged(A, fence=13, why="purged", by="ann")
    assert lists.document.history()[0].why == "purged"
    assert not lists.nodelist.harvested(A, Dates(day(2), None), fence=14)
    assert lists.nodelist.listed() == {}
    lists.agree()


def test_writers_of_two_members_at_once_are_both_kept(lists: Lists) -> None:
    other = Listed(member=river_with(identifier=B), approved=False)
    assert lists.nodelist.change(B, lambda _: other, why="added") == WRITTEN
    two = lists.writer("two", "two")
    with pytest.MonkeyPatch.context() as patch:
        pause = Pause(patch, two.document, "update")
        with pause.holding(lambda: lists.sync(day(2), 12, B, two)):
            lists.sync(day(1), 11, A)
    assert pause.error is None
    assert (lists.dates(A).last_harvested, lists.dates(B).last_harvested) == (day(1), day(2))
    lists.agree()


def test_two_operators_at_once_are_both_kept_where_they_touch_different_fields(lists: Lists) -> None:
    two = lists.writer("two", "two")
    with pytest.MonkeyPatch.context() as patch:
        pause = Pause(patch, two.document, "update")
        with pause.holding(lambda: two.change(A, setting(state="down"), why="maintenance")):
            assert lists.nodelist.change(A, setting(name="New"), why="renamed") == WRITTEN
    assert pause.error is None
    assert lists.listed(A).member == river_with(name="New", state="down")
    assert [(one.who, one.why) for one in lists.document.history()[:2]] == [("two", "maintenance"), ("one", "renamed")]
    lists.agree()


STEPS = {
    "between its commit and the store": ("document", "behind"),
    "before it notes its intent": ("document", "note"),
    "between its intent and the store": ("store", "write"),
}


@pytest.mark.parametrize("step", STEPS)
def test_of_a_sync_that_wakes_after_its_successor_nothing_arrives(slapd: SlapdServer, lists: Lists, step: str) -> None:
    late = lists.writer("late", "two")
    part, name = STEPS[step]
    with pytest.MonkeyPatch.context() as patch:
        pause = Pause(patch, getattr(late, part), name)
        with pause.holding(lambda: lists.sync(day(1), 11, A, late)):
            lists.sync(day(3), 12, A)
            lists.nodelist.change(A, setting(state="down"), why="maintenance")
            lists.agree()
            mark = slapd.mark()
    assert pause.error is None
    assert not [operation for operation in slapd.operations(mark) if operation.startswith("ADD")]
    assert in_ldap(slapd, "d1NodeLastHarvested", "d1NodeState") == ["2025-01-04T00:00:00.000+00:00", "down"]
    lists.nodelist.refresh()
    assert lists.listed(A).member == river_with(last_harvested=day(3), state="down")
    lists.agree()


@pytest.mark.parametrize("step", STEPS)
def test_a_late_operator_takes_nothing_back_of_what_was_committed_and_not_written_yet(
    slapd: SlapdServer, lists: Lists, step: str
) -> None:
    """The successor's successor has committed only: what the late one finds in the store is not the last word."""
    late = lists.writer("late", "two")
    part, name = STEPS[step]
    with pytest.MonkeyPatch.context() as patch:
        pause = Pause(patch, getattr(late, part), name)
        with pause.holding(lambda: late.change(A, setting(state="down"), why="maintenance")):
            lists.nodelist.change(A, setting(state="unknown"), why="who knows")
            with pytest.MonkeyPatch.context() as away:
                away.setattr(lists.nodelist.reconciler, "write_back", lambda member_id: "later")
                lists.nodelist.change(A, setting(state="up"), why="back")
                lists.sync(day(5), 12, A)
    assert pause.error is None
    lists.nodelist.refresh()
    assert lists.listed(A).member == river_with(state="up", last_harvested=day(5))
    lists.agree()


OUTSIDE = {
    "another field": {"d1NodeDescription": "by hand"},
    "the same field": {"d1NodeState": "unknown"},
    "its dates": {"d1NodeLastHarvested": NEVER},
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("field", OUTSIDE)
def test_an_outside_change_is_not_overwritten_and_goes_into_the_document_field_by_field(
    slapd: SlapdServer, lists: Lists, step: str, field: str
) -> None:
    part, name = STEPS[step]
    with pytest.MonkeyPatch.context() as patch:
        pause = Pause(patch, getattr(lists.nodelist, part), name)
        with pause.holding(lambda: lists.nodelist.change(A, setting(state="down", name="New"), why="ours")):
            slapd.replace(dn(A), **OUTSIDE[field])
    assert pause.error is None
    theirs: dict[str, Any] = {
        "another field": {"description": "by hand"},
        "the same field": {"state": "unknown"},
        "its dates": {"last_harvested": instants.NEVER},
    }[field]
    assert lists.listed(A).member == river_with(**{"state": "down", "name": "New"} | theirs)
    lists.agree()


def test_a_reset_in_the_store_is_obeyed_though_a_sync_has_committed_since(slapd: SlapdServer, lists: Lists) -> None:
    lists.sync(day(1), 11, A)
    slapd.replace(dn(A), d1NodeLastHarvested=NEVER)
    assert lists.nodelist.harvested(A, Dates(day(2), None), fence=12, started_from=day(1)) == SOON
    lists.nodelist.reconciler.write_back(A)
    assert lists.dates(A).last_harvested == instants.NEVER
    lists.agree()


def test_an_outside_change_is_told_from_what_a_dead_writer_of_ours_wrote(slapd: SlapdServer, lists: Lists) -> None:
    """It died between writing and noting so; an operator changed the entry after it, and the next sync committed."""
    dead = lists.writer("dead", "two")
    with pytest.MonkeyPatch.context() as patch:
        real = dead.store.write

        def written_and_dead(*given: Any, **about: Any) -> Any:
            real(*given, **about)
            raise InterruptedError

        patch.setattr(dead.store, "write", written_and_dead)
        with pytest.raises(InterruptedError):
            lists.sync(day(1), 11, A, dead)
    slapd.replace(dn(A), d1NodeDescription="by hand")
    assert lists.sync(day(2), 12, A)
    assert lists.listed(A).member == river_with(description="by hand", last_harvested=day(2))
    lists.agree()


def test_of_a_writer_that_was_stopped_between_two_entries_nothing_arrives_after_its_successor(lists: Lists) -> None:
    off = tuple(service.model_copy(update={"available": False}) for service in RIVER.services)
    late = lists.writer("late", "two")
    with pytest.MonkeyPatch.context() as patch:
        pause = Pause(patch, late.store._store._directory._connection, "modify", after=1)  # type: ignore[attr-defined]
        with pause.holding(lambda: late.change(A, setting(state="down", services=off), why="late")):
            lists.nodelist.change(A, setting(state="unknown", services=RIVER.services), why="back")
    assert pause.error is None
    assert lists.nodelist.refresh() == []
    assert lists.listed(A).member == river_with(state="unknown")
    lists.agree()


def test_an_import_names_the_member_that_somebody_keeps_changing_and_takes_in_the_others(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, read, states = lists.writer("two", "two"), lists.nodelist.reconciler.committed, itertools.count()

    def then_changed(*names: str) -> Copy:
        copy = read(*names)
        if A in names:
            two.change(A, setting(description=f"{next(states)}"), why="again")
        return copy

    monkeypatch.setattr(lists.nodelist.reconciler, "committed", then_changed)
    given = document(tmp_path, river_with(name="New"), river_with(identifier=B))
    with pytest.raises(Changed, match=f"these members keep changing: {A}. Import again"):
        lists.nodelist.import_file(Path(given))
    monkeypatch.undo()
    assert (lists.listed(A).member.name, set(lists.nodelist.listed())) == (RIVER.name, {A, B})
    lists.nodelist.import_file(Path(given))
    assert lists.listed(A).member.name == "New"


def test_what_two_writers_keep_of_a_member_at_once_stays_and_goes_with_the_member(lists: Lists) -> None:
    def proposed(kept: Kept) -> Kept:
        if "token" not in kept:
            lists.writer("two", "two").keep(A, lambda other: {**other, "token": "t"}, why="meanwhile")
        return {**kept, "proposals": {"name": {"before": "a", "after": "b"}}}

    lists.nodelist.keep(A, proposed, why="it says so")
    entry = KEPT + A
    assert lists.document.read().value(entry) == {"token": "t", "proposals": {"name": {"before": "a", "after": "b"}}}
    assert lists.nodelist.tokens() == {"t": A}
    lists.agree()
    lists.nodelist.change(A, lambda _: None, why="it left")
    assert lists.document.read().value(entry) is None
    lists.agree()
    for member_id in (A, B):
        lists.nodelist.change(
            member_id, lambda _, member_id=member_id: Listed(member=river_with(identifier=member_id)), why="new"
        )
        lists.nodelist.keep(member_id, lambda kept, member_id=member_id: {**kept, "token": member_id}, why="a test")
    lists.outside(A)  # somebody removes it in the store
    lists.nodelist.refresh()
    assert lists.nodelist.tokens() == {B: B}
    lists.agree()


def forget(lists: Lists, note: dict[str, Any]) -> None:
    """Redis was started anew and has lost its end: it knows of no later note."""
    lists.document.store._client.hset(
        lists.document.store.key("stored", NAME), A, text_of({**note, "run": "the one before"})
    )


def test_an_older_write_of_ours_that_redis_has_forgotten_is_not_taken_for_somebody_elses(lists: Lists) -> None:
    note = lists.document.stored_of(A)
    lists.nodelist.change(A, setting(state="down", name="Second"), why="written, and forgotten")
    with pytest.MonkeyPatch.context() as away:
        away.setattr(lists.nodelist.reconciler, "write_back", lambda member_id: "later")
        lists.nodelist.change(A, setting(state="up", name="Third"), why="not written yet")
    forget(lists, note)
    lists.nodelist.refresh()
    assert lists.listed(A).member == river_with(state="up", name="Third")
    lists.agree()


def test_an_outside_change_is_taken_in_also_where_redis_may_have_forgotten_something(lists: Lists) -> None:
    forget(lists, lists.document.stored_of(A))
    lists.outside(A, description="by hand")
    lists.nodelist.refresh()
    assert lists.listed(A).member == river_with(description="by hand")
    assert lists.document.stored_of(A)["run"] == lists.document.run()
    lists.agree()


def test_a_note_from_before_redis_was_started_anew_is_made_again_by_a_refresh(lists: Lists) -> None:
    forget(lists, lists.document.stored_of(A))
    lists.nodelist.refresh()
    assert lists.document.stored_of(A)["run"] == lists.document.run()
