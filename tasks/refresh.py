"""The task that keeps the nodelist and its permanent store together; each node asks for it once when it starts."""

import logging
import threading

from coordinator import CoordinatorError
from tasks.app import app, coordinator
from tasks.service import service
from tasks.sources import SourceAway

logger = logging.getLogger(__name__)

LANE = "nodelist"
PAUSE = 1.0


@app.task(name="tasks.refresh.refresh_nodelist")
def refresh_nodelist() -> dict[str, object]:
    """Take in what others changed in the store, and give it what it lacks. Where it is away, nothing changes."""
    nodelist = service().nodelist
    try:
        return {"outcome": "refreshed", "changes": nodelist.refresh()}
    except SourceAway as away:
        logger.warning("nodelist: %s", away)
        return {"outcome": "away", "reason": str(away)}


def refresh() -> str:
    """Ask for it now; the id of the job."""
    return coordinator.submit(LANE, refresh_nodelist.s(), when_busy="defer").job_id


class AtStart:
    """Beside each warden: the first refresh comes before the first tick."""

    def __init__(self, node: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="nodelist-at-start", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                refresh()
                return
            except CoordinatorError as error:
                logger.info("nodelist: cannot ask for its first refresh yet: %s", error)
                self._stop.wait(PAUSE)


coordinator.companion(AtStart)
