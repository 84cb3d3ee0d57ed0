"""A storm over a fleet: processes are killed and stopped at random while jobs run; then what must hold is looked at."""

import random
import signal
import time
from contextlib import suppress

import psutil

from tests.harness.fleet import ALONE, Fleet, Worker
from tests.harness.waiting import wait_until

TIMES = {"lock_ttl": 2, "node_ttl": 1.5, "heartbeat": 0.3, "sweep": 0.1, "slice": 1, "max_losses": 10_000}


class Storm:
    """`jobs` jobs over `keys` lanes, `kills` mishaps while they run; the seed is told when something does not hold.

    A job takes `longest` (s) at most: long enough for the jobs to outlast the mishaps.
    """

    def __init__(self, fleet: Fleet, jobs: int, keys: int, kills: int, seed: int, longest: float = 0.02) -> None:
        self.fleet = fleet
        self.random = random.Random(seed)
        self.seed = seed
        self.names = [(f"k{number % keys}", f"{number:06}") for number in range(jobs)]
        self.kills = kills
        self.longest = longest
        self._stopped: list[tuple[float, psutil.Process]] = []
        self._born = 0

    def run(self) -> None:
        self.fleet.configure(**TIMES)
        self._living()
        work = self.fleet.shop.work
        asked = self.fleet.coordinator.submit_many(
            (key, work.s(f"{key}:{name}", self.random.uniform(0, self.longest))) for key, name in self.names
        )
        self.ids = [one.id for one in asked]
        for _ in range(self.kills):
            time.sleep(self.random.uniform(0.1, 0.5))  # the storm's own rhythm
            self._mishap()
        for _, process in self._stopped:
            _go_on(process)
        wait_until(
            self._over, 60 + len(self.names) / 20, lambda: f"seed {self.seed}: {self.fleet.coordinator.counts()}"
        )
        self.look()

    def _join(self) -> None:
        self._born += 1
        self.fleet.worker(f"n{self._born}", 2, *ALONE, ready=self._born <= 3)

    def _living(self) -> list[Worker]:
        """Three. Celery ends a worker whose processes are killed while they start; whoever runs it starts another."""
        while len(found := [worker for worker in self.fleet.workers if worker.process.poll() is None]) < 3:
            self._join()
        return found

    def _mishap(self) -> None:
        now = time.monotonic()
        for until, process in [one for one in self._stopped if one[0] <= now]:
            self._stopped.remove((until, process))
            _go_on(process)
        worker = self.random.choice(self._living())
        what = self.random.choices(("child", "warden", "errands", "stop", "node"), (5, 2, 1, 3, 1))[0]
        try:
            if what == "node":
                worker.kill()
                worker.process.wait()
            elif what == "warden":
                worker.warden().kill()
            elif what == "errands":
                worker.errands().kill()
            else:
                child = self.random.choice(worker.children())
                if what == "child":
                    child.kill()
                else:
                    child.suspend()
                    self._stopped.append((now + self.random.uniform(0.5, 5), child))
        except (psutil.Error, StopIteration, IndexError):
            return  # it was gone already

    def _over(self) -> bool:
        self._living()
        counts = self.fleet.coordinator.counts()
        return counts["succeeded"] + counts["failed"] == len(self.names)

    def look(self) -> None:
        """Each job succeeded; the accepted attempts of a lane follow one another, in order, with growing fences."""
        began: dict[tuple[str, int], int] = {}
        ended: dict[tuple[str, int], int] = {}
        for stamp in self.fleet.stamps():
            (began if stamp.what == "begin" else ended)[stamp.name, stamp.fence] = stamp.at
        last: dict[str, tuple[int, int]] = {}
        for (key, name), job_id in zip(self.names, self.ids, strict=True):
            job = self.fleet.coordinator.job(job_id)
            told = f"seed {self.seed}: {job}"
            assert job.state == "succeeded", told
            assert job.fence, told
            accepted = (f"{key}:{name}", job.fence)
            at, fence = last.get(key, (0, 0))
            assert at < began[accepted] <= ended[accepted], told
            assert fence < job.fence, told
            last[key] = (ended[accepted], job.fence)


def _go_on(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)
