"""Operators act on jobs, lanes and nodes. Each act names why, and by whom."""

from __future__ import annotations

from abc import ABC, abstractmethod
from socket import gethostname
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.jobs.states import End, State
    from coordinator.lanes.lanes import Lanes


class Steering(ABC):
    """The acts of operators. `by` is the host's name where you give none."""

    @property
    @abstractmethod
    def core(self) -> Lanes: ...

    def cancel(self, job_id: str, *, why: str = "", by: str | None = None) -> State:
        """End a job, and give its state after the call: `cancelled`, or `running` until its process was stopped.

        A job that was started is rolled back where it has a rollback. A job that is over stays as it is, so a repeated
        call changes nothing. `by` is the host's name where you give none, here and below. Raises UnknownJob.
        """
        return self.core.cancel(job_id, why=why, by=by or gethostname())

    def retry(self, job_id: str, *, to: End = "back", why: str = "", by: str | None = None) -> State:
        """Let a held job go on, a retrying one at once, and put one that ended badly in line anew; give its new state.

        `to`: the `back` or the `front` of the jobs of its priority. Another job stays as it is, so a repeated call
        changes nothing while the job waits or runs. Raises InvalidJob, UnknownJob.
        """
        return self.core.retry(job_id, to=to, why=why, by=by or gethostname())

    def move(
        self, job_id: str, *, priority: int | None = None, to: End = "back", why: str = "", by: str | None = None,
        token: str | None = None,
    ) -> State:  # fmt: skip
        """Move a job that was not started to the `back` or `front` of its priority, or of another one (-255 to 255).

        Gives its state. A repeated call moves it again; with the same `token` it is moved once. Raises InvalidJob where
        the job was started or stands in no line, and UnknownJob.
        """
        return self.core.move(job_id, priority=priority, to=to, why=why, by=by or gethostname(), token=token)

    def set_limit(self, key: str, limit: int, *, why: str = "", by: str | None = None) -> int:
        """Let so many jobs of this lane run at once (0 to 1000), strictly in line, and give the limit before.

        1 is usual; at 0 nothing starts. A greater limit starts waiters at once, a smaller one stops nobody.
        """
        return self.core.set_limit(key, limit, why=why, by=by or gethostname())

    def release(self, key: str, *, why: str, by: str | None = None, holder: str = "") -> str | None:
        """Take the lane from the job that holds it; give its id, or None where no job holds the lane.

        That job ends as cancelled, without rollback, and the next one starts. `holder`: take it from this job only, so
        that a repeated call takes it from no other one. Raises InvalidJob.
        """
        return self.core.release(key, why=why, by=by or gethostname(), holder=holder)

    def pause(self, key: str, *, why: str = "", by: str | None = None) -> bool:
        """Start nothing more of this lane until `resume`; running jobs go on. False: it was paused already."""
        return self.core.pause(key, why=why, by=by or gethostname())

    def resume(self, key: str, *, why: str = "", by: str | None = None) -> bool:
        """Let a paused lane go on. False: it was not paused."""
        return self.core.resume(key, why=why, by=by or gethostname())

    def drain(self, node: str, *, why: str = "", by: str | None = None) -> bool:
        """Give this node, and any later one of its name, nothing new until `undrain`. False: it drained already.

        Its jobs end there, or are handed over after `drain_timeout` seconds; no loss is counted. Raises InvalidJob.
        """
        return self.core.drain(node, True, why=why, by=by or gethostname())

    def undrain(self, node: str, *, why: str = "", by: str | None = None) -> bool:
        """Give this node work again, and ring it where some waits. False: it did not drain."""
        return self.core.drain(node, False, why=why, by=by or gethostname())
