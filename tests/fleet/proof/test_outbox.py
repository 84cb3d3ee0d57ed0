"""The outbox as a load: what is committed runs once, while the relays and the database have faults."""

from pathlib import Path
from random import Random

from proof.checkers import judge
from proof.harms import kill_relays, restart_the_database_of_an_outbox, stop_relays
from proof.history import History
from proof.orders import relayed, rows
from proof.world import World
from tests.harness.waiting import wait_until


def test_committed_orders_run_in_their_order_and_find_what_was_written_whatever_becomes_of_the_relay(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, 1, 0, 0)
    world.has = {"single", "redis", "outbox"}
    with world:
        node = world.join(ready=True)
        outbox, chance = world.fleet.tasks("proof.outbox"), Random(1)
        first = node.maintenance()
        for number, fault in enumerate((kill_relays, stop_relays, restart_the_database_of_an_outbox)):
            outbox.order(before := f"before-{number}", "orders/0", 0.01, undone=False)
            outbox.order(f"undone-{number}", "orders/0", 0.01, undone=True)
            wait_until(lambda: before in relayed(world.engine))
            next(harm := fault(world, chance))
            if fault is kill_relays:
                first.wait(60)
            elif fault is restart_the_database_of_an_outbox:
                assert not world.database.answers()
                next(harm, None)
            outbox.order(f"after-{number}", "orders/0", 0.01, undone=False)
            next(harm, None)

        kept = [f"{what}-{number}" for number in range(3) for what in ("before", "after")]
        wait_until(lambda: relayed(world.engine) == {*kept} and not rows(world.engine))
        for job in kept:
            assert world.coordinator.wait(job, 60).state == "succeeded"
        history = History.from_lines(world.witness.lines(), {})
        assert [run.job for run in history.runs] == kept
        assert {event.value["found"] for event in history.of("ship")} == {True}
        assert not judge(history)["outbox_kept"]


def test_an_order_that_is_asked_for_again_is_written_once(tmp_path: Path) -> None:
    world = World(tmp_path, 1, 0, 0)
    world.has = {"single", "redis", "outbox"}
    with world:
        outbox = world.fleet.tasks("proof.outbox")
        for _ in range(2):
            outbox.order("a", "orders/0", 0.01, undone=False)
        assert rows(world.engine) == ["a"]
        assert relayed(world.engine) == set()
