"""Components as a load: clients deliver items, and a component adds one event to each. Nodes and beats import it where
the world has items."""

import time
from datetime import UTC, datetime

from proof.shop import coordinator, witness
from tasks.batches import NewEvent
from tasks.components import Components, Work

components = Components(coordinator)


@components.declare(
    "Checker", "1.0", event="Checked", past=["Data_Received"], simultaneous_processes=3, max_attempts=1000,
    retry_delay=0.5, max_losses=10_000, every=2.0,
)  # fmt: skip
def check(work: Work) -> None:
    item = work.item.id
    witness.begin([item], work.fence, job=item, keys=[item], step=0)
    time.sleep(float(work.item.directory or 0))
    witness.write(item, work.fence, f"{item} 0")
    witness.note("ok", "run", job=item, fence=work.fence, step=0)


def deliver(item: str, seconds: float) -> None:
    """Deliver an item; a repeat changes nothing."""
    store, now = components.items, datetime.now(UTC)
    store.register(item, directory=str(seconds))
    if not store.events(item):
        store.begin("delivery", item, fence=1)
        store.append(NewEvent(item, "Data_Received", True, "delivery", "1", "1", 1, 1, now, now))
