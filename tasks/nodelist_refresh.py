"""Reconciles the nodelist with its permanent store: a task, and two threads beside each node's warden.

One thread submits the task when the node starts. The other writes committed changes to the store.
"""

import logging

from coordinator import CoordinatorError
from coordinator.extending import StoppableThread
from tasks.app import app, coordinator
from tasks.nodelist.follower import Follower
from tasks.nodelist.stores import NodelistStoreAway
from tasks.service import fresh, service

logger = logging.getLogger(__name__)

LANE = "nodelist"
PAUSE, TROUBLED = 1.0, 5.0


@app.task(name="tasks.refresh.refresh_nodelist")
def refresh_nodelist() -> dict[str, str | list[str]]:
    """Commit what others changed in the store, and write what it lacks. While the store is away, nothing changes."""
    nodelist = service().nodelist
    try:
        return {"outcome": "refreshed", "changes": nodelist.refresh()}
    except NodelistStoreAway as away:
        logger.warning("nodelist: %s", away)
        return {"outcome": "away", "reason": str(away)}


def refresh() -> str:
    """Submit a refresh. Returns the id of the job."""
    return coordinator.submit(LANE, refresh_nodelist.s(), when_busy="defer").id


class FirstRefresh(StoppableThread):
    """Submits a refresh when the node starts, before the first tick of a beat."""

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


class FollowerThread(StoppableThread):
    """Runs the node's Follower."""

    def __init__(self, node: str) -> None:
        super().__init__("nodelist-follower", 3.0)
        self._node = node
        self._follower: Follower | None = None
        self._trouble = ""

    def run(self) -> None:
        pause = PAUSE
        while not self.stopping.wait(pause):
            pause = self._step()
        self._step()  # write the dates of the syncs that ended with this node

    def _step(self) -> float:
        try:
            # Its own nodelist: the store and its caches serve one thread.
            self._follower = self._follower or Follower(fresh().nodelist, self._node)
            pause = self._follower.step()
        except Exception as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.warning("nodelist: nothing can be written to the permanent store now: %s", error)
            return TROUBLED
        self._trouble = ""
        return pause


coordinator.warden_plugin(FirstRefresh)
coordinator.warden_plugin(FollowerThread)
