"""Find the objects that a member has deleted, after a complete pass over its listing.

An object is gone where the pass did not list it and the member answers 404 for its system metadata. Nothing else
counts. A member may break in many ways, so:

* The pass must have seen as many objects as the member itself counts, and more than none. The pass notes each object
  that it sees, in the database, under the instant at which it began. So an interrupted pass, resumed by another
  process, is one pass.
* Between its answers and the note that objects are gone, the member must show the metadata of an object that it lists.
  A member whose server answers 404 for everything loses nothing.
* One pass asks so many questions at most. It begins with the objects that no pass has seen for longest, and counts one
  that is there after all, or fails, as seen. So the next pass goes on behind them.

A member that fails for one object after the other ends the search, not the harvest. The next complete pass asks for
the rest.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from threading import Event, Lock

from tasks.catalog.sightings import Sightings
from tasks.member_node import instants
from tasks.member_node.client import Failing, MemberNode, MemberNodeError, MemberRefused
from tasks.settings import Settings

logger = logging.getLogger(__name__)

QUESTIONS = 10_000
"""How many objects one pass asks for."""
PORTION = 200
"""How many answers it takes before it looks whether the member is sane, and notes them."""
WITNESSES = 3


@dataclass
class Search:
    """Serves one pass. `check` raises for a lost lease."""

    client: MemberNode
    sightings: Sightings
    settings: Settings
    fence: int
    check: Callable[[], object]
    clock: Callable[[], datetime]

    @property
    def member_id(self) -> str:
        return self.client.member.identifier

    def gone(self, began: datetime, until: datetime) -> int:
        """How many objects were found to be gone since the last pass. `until`: the end of the listed window."""
        found = 0
        try:
            total = self._total(until)
            seen = self.sightings.seen(self.member_id, began)
            if not total or seen < total:
                logger.info("%s: the pass saw %s objects of %s: none counts as gone", self.member_id, seen, total)
                return 0
            pids = self.sightings.unseen(self.member_id, began, QUESTIONS)
            for start in range(0, len(pids), PORTION):
                found += self._portion(pids[start : start + PORTION], began)
        except MemberNodeError as error:
            logger.warning("the search for deleted objects ended early: %s", error)
        return found

    def _total(self, until: datetime) -> int | None:
        """How many objects the member counts before that instant; None where it does not say."""
        try:
            return self.client.objects(instants.NEVER, until, 0, 1).total
        except (MemberRefused, Failing) as error:
            if error.status not in (400, 501):
                raise
        entries, total = self.client.objects(instants.NEVER)  # it understands nothing but fromDate
        return sum(entry.modified < until for entry in entries) if len(entries) == total else None

    def _portion(self, pids: Sequence[str], began: datetime) -> int:
        """Raises MemberNodeError once the answers show that the member does not work, or is too slow."""
        answers = _Answers(self.client, self.settings).of(pids)
        missing, failed = answers["gone"], answers["failed"]
        if missing and not self._is_sane(began):
            url = self.client.member.base_url
            raise MemberNodeError("does not show the objects that it lists, either", self.member_id, url)
        self.check()
        asked = [*missing, *answers["there"], *failed]
        self.sightings.judge(
            self.member_id, missing=missing, asked=asked, began=began, fence=self.fence, now=self.clock()
        )
        if len(asked) < len(pids):
            url = self.client.member.base_url
            raise MemberNodeError(f"failed for {len(failed)} objects", self.member_id, url)
        return len(missing)

    def _is_sane(self, began: datetime) -> bool:
        """Whether the member shows an object that it lists."""
        for pid in self.sightings.witnesses(self.member_id, began, WITNESSES):
            try:
                self.client.system_metadata(pid)
            except MemberNodeError:
                continue
            return True
        return False


class _Answers:
    """Pids by the member's answer: gone, there, failed. After `give_up_after` failures in a row it asks no more."""

    def __init__(self, client: MemberNode, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._given_up = Event()
        self._lock = Lock()
        self._in_a_row = 0

    def of(self, pids: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        with ThreadPoolExecutor(self._settings.connections, thread_name_prefix="gone") as pool:
            for pid, answer in zip(pids, pool.map(self._ask, pids), strict=True):
                found[answer].append(pid)
        return found

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
            return "gone" if refusal.status == 404 else "there"  # 401 and 403: it is not for us
        except MemberNodeError:
            return "failed"
        return "there"
