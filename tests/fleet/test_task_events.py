"""Task events of jobs under load: many together, and as Celery's own."""

from tests.harness.events import Ear
from tests.harness.fleet import Fleet
from tests.harness.long import long
from tests.harness.waiting import wait_until

FLOOD = long(1500, 5000)


def a_second(moments: list[float]) -> float:
    """On average, since what comes together may be late together on a busy machine."""
    return len(moments) / (1.0 + max(moments) - min(moments))


def test_the_events_of_a_flood_come_in_few_messages_and_all_of_them(fleet: Fleet) -> None:
    worker = fleet.worker("one", 2, "-E")
    fleet.coordinator.wait(fleet.coordinator.submit("a", fleet.shop.add.s(1, 2)).id, 60)
    with Ear(fleet.shop.app) as ear:
        told = fleet.coordinator.submit_many((f"k{number}", fleet.shop.add.s(1, number)) for number in range(FLOOD))
        wait_until(lambda: all(len(ear.of(one.id)) == 3 for one in told), 120, lambda: f"{len(ear.heard)} heard")
        assert a_second(ear.messages) <= 20, "ten a second and process"
        threads = [child.num_threads() for child in worker.children()]
        told = fleet.coordinator.submit_many((f"k{number}", fleet.shop.add.s(1, number)) for number in range(200))
        wait_until(lambda: all(len(ear.of(one.id)) == 3 for one in told), what=lambda: f"{len(ear.heard)} heard")
        assert [child.num_threads() for child in worker.children()] <= [most + 1 for most in threads]
