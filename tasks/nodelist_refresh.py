"""The task that reconciles the nodelist with its permanent store, and the thread of each node that writes to the store.

Each node asks for the task once when it starts.
"""

import logging

from coordinator import CoordinatorError
from coordinator.threads import StoppableThread
from tasks.app import app, coordinator
from tasks.nodelist.follower import Follower
from tasks.nodelist.stores import NodelistStoreAway
from tasks.service import fresh, service

logger = logging.getLogger(__name__)

LANE = "nodelist"
PAUSE, TROUBLED = 1.0, 5.0


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


class Following(StoppableThread):
    """Runs beside each warden: see `tasks.nodelist.follower`."""

    def __init__(self, node: str) -> None:
        super().__init__("nodelist-follower", 3.0)
        self._node = node
        self._follower: Follower | None = None
        self._trouble = ""

    def run(self) -> None:
        pause = PAUSE
        while not self.stopping.wait(pause):
            pause = self._step()
        self._step()  # the syncs that ended with this node

    def _step(self) -> float:
        try:
            # A nodelist of its own: it keeps the store as it was written last, and other threads read theirs.
            self._follower = self._follower or Follower(fresh().nodelist, self._node)
            pause = self._follower.step()
        except Exception as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.warning("nodelist: nothing can be written to the permanent store now: %s", error)
            return TROUBLED
        self._trouble = ""
        return pause


coordinator.warden_plugin(AtStart)
coordinator.warden_plugin(Following)
