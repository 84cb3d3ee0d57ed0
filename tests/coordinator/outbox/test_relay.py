"""What is committed becomes a job, once and in order, whichever relay dies, stands still or comes late."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from coordinator import Lease, LeaseLost
from coordinator.outbox.relay import Relay
from coordinator.outbox.rows import Row, request_of, text_of
from tests.coordinator.outbox.conftest import Shop
from tests.harness.hand_node import sketch
from tests.harness.proxy import Proxy
from tests.harness.waiting import wait_until, within

NO_FIELDS = '["j", "order", "queue", 0, 0, "", "class"]'


def test_a_job_is_there_if_and_only_if_the_commit_is(either: Shop) -> None:
    with Session(either.engine) as session:
        either.submit(session, number=0)
        session.rollback()
        with session.begin():
            first = either.submit(session, number=1)
            with session.begin_nested() as undone:
                either.submit(session, number=2)
                undone.rollback()
            with session.begin_nested():
                second = either.submit(session, number=3, job_id="mine")
        either.submit(session, number=4)
    assert either.jobs() == []
    either.look()
    assert either.jobs() == [first, second] == [first, "mine"]
    assert (either.numbers(), either.left) == ([1, 3], 0)


class Sleepy(Relay):
    """A relay that looks at nothing for a minute unless it is woken; `rests` is set while it does not."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop.box, shop.coordinator.store, shop.coordinator._lanes, shop.coordinator._locks)
        self.rests = threading.Event()

    def _rest(self, *given: Any) -> None:
        self.rests.set()
        super()._rest(*given)
        self.rests.clear()


@pytest.fixture
def sleepy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Shop], Sleepy]]:
    monkeypatch.setattr("coordinator.outbox.relay._LOOK", 60.0)
    monkeypatch.setattr("coordinator.outbox.relay._ALERT", 0.5)
    begun: list[Sleepy] = []

    def begin(shop: Shop) -> Sleepy:
        begun.append(Sleepy(shop))
        begun[-1].start()
        assert begun[-1].rests.wait(60)
        return begun[-1]

    yield begin
    for relay in begun:
        relay.stop()


def test_a_commit_wakes_the_relay_even_long_after_the_call(either: Shop, sleepy: Callable[..., Sleepy]) -> None:
    relay = sleepy(either)
    with Session(either.engine) as session, session.begin():
        job_id = either.submit(session)
        wait_until(lambda: not relay.rests.is_set())
        assert relay.rests.wait(60)
        assert either.jobs() == []
    wait_until(lambda: either.jobs() == [job_id])
    wait_until(lambda: not either.left)
    relay.stop()
    assert either.jobs(either.box.key) == []


def test_the_call_makes_the_relay_look_so_often_that_it_finds_a_row_of_which_nobody_tells_it(
    either: Shop, sleepy: Callable[..., Sleepy], monkeypatch: pytest.MonkeyPatch
) -> None:
    sleepy(either)
    write = either.rows.write
    monkeypatch.setattr(either.rows, "write", lambda request, session, _: write(request, session, lambda: None))
    job_id = either.write()
    wait_until(lambda: either.jobs() == [job_id])


