"""How fast do batches go through the example's pipeline, beside the same work without any store, lane or node?

The peer does all stages of each batch in one process, one after another. The fleet is one node with two processes. All
batches are there when its beat starts; each component polls once a second. With few batches that is most of the time.
"""

import argparse
import tempfile
import time
from pathlib import Path

from bench import amount
from examples.batches.deliver import deliver, items
from examples.batches.delivery import Delivery
from examples.batches.place import Place
from examples.batches.stages import RECEIVED, STAGES
from tasks.batches import ItemConditions, Items
from tasks.batches.deliveries import Deliveries
from tests.fleet.tasks.service import Service, beat
from tests.harness.postgres import PostgresServer
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

PROCESSES = amount(2, 1)
OWN = {"TASKS_COMPONENTS": "examples.batches.pipeline", "BATCHES_EVERY": "1", "BATCHES_PATIENCE": "0"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=amount(160, 1))
    parser.add_argument("--pages", type=int, default=amount(8, 1))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone = work(Path(folder), given.batches, given.pages)
    ideal = PROCESSES * given.batches / alone
    each = 1000 * alone / given.batches
    print(
        f"work alone   {each:6.1f} ms a batch of {given.pages} pages: {ideal:5.1f} batches/s with {PROCESSES} processes"
    )
    with PostgresServer() as server, server.database() as name:
        urls = {"SQLite": "", "PostgreSQL": server.url(name)}
        for store in amount([*urls], ["PostgreSQL"]):
            seconds = fleet(urls[store], given.batches, given.pages)
            speed, jobs = given.batches / seconds, given.batches * len(STAGES) / seconds
            print(
                f"{store:12} {speed:6.1f} batches/s, {jobs:5.0f} children/s   x {speed / ideal:.2f} of the work alone"
            )


def delivered(place: Place, batches: int, pages: int) -> list[Delivery]:
    return [Delivery(deliver(place.deliveries, item, pages)) for item in items(batches)]


def work(folder: Path, batches: int, pages: int) -> float:
    """Seconds of all stages, one after another."""
    place = Place(folder, patience=0)
    found = delivered(place, batches, pages)
    began = time.perf_counter()
    for delivery in found:
        for stage in STAGES:
            assert not stage.work(delivery, place)
    return time.perf_counter() - began


def fleet(url: str, batches: int, pages: int) -> float:
    """Seconds from the first child to the end of the last one."""
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer(Path(folder) / "redis") as redis,
        Service(redis, Path(folder), [], TASKS_DATABASE_URL=url, **OWN) as here,
    ):
        place, store = Place(here.folder / "batches"), Items(here.settings)
        delivered(place, batches, pages)
        watch = Deliveries(store, place.deliveries)
        watch.step()
        watch.step()
        here.node("one", PROCESSES)
        with beat(here, "beat"):
            wait_until(lambda: ended(store, batches), 1200)
        events = [one for item in items(batches) for one in store.events(item) if one.type != RECEIVED]
        store.engine.dispose()
    return (max(one.ended for one in events) - min(one.started for one in events)).total_seconds()


def ended(store: Items, batches: int) -> bool:
    time.sleep(0.5)  # the questions take processor time from the node
    return len(store.query(ItemConditions(past=[stage.event for stage in STAGES]), limit=batches).items) == batches


if __name__ == "__main__":
    main()
