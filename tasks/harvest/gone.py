"""Finds the objects that a member has deleted, after a complete pass over its listing.

An object is gone only if the pass did not list it and the member answers 404 or 410 for its system metadata. A member
may break in many ways, so:

* The pass must have seen more than none of the objects. The pass notes each object that it sees, in the database,
  under the instant at which it began. So an interrupted pass, resumed by another process, is one pass.
* It must have seen as many as the member itself counts. Or the member counts more by the same number as after the pass
  before: it always does, and an index that is being built does not.
* Before objects are noted as gone, the member must show the metadata of an object that it lists. So a server that
  answers 404 for everything loses nothing.
* A pass asks for QUESTIONS objects at most. It begins with those that no pass has seen for longest. Objects that are
  there after all, or fail, are noted as seen. So the next pass goes on behind them.

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

from tasks import instants
from tasks.catalog.sightings import Sightings
from tasks.harvest.patience import MemberPatience
from tasks.member_node.client import NOT_THERE, Failing, MemberNode, MemberNodeError, MemberRefused
from tasks.settings import Settings

logger = logging.getLogger(__name__)

QUESTIONS = 10_000
"""The most objects that a pass asks for."""
PORTION = 200
"""The number of answers that are checked and noted together."""
WITNESSES = 3


@dataclass
class GoneSearch:
    """The search of one pass. `check` raises for a lost lease."""

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
        """Note the objects that are gone. Returns how many are new. `until`: the end of the listed window."""
        count = 0
        try:
            total = self._total(until)
            seen = self.sightings.seen(self.member_id, began)
            if not total or not seen:
                return 0
            surplus = max(0, total - seen)
            if self.sightings.surplus(self.member_id, surplus, fence=self.fence) != surplus and surplus:
                logger.info("%s: the pass saw %s objects of %s: none counts as gone", self.member_id, seen, total)
                return 0
            pids = self.sightings.unseen(self.member_id, began, QUESTIONS)
            for start in range(0, len(pids), PORTION):
                count += self._portion(pids[start : start + PORTION], began)
        except MemberNodeError as error:
            logger.warning("the search for deleted objects ended early: %s", error)
        return count

    def _total(self, until: datetime) -> int:
        """The number of objects that the member counts before that instant."""
        try:
            return self.patience.ask(lambda: self.client.objects(instants.NEVER, until, 0, 1)).total
        except (MemberRefused, Failing) as error:
            if error.status not in (400, 501):
                raise
        entries, total, _ = self.patience.ask(
            lambda: self.client.objects(instants.NEVER)
        )  # it accepts no parameter but fromDate
        return total - sum(entry.modified >= until for entry in entries)

    def _portion(self, pids: Sequence[str], began: datetime) -> int:
        """Ask the member for each of these objects, note those that are gone, and return their number.

        Raises MemberNodeError once the answers show that the member does not work, or is too slow.
        """
        answers = _Answers(self.client, self.settings).of(pids)
        missing, failed = answers["gone"], answers["failed"]
        if missing and not self._is_sane(began):
            url = self.client.member.base_url
            raise MemberNodeError("does not show the objects that it lists, either", self.member_id, url)
        self.check()
        answered = [*missing, *answers["there"], *failed]
        self.sightings.judge(
            self.member_id, missing=missing, asked=answered, began=began, fence=self.fence, now=self.clock()
        )
        if len(answered) < len(pids):
            url = self.client.member.base_url
            raise MemberNodeError(f"failed for {len(failed)} objects", self.member_id, url)
        return len(missing)

    def _is_sane(self, began: datetime) -> bool:
        """True if the member still answers well: it shows one of the objects that it listed."""
        for pid in self.sightings.witnesses(self.member_id, began, WITNESSES):
            try:
                self.client.system_metadata(pid)
            except MemberNodeError:
                continue
            return True
        return False


class _Answers:
    """Asks for pids and groups them: gone, there, failed. Stops after `give_up_after` failures in a row."""

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
            return "gone" if refusal.status in NOT_THERE else "there"  # 401 and 403: the service may not read it
        except MemberNodeError:
            return "failed"
        return "there"