def test_what_is_more_than_one_look_can_do_is_done_at_once(
    shop: Shop, sleepy: Callable[..., Sleepy], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, Session(shop.engine) as session, session.begin():
        patch.setattr(shop.box, "_wake", lambda: None)
        for number in range(1100):
            shop.submit(session, f"order/{number % 9}", number)
    monkeypatch.setattr("coordinator.outbox.relay._ALERT", 0.01)
    sleepy(shop)
    wait_until(lambda: not shop.left)


def test_a_row_that_becomes_visible_behind_greater_numbers_is_submitted(postgres: Engine, shop_in: Any) -> None:
    shop = shop_in(postgres)
    with shop.leading() as (relay, lease), Session(postgres) as early:
        first = shop.submit(early)
        early.flush()
        second = shop.write()
        relay.look(lease)
        assert shop.jobs() == [second]
        early.commit()
        relay.look(lease)
        assert shop.jobs() == [second, first]


def test_one_key_keeps_its_order_over_many_pages_and_among_several_keys(either: Shop) -> None:
    with Session(either.engine) as session, session.begin():
        for number in range(601):
            either.submit(session, ["order", f"item/{number % 7}"], number)
    either.look()
    assert either.numbers() == [*range(601)]
    assert (either.numbers("item/3"), either.left) == ([*range(3, 601, 7)], 0)


def test_a_relay_that_dies_before_it_deletes_makes_no_second_job_even_of_one_that_is_over_and_gone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shop.write()
    with monkeypatch.context() as patch, shop.leading() as (relay, lease):
        patch.setattr(shop.rows, "delete", lambda numbers: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            relay.look(lease)
    assert shop.end_all() == [job_id]
    shop.look()
    assert (shop.end_all(), shop.left) == ([], 0)
    assert shop.coordinator.store.read("EXISTS", shop.coordinator.store.key("outbox", shop.box.key)) == 0


def test_a_relay_that_wakes_after_another_took_over_submits_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shop.write()

    def stand_still(relay: Relay, lease: Lease) -> None:
        rows = shop.rows.read(10)
        shop.take_over(lease)
        shop.look()
        assert (shop.end_all(), shop.left) == ([job_id], 0)
        monkeypatch.setattr(shop.rows, "read", lambda most: rows)
        relay.look(lease)

    with pytest.raises(LeaseLost):
        shop.lead(stand_still)
    assert shop.end_all() == []


def lose_after_the_delete(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """A relay stands still after it has deleted, until it is taken for dead; then it goes on."""
    delete = shop.rows.delete

    def stand_still(relay: Relay, lease: Lease) -> None:
        def delete_and_stop(numbers: Any) -> None:
            delete(numbers)
            shop.take_over(lease)

        patch.setattr(shop.rows, "delete", delete_and_stop)
        relay.look(lease)

    shop.lead(stand_still)
    patch.undo()


def test_a_relay_that_is_late_has_no_id_forgotten_of_a_row_that_another_has_read_before_it_was_deleted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shop.write()
    rows = shop.rows.read(10)
    lose_after_the_delete(shop, monkeypatch)
    assert shop.end_all() == [job_id]
    monkeypatch.setattr(shop.rows, "read", lambda most: rows)
    shop.lead(lambda relay, lease: relay.look(lease))
    assert shop.end_all() == []


def test_what_the_relay_before_has_deleted_is_forgotten_by_the_next(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write()
    lose_after_the_delete(shop, monkeypatch)
    known = shop.coordinator.store.key("outbox", shop.box.key)
    assert shop.coordinator.store.read("SCARD", known) == 1
    shop.look()
    assert shop.coordinator.store.read("SCARD", known) == 0


def test_a_number_is_never_used_again_so_that_a_late_delete_takes_no_other_row(either: Shop) -> None:
    either.write()
    [row] = either.rows.read(10)
    either.rows.delete([row.number])
    later = either.write()
    either.rows.delete([row.number])
    assert [left.job_id for left in either.rows.read(10)] == [later]


def test_many_relays_at_once_make_each_job_once_and_keep_the_order(either: Shop) -> None:
    relays = [either.relay() for _ in range(3)]
    for relay in relays:
        relay.start()
    for number in range(60):
        either.write(f"order/{number % 2}", number)
        if number == 20:
            relays[0].stop()
    wait_until(lambda: not either.left)
    for relay in relays:
        relay.stop()
    assert [either.numbers("order/0"), either.numbers("order/1")] == [[*range(0, 60, 2)], [*range(1, 60, 2)]]
    assert either.coordinator.counts()["created"] == 60


def named(shop: Shop, caplog: pytest.LogCaptureFixture, job_id: str, why: str) -> bool:
    """The row is, in the log and by doctor."""
    found = [one for one in shop.coordinator.doctor() if one.code == "outbox.refused"]
    told = [record.message for record in caplog.records if job_id in record.message]
    return [why in one.message and job_id in one.message for one in found] == [why in line for line in told] == [True]


def test_a_row_whose_quota_nobody_declared_waits_and_so_does_its_key_but_no_other(
    either: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    first = either.write(["order", "item"], 1, uses="crane")
    either.write("order", 2)
    either.write(["item", "shelf"], 3)
    either.write("shelf", 4)
    other = either.write("other", 5)
    for _ in range(2):
        either.look()
    assert [either.jobs(key) for key in ("order", "item", "shelf", "other")] == [[], [], [], [other]]
    assert named(either, caplog, first, "nobody declared the quota 'crane'")
    either.coordinator.quota("crane", concurrency=1, why="it is there")
    either.look()
    assert [either.numbers(key) for key in ("order", "item", "shelf")] == [[1, 2], [1, 3], [3, 4]]
    assert not [one for one in either.coordinator.doctor() if one.code.startswith("outbox")]


def test_a_row_for_which_its_lane_is_full_waits_in_its_place(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        shop.write("order", number, max_waiting=1)
    shop.write("order", 3)
    shop.look()
    assert shop.numbers() == [0, 1]
    refused = shop.rows.read(10)[0].job_id
    shop.coordinator.submit("order", {"task": "shop.work", "args": [9]})  # another number waits: that is no news
    shop.look()
    assert named(shop, caplog, refused, "wait for 'order' already")
    ended = []
    while taken := shop.node.take():
        ended.append(shop.coordinator.job(taken.id).args[0])
        shop.node.finish(taken)
        shop.look()
    assert ended == [0, 1, 9, 2, 3]


@pytest.mark.parametrize(
    ("request_text", "why"), [("{", "damaged"), ("[]", "damaged"), (NO_FIELDS, "lacks fields"), (None, "log of Redis")]
)
def test_a_damaged_row_is_named_and_holds_nothing_up(
    shop: Shop, caplog: pytest.LogCaptureFixture, request_text: str | None, why: str
) -> None:
    damaged = shop.write("order")
    other = shop.write("other")
    if request_text is None:
        request_text = text_of(sketch("order", job_id=damaged))[:-1] + ', "expires", "never"]'
        request_of(request_text)  # so that Redis is asked
    with shop.engine.begin() as connection:
        change = text("UPDATE coordinator_outbox SET request = :request WHERE job_id = :job_id")
        connection.execute(change, {"request": request_text, "job_id": damaged})
    for _ in range(2):
        shop.look()
    assert (shop.jobs(), shop.jobs("other"), shop.left) == ([], [other], 1)
    assert named(shop, caplog, damaged, why)


def test_large_jobs_are_submitted_in_several_steps(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (40_000, 40_000, 40_000, 300_000, 10):
        with Session(shop.engine) as session, session.begin():
            ship = {"task": "shop.work", "args": ["x" * size]}
            shop.coordinator.submit_on_commit("order", ship, session=session, outbox=True)
    steps, delete = [], shop.rows.delete

    def note_and_delete(numbers: Any) -> None:
        steps.append(len(numbers))
        delete(numbers)

    monkeypatch.setattr(shop.rows, "delete", note_and_delete)
    shop.look()
    assert (steps, shop.left) == ([2, 1, 1, 1], 0)


def test_rows_that_stay_do_not_hide_those_behind_them(shop: Shop) -> None:
    with Session(shop.engine) as session, session.begin():
        for number in range(600):
            shop.submit(session, f"crane/{number}", uses="crane")
        shop.submit(session, "crane/7")
        other = shop.submit(session, "other")
    shop.look()
    assert (shop.jobs("other"), shop.jobs("crane/7"), shop.left) == ([other], [], 601)


def test_a_database_that_is_away_is_told_of_and_another_node_may_try_meanwhile(
    database: str, postgres_server: Any, shop_in: Callable[..., Shop], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with Proxy(postgres_server.port) as between:
        engine = create_engine(database.replace(str(postgres_server.port), str(between.port)))
        shop = shop_in(engine)
        relay = shop.relay()
        relay.start()
        wait_until(lambda: shop.coordinator.lane(shop.box.key).jobs)
        caplog.set_level(logging.WARNING, "coordinator.outbox")
        tried, look = list[int](), shop.rows.read

        def read(most: int) -> list[Row]:
            tried.append(most)
            return look(most)

        monkeypatch.setattr(shop.rows, "read", read)
        monkeypatch.setattr("coordinator.outbox.relay._AGAIN", 0.1)
        between.cut()
        wait_until(lambda: "its rows stay" in caplog.text)
        wait_until(lambda: len(tried) > 9)
        wait_until(lambda: not shop.coordinator.lane(shop.box.key).jobs)
        assert [one.code for one in shop.box.findings()] == ["outbox.away"]
        between.heal()
        engine.dispose()
        shop.write()
        wait_until(lambda: shop.jobs() and "submitted again" in caplog.text)
        told = [record.message for record in caplog.records if "its rows stay" in record.message]
        assert len(told) == len({*told}) <= 3
        relay.stop()
        engine.dispose()


def test_a_redis_that_is_away_hinders_no_commit_and_the_job_comes_later(
    sqlite: Engine, proxy: Proxy, shop_in: Callable[..., Shop]
) -> None:
    shop = shop_in(sqlite, url=proxy.url(0), timeout=10)
    relay = shop.relay()
    relay.start()
    wait_until(lambda: shop.coordinator.lane(shop.box.key).jobs)
    proxy.swallow()
    with within(8):
        job_id = shop.write()
    proxy.heal()
    wait_until(lambda: not shop.left)
    assert shop.jobs() == [job_id]
    relay.stop()


def test_rows_of_one_transaction_may_wait_for_each_other_in_any_order(either: Shop) -> None:
    with Session(either.engine) as session, session.begin():
        either.submit(session, "order", job_id="last", after=["first"])
        either.submit(session, "order", job_id="first")
        either.submit(session, "order", job_id="behind")
    either.look()
    either.look()
    assert either.left == 0
    assert either.node.order() == ["first", "behind", "last"]


def test_a_row_whose_cause_nobody_knows_holds_up_no_other_and_then_counts_it_as_gone(
    either: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for policy in ("fail", "run", "hold"):
        either.write("order", job_id=policy, after=["never"], on_failure_of=policy)
    other = either.write("order")
    with either.leading() as (relay, lease):
        relay.look(lease)
        assert (either.jobs(), either.left) == ([other], 3)
        monkeypatch.setattr("coordinator.outbox.relay.LATE", -1.0)
        relay.look(lease)
        relay.look(lease)
    assert either.left == 0
    states = {policy: either.coordinator.job(policy).state for policy in ("fail", "run", "hold")}
    assert states == {"fail": "failed", "run": "waiting", "hold": "held"}
    assert "which is gone" in (either.coordinator.job("fail").error or {})["message"]
    assert "job fail is to run after job never, which nobody knows: it counts as gone" in caplog.text
    either.coordinator.cancel("hold")
    assert either.node.order() == [other, "run"]


def test_rows_that_wait_for_each_other_in_a_circle_end(either: Shop) -> None:
    with Session(either.engine) as session, session.begin():
        for job_id, cause in (("1", "2"), ("2", "3"), ("3", "1")):
            either.submit(session, "order", job_id=job_id, after=[cause])
    with either.leading() as (relay, lease):
        for left in (3, 0):
            relay.look(lease)
            assert either.left == left
    assert [either.coordinator.job(job_id).state for job_id in "123"] == ["failed"] * 3


def test_a_row_waits_for_as_long_as_its_cause_has_a_row(either: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.outbox.relay.LATE", -1.0)
    either.write("order", job_id="last", after=["first"])
    either.write("other", job_id="first", uses="q")
    with either.leading() as (relay, lease):
        for _ in range(3):
            relay.look(lease)
        assert either.left == 2
        either.coordinator.quota("q", concurrency=1)
        for _ in range(2):
            relay.look(lease)
    assert either.left == 0
    assert either.node.order() == ["first", "last"]
