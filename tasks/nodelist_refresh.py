"""The task that reconciles the nodelist with its permanent store. Each node asks for it once when it starts."""

import logging

from coordinator import CoordinatorError
from coordinator.threads import StoppableThread
from tasks.app import app, coordinator
from tasks.nodelist.stores import NodelistStoreAway
from tasks.service import service

logger = logging.getLogger(__name__)

LANE = "nodelist"
PAUSE = 1.0


@app.task(name="tasks.refresh.refresh_nodelist")
def refresh_nodelist() -> dict[str, str | list[str]]:
    """Take in other people's changes in the store, and write what it lacks. With the store away, nothing changes."""
    nodelist = service().nodelist
    try:
        return {"outcome": "refreshed", "changes": nodelist.refresh()}
    except NodelistStoreAway as away:
        logger.warning("nodelist: %s", away)
        return {"outcome": "away", "reason": str(away)}


def refresh() -> str:
    """Ask for a refresh now. Returns the id of the job."""
    return coordinator.submit(LANE, refresh_nodelist.s(), when_busy="defer").job_id


class AtStart(StoppableThread):
    """Runs beside each warden, and asks for the first refresh before the first tick of a beat."""

    def __init__(self, node: str) -> None:
        super().__init__("nodelist-at-start", 0.0)

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                refresh()
                return
            except CoordinatorError as error:
                logger.info("nodelist: the first refresh cannot be asked for yet: %s", error)
                self.stopping.wait(PAUSE)


coordinator.warden_plugin(AtStart)
