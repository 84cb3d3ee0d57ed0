"""The example's pipeline on a real fleet: deliveries go through all stages, also while a node dies."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from examples.batches.deliver import deliver, items, mend
from examples.batches.place import Place
from examples.batches.stages import APPROVED, RECEIVED, STAGES
from tasks.batches import Items
from tasks.batches.deliveries import Deliveries
from tests.fleet.tasks.service import Service, beat
from tests.harness.command import told
from tests.harness.redis import RedisServer
from tests.harness.stopping import wait_until_still
from tests.harness.waiting import wait_until

BATCHES = items(12)
DEFECTS = {BATCHES[2]: "checksum", BATCHES[6]: "missing"}
ALL = {RECEIVED, *(stage.event for stage in STAGES)}
QUICK = {
    "TASKS_COMPONENTS": "examples.batches.pipeline",
    "BATCHES_EVERY": "1",
    "BATCHES_PATIENCE": "1",
    "COORDINATOR_LOCK_TTL": "2",
    "COORDINATOR_SWEEP": "0.2",
    "COORDINATOR_HEARTBEAT": "0.5",
}


@pytest.fixture
def service(own_redis: RedisServer, tmp_path: Path, database: str) -> Iterator[Service]:
    """Its beat polls each second. Its store is in PostgreSQL; that of the demo is in SQLite."""
    with Service(own_redis, tmp_path, [], TASKS_DATABASE_URL=database, **QUICK) as service, beat(service, "beat"):
        yield service


@pytest.fixture
def store(service: Service) -> Iterator[Items]:
    store = Items(service.settings)
    yield store
    store.engine.dispose()


def events(store: Items, item: str) -> dict[str, bool]:
    """Each type once, and its success."""
    found = [(one.type, one.success) for one in store.events(item)]
    assert not [kind for kind, count in Counter(kind for kind, _ in found).items() if count > 1], found
    return dict(found)


def works(service: Service, node: str) -> bool:
    return any(one.node == node for lane in service.coordinator.lanes(state="running") for one in lane.holders)


def arrived(store: Items, wanted: list[str]) -> bool:
    return all(events(store, item) == dict.fromkeys(ALL, True) for item in wanted)


def what_is_there(store: Items) -> str:
    return "\n".join(f"{item}: {events(store, item)}" for item in BATCHES)


def killed_at_work(service: Service, node: psutil.Process, name: str) -> bool:
    """Kill the node, with all that it started, where it works on a batch at that instant."""
    family = [node, *node.children(recursive=True)]
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.suspend()
    wait_until_still(*(one.pid for one in family))
    at_work = works(service, name)
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.kill() if at_work else one.resume()
    return at_work


def test_all_but_the_defective_batches_arrive_though_a_node_dies_and_those_arrive_once_they_are_mended(
    service: Service, store: Items
) -> None:
    nodes = [service.node(name) for name in ("one", "two")]
    place, good = Place(service.folder / "batches"), [item for item in BATCHES if item not in DEFECTS]
    for item in BATCHES:
        deliver(place.deliveries, item, pages=2, defect=DEFECTS.get(item))
    watch = Deliveries(store, place.deliveries)
    watch.step()
    watch.step()  # each delivery is the same as at the first look
    wait_until(lambda: "Structure_Checked" in events(store, BATCHES[0]), 60, lambda: what_is_there(store))
    wait_until(lambda: works(service, "two@test") and killed_at_work(service, nodes[1], "two@test"), 60)
    assert not arrived(store, good), "it died too late"
    wait_until(lambda: arrived(store, good), 120, lambda: what_is_there(store))
    for item in DEFECTS:
        archived = {RECEIVED: True, "Metadata_Archived": True, "Data_Archived": True}
        assert events(store, item) == archived | {"Structure_Checked": False}
        mend(place.deliveries / item, pages=2)
        told(service.call("items", "restart", item, "--from", "Metadata_Archived", "--why", "it was mended"))
    wait_until(lambda: arrived(store, BATCHES), 60, lambda: what_is_there(store))
    assert len(list((place.mail / "new").iterdir())) == len(BATCHES)
    batch = BATCHES[2].partition("-")[0]
    assert told(service.call("items", "approve", batch, "--why", "a test")) == f"{BATCHES[2]} approved"
    assert events(store, BATCHES[2])[APPROVED]
    wait_until(lambda: "Leftovers_removed" in events(store, BATCHES[2]), what=lambda: what_is_there(store))
    assert {path.stem for path in place.flagged.iterdir()} == {*BATCHES} - {BATCHES[2]}
