"""Load on a fleet behind Redis Sentinel while its masters fail, and an account of what became of each job."""

import threading
import time
from collections import defaultdict
from typing import NamedTuple, Self

from coordinator import StoreRefused, StoreUnavailable, UnknownJob
from coordinator.core.jobs.options import SubmitOptions, Uses
from tests.harness.fleet import Fleet
from tests.harness.installation import Stamp
from tests.harness.sentinel import MASTER, Sentinels
from tests.harness.waiting import wait_until


def behind(fleet: Fleet, sentinels: Sentinels) -> None:
    """Put coordinator, broker and results of a fleet behind these sentinels; its log stays where it is."""
    fleet.environ |= {
        "COORDINATOR_URL": sentinels.url(0),
        "TEST_BROKER": sentinels.broker(1),
        "TEST_BACKEND": sentinels.broker(2),
        "TEST_MASTER": MASTER,
    }


class Account(NamedTuple):
    """`lost`: jobs that Redis acknowledged and knows no more. `again`: runs of jobs beyond the first of each.

    `at_once`: runs that began while another one of their key was under way; a greater fence has overtaken that one.
    `overtaken`: when runs began whose key had a greater fence already, as a master that is none any more gives them;
    seconds since 1970.
    """

    acknowledged: int
    lost: list[str]
    again: int
    at_once: int
    overtaken: list[float]


class Load(threading.Thread):
    """Submits jobs `<key>/<number>`, each until Redis acknowledged it; `acknowledged`: when each was.

    `uses`: of each, as submits take it.
    """

    def __init__(self, fleet: Fleet, keys: int, pause: float, uses: Uses | None = None) -> None:
        super().__init__()
        self._fleet = fleet
        self._keys = keys
        self._pause = pause
        self._uses: SubmitOptions = {"uses": uses} if uses else {}
        self._over = threading.Event()
        self.acknowledged: dict[str, float] = {}

    def run(self) -> None:
        number = 0
        while not self._over.wait(self._pause):
            for key in range(self._keys):
                self._submit(f"{key}/{number}")
            number += 1

    def _submit(self, name: str) -> None:
        task = self._fleet.shop.work.s(name, 0.01)
        while name not in self.acknowledged:
            try:
                self._fleet.coordinator.submit(f"key/{name.partition('/')[0]}", task, job_id=name, **self._uses)
                self.acknowledged[name] = time.monotonic()
            except (StoreUnavailable, StoreRefused):
                time.sleep(0.02)

    def goes_on(self, timeout: float = 60) -> float:
        """Wait until a few more jobs have run; seconds that it took."""
        began, before = time.monotonic(), len(self._fleet.stamps(what="end"))
        wait_until(lambda: len(self._fleet.stamps(what="end")) > before + 5, timeout, self._fleet.logs)
        return time.monotonic() - began

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def account(self) -> Account:
        """Wait until all are over that Redis knows; fails where a lane was out of order, or a fence came twice."""
        known = {name: found for name in self.acknowledged if (found := self._known(name))}
        for name in known:
            self._fleet.coordinator.wait(name, 60)
        stamps = self._fleet.stamps()
        keys = defaultdict(list)
        for one in stamps:
            keys[one.name.partition("/")[0]].append(one)
        at_once = sum(_at_once(of_key) for of_key in keys.values())
        overtaken = [at for of_key in keys.values() for at in _overtaken(of_key)]
        for of_key in keys.values():
            _check_order(of_key, set(known))
        ended = [one.name for one in stamps if one.what == "end"]
        assert known.keys() <= set(ended)
        lost = sorted(self.acknowledged.keys() - known)
        return Account(len(self.acknowledged), lost, len(ended) - len(set(ended)), at_once, overtaken)

    def _known(self, name: str) -> bool:
        try:
            return bool(self._fleet.coordinator.job(name))
        except UnknownJob:
            return False


def _at_once(stamps: list[Stamp]) -> int:
    """In how many runs of a key another one began."""
    under_way, count = set[int](), 0
    for one in stamps:
        if one.what == "begin":
            count += bool(under_way)
            under_way = {one.fence}
        under_way -= {one.fence} if one.what == "end" else set()
    return count


def _overtaken(stamps: list[Stamp]) -> list[float]:
    """When runs of a key began whose fence is less than an earlier run's. Fails where two runs have the same fence."""
    begins = [one for one in stamps if one.what == "begin"]
    fences = [one.fence for one in begins]
    assert len(set(fences)) == len(fences), f"twice the same fence: {fences}"
    return [one.at / 1e6 for place, one in enumerate(begins) if one.fence < max(fences[:place], default=0)]


def _check_order(stamps: list[Stamp], known: set[str]) -> None:
    """A store that checks fences takes the last runs of those that Redis knows in the order of their submission."""
    greatest, last = 0, dict[str, int]()
    for place, one in enumerate(stamps):
        greatest = max(greatest, one.fence)
        if one.what == "end" and one.fence == greatest and one.name in known:
            last[one.name] = place
    numbers = [int(name.partition("/")[2]) for name in sorted(last, key=last.__getitem__)]
    assert numbers == sorted(numbers), f"out of order: {numbers}"
