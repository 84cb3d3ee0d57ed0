"""Finds the objects that a member has deleted, after a complete pass over its listing.

An object is gone only if the pass did not list it and the member answers 404 or 410 for its system metadata. A member
may break in many ways, so:

* The pass must have seen at least one object. The database keeps, for each object that a pass sees, the instant at
  which the pass began. So a pass that another process resumes counts as one pass.
* The pass must have seen as many objects as the member counts. Or the surplus, the objects that the member counts and
  does not list, must be the same as in the pass before: a member that hides some objects has the same surplus each
  time; a member whose index is being built has not.
* Before objects are noted as gone, the member must return the metadata of an object that it lists. So if a server
  answers 404 for everything, no object is noted as gone.
* A pass checks MOST_REQUESTS objects at most, the longest unseen first. Objects that still exist, or whose check fails,
  are noted as seen. So the next pass checks the objects after them.

If the member fails for one object after the other, the search ends, and the sync goes on. The next complete pass checks
the rest.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from threading import Event, Lock

from tasks import instants
from tasks.catalog.sightings import Sightings
from tasks.harvest.patience import MemberPatience
from tasks.member_node.client import NOT_THERE, Failing, MemberNode, MemberNodeError, MemberRefused
from tasks.settings import Settings

logger = logging.getLogger(__name__)

MOST_REQUESTS = 10_000
"""The most objects whose existence one pass checks."""
PORTION = 200
"""The number of objects that are checked before their results are stored in one transaction."""
SAMPLES = 3


@dataclass
class GoneSearch:
    """The search for deleted objects after one complete pass. `check`: raises for a lost lease."""

    client: MemberNode
    sightings: Sightings
    settings: Settings
    fence: int
    check: Callable[[], object]
    clock: Callable[[], datetime]
    patience: MemberPatience

    @property
    def member_id(self) -> str:
        return self.client.member.identifier

    def gone(self, began: datetime, until: datetime) -> int:
        """Note in the catalog the objects that the member has deleted. Returns their number.

        `began`: when the pass began. `until`: the pass has listed the objects that changed before this date.
        """
        count = 0
        try:
            total = self._total(until)
            seen = self.sightings.seen(self.member_id, began)
            if not total or not seen:
                return 0
            surplus = max(0, total - seen)
            if self.sightings.surplus(self.member_id, surplus, fence=self.fence) != surplus and surplus:
                logger.info(
                    "%s: the listing had %s of %s objects, so no object counts as deleted", self.member_id, seen, total
                )
                return 0
            pids = self.sightings.unseen(self.member_id, began, MOST_REQUESTS)
            for start in range(0, len(pids), PORTION):
                count += self._portion(pids[start : start + PORTION], began)
        except MemberNodeError as error:
            logger.warning("the search for deleted objects of a member ended early: %s", error)
        return count

    def _total(self, until: datetime) -> int:
        """The number of objects, by the member's own count, that changed before `until`."""
        try:
            return self.patience.call(lambda: self.client.objects(instants.NEVER, until, 0, 1)).total
        except (MemberRefused, Failing) as error:
            if error.status not in (400, 501):
                raise
        entries, total, _ = self.patience.call(
            lambda: self.client.objects(instants.NEVER)
        )  # the member accepts no parameter but fromDate
        return total - sum(entry.modified >= until for entry in entries)

    def _portion(self, pids: Sequence[str], began: datetime) -> int:
        """Request the metadata of these objects, note in the catalog those that are gone, and return their number.

        `began`: when the pass began. Raises MemberNodeError once the answers show that the member itself fails.
        """
        answers = _Answers(self.client, self.settings).of(pids)
        missing, failed = answers["gone"], answers["failed"]
        if missing and not self._is_sane(began):
            url = self.client.member.base_url
            raise MemberNodeError("returns no metadata of the objects that it lists, either", self.member_id, url)
        self.check()
        answered = [*missing, *answers["there"], *failed]
        self.sightings.note_checked(
            self.member_id, missing=missing, checked=answered, began=began, fence=self.fence, now=self.clock()
        )
        if len(answered) < len(pids):
            url = self.client.member.base_url
            raise MemberNodeError(f"failed for {len(failed)} objects", self.member_id, url)
        return len(missing)

    def _is_sane(self, began: datetime) -> bool:
        """True if the member returns the metadata of one of SAMPLES objects that it has listed in this pass."""
        for pid in self.sightings.samples(self.member_id, began, SAMPLES):
            try:
                self.client.system_metadata(pid)
            except MemberNodeError:
                continue
            return True
        return False


class _Answers:
    """Requests the metadata of objects in parallel, and groups their pids by the answer: `gone`, `there`, `failed`.

    After `give_up_after` failures in a row the others are `not asked`.
    """

    def __init__(self, client: MemberNode, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._given_up = Event()
        self._lock = Lock()
        self._in_a_row = 0

    def of(self, pids: Sequence[str]) -> dict[str, list[str]]:
        answers: dict[str, list[str]] = defaultdict(list)
        with ThreadPoolExecutor(self._settings.connections, thread_name_prefix="gone") as pool:
            for pid, answer in zip(pids, pool.map(self._ask, pids), strict=True):
                answers[answer].append(pid)
        return answers

    def _ask(self, pid: str) -> str:
        if self._given_up.is_set():
            return "not asked"
        answer = self._answer(pid)
        with self._lock:
            self._in_a_row = self._in_a_row + 1 if answer == "failed" else 0
            if self._in_a_row >= self._settings.give_up_after:
                self._given_up.set()
        return answer

    def _answer(self, pid: str) -> str:
        try:
            self._client.system_metadata(pid)
        except MemberRefused as refusal:
            return "gone" if refusal.status in NOT_THERE else "there"  # 401, 403: it exists, and may not be read
        except MemberNodeError:
            return "failed"
        return "there"
