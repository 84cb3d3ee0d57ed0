"""What an autonomous component of the Newspaper Batch Event Framework does, as a component of the service."""

from collections.abc import Iterator

from examples.moving.shop import coordinator
from examples.moving.work import work
from tasks.batches import Failure
from tasks.components import Components, Work

components = Components(coordinator)


@components.declare(
    "Structure_Checker", "1.2", event="Structure_Checked", past=["Data_Received"], future=["Structure_Approved"],
    simultaneous_processes=3, work_queue=10, time_limit=3600, max_results=100,
)  # fmt: skip
def check(found: Work) -> Iterator[Failure]:
    work(found.item.id)
    if not found.item.directory:
        yield Failure(found.item.id, "filestructure", "Structure_Checker", "There is no directory")
