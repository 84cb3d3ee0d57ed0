"""Synchronizes the replicated nodelist with its permanent store (LDAP or XML): a task, and two threads beside a worker.

The thread FirstRefresh submits the task when the node starts. WriteBackThread writes committed changes to the store.
"""

import logging

from coordinator import CoordinatorError
from coordinator.extending import StoppableThread
from tasks.app import app, coordinator
from tasks.nodelist.stores import NodelistStoreAway
from tasks.nodelist.write_back import WriteBack
from tasks.service import fresh, service

logger = logging.getLogger(__name__)

LANE = "nodelist"
PAUSE, PAUSE_AFTER_ERROR = 1.0, 5.0


@app.task(name="tasks.refresh.refresh_nodelist")
def refresh_nodelist() -> dict[str, str | list[str]]:
    """Take over what others have changed in the permanent store, and write to the store the changes that it lacks.

    While the store cannot be reached, nothing changes, and the outcome is `away`.
    """
    nodelist = service().nodelist
    try:
        return {"outcome": "refreshed", "changes": nodelist.refresh()}
    except NodelistStoreAway as away:
        logger.warning("nodelist: the permanent store cannot be read now: %s", away)
        return {"outcome": "away", "reason": str(away)}


def refresh() -> str:
    """Submit a job of `refresh_nodelist`. Returns the id of the job."""
    return coordinator.submit(LANE, refresh_nodelist.s(), when_busy="defer").id


class FirstRefresh(StoppableThread):
    """A thread that submits a refresh of the nodelist when the node starts, without waiting for a beat."""

    def __init__(self, node: str) -> None:
        super().__init__("nodelist-at-start", 0.0)

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                refresh()
                return
            except CoordinatorError as error:
                logger.info("nodelist: the first refresh cannot be submitted yet: %s", error)
                self.stopping.wait(PAUSE)


class WriteBackThread(StoppableThread):
    def __init__(self, node: str) -> None:
        super().__init__("nodelist-write-back", 3.0)
        self._node = node
        self._write_back: WriteBack | None = None
        self._trouble = ""

    def run(self) -> None:
        pause = PAUSE
        while not self.stopping.wait(pause):
            pause = self._step()
        self._step()  # writes the dates of syncs that have ended while this node was stopping

    def _step(self) -> float:
        try:
            # This thread opens a nodelist of its own: connection and caches of a store serve one thread only.
            self._write_back = self._write_back or WriteBack(fresh().nodelist, self._node)
            pause = self._write_back.step()
        except Exception as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.warning("nodelist: changes cannot be written to the permanent store now: %s", error)
            return PAUSE_AFTER_ERROR
        self._trouble = ""
        return pause


coordinator.node_plugin(FirstRefresh)
coordinator.node_plugin(WriteBackThread)
