"""Jobs that wait for events on real workers, whoever dies meanwhile: each goes on once, with the value."""

from typing import Any

from tests.fleet.mishaps import marks
from tests.harness.fleet import Fleet, kill_all
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

SHORT: dict[str, Any] = {"lock_ttl": 5, "node_ttl": 4, "sweep": 0.2, "heartbeat": 0.5, "retry_delay": 0.01}
NODE = Node("shop", 3, settings=SHORT)
OTHER = "one@test"


def test_a_job_goes_on_at_another_node_where_its_own_was_killed_while_it_waited(fleet: Fleet) -> None:
    first = fleet.worker("first", 2)
    fleet.coordinator.drain(OTHER, why="only the other one is to work")
    submitted = fleet.shop.coordinator.submit("k", fleet.shop.ask.s("approved"))
    behind = fleet.shop.coordinator.submit("k", fleet.shop.work.s("behind"))
    wait_until(lambda: submitted.state == "parked", what=fleet.logs)
    kill_all(first)
    fleet.coordinator.undrain(OTHER)
    assert fleet.coordinator.event("approved").set({"by": "ann"})
    assert submitted.get(timeout=60) == {"by": "ann"}
    assert behind.get(timeout=60) == "behind"
    job = fleet.coordinator.job(submitted.id)
    assert (job.state, job.attempt, job.losses, job.node) == ("succeeded", 1, 0, OTHER)
    assert marks(fleet) == ["approved begin", "approved got {'by': 'ann'}", "behind begin", "behind end"]


def test_a_step_that_is_lost_behind_a_wait_gets_the_value_again(fleet: Fleet) -> None:
    submitted = fleet.shop.coordinator.submit("k", fleet.shop.ask.s("approved", True))
    fleet.coordinator.event("approved").set(7)
    assert submitted.get(timeout=60) == 7
    assert marks(fleet) == ["approved begin", "approved got 7", "approved got 7"]
    assert fleet.coordinator.job(submitted.id).losses == 1


def test_an_event_that_is_set_while_its_job_parks_is_not_missed(fleet: Fleet) -> None:
    names = [f"e{number:02}" for number in range(60)]
    submitted = [fleet.shop.coordinator.submit(name, fleet.shop.ask.s(name)) for name in names]
    for name in names:
        wait_until(lambda name=name: fleet.stamps(name, "begin"), what=fleet.logs)  # type: ignore[misc]
        fleet.coordinator.event(name).set(name)
    assert [one.get(timeout=60) for one in submitted] == names
    assert sorted(marks(fleet)) == sorted(f"{name} {what}" for name in names for what in ("begin", f"got {name}"))
