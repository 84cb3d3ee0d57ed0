"""Bounds the time for which a run waits for a member that fell silent.

A run waits up to MOST seconds for a member that was delivering a moment ago. The waits of a run use up a credit, which
begins at MOST and grows with the time in which the member delivers. There is no wait for a member that delivered
nothing since its last silence. So a member that comes and goes makes progress within one run, and a dead one keeps no
slot.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from tasks.member_node.client import Busy, Failing, MemberNode, MemberNodeError, MemberTimedOut, MemberUnreachable
from tasks.settings import Settings

Answer = TypeVar("Answer")

MOST = 5.0
DOUBTFUL = (Busy, Failing, MemberTimedOut, MemberUnreachable)
"""Errors that leave open whether the member is up. All others are answers of a member that is."""
_PAUSE, _LONGEST_PAUSE = 0.05, 0.4


class MemberPatience:
    """The patience of one run."""

    def __init__(self, client: MemberNode, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._within = settings.connect_timeout  # seconds in which a member that is up answers a ping
        self._left = MOST
        self._delivered: float | None = None
        """When the member delivered last; None: not since its last silence."""
        self.delivered_once = False
        """In this run."""

    def delivered(self) -> None:
        now = time.monotonic()
        if self._delivered is not None:
            self._left = min(MOST, self._left + now - self._delivered)
        self._delivered = now
        self.delivered_once = True

    def begin(self) -> None:
        """Ping the member, with little time for the answer. Raises MemberNodeError where there is none."""
        try:
            self._client.ping(self._within)
        except MemberNodeError as error:
            if error.status is None:
                raise

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Ask, and again after each silence that ends in time. Raises MemberNodeError.

        A member that answers with 5xx is asked a few times.
        """
        tries, pause = self._settings.tries, self._settings.try_pause
        while True:
            try:
                answer = question()
            except DOUBTFUL as error:
                if self._is_back(error):
                    continue
                tries -= 1
                if not tries or not isinstance(error, Failing) or error.status == 501:
                    raise
                self._client.pause(pause)
                pause *= 2
            else:
                self.delivered()
                return answer

    def _is_back(self, error: MemberNodeError) -> bool:
        """True if the member was silent and answers again. Raises the error where it stays silent."""
        try:
            return self._delivered is not None and self.outlast(error)
        except MemberNodeError:
            raise error from None

    def outlast(self, error: MemberNodeError) -> bool:
        """Wait until the member answers a ping. False: it answered at once, so no silence caused the error.

        Raises the MemberNodeError of the last ping where the member stays silent for too long.
        """
        broken = isinstance(error, MemberUnreachable) and self._delivered is not None
        deadline = time.monotonic() + (0.0 if self._delivered is None else self._left)
        silent, pause, within = False, _PAUSE, self._within
        while not self._answers(within, last=time.monotonic() + pause >= deadline):
            self._delivered, silent = None, True
            self._client.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            within = min(self._within, max(_LONGEST_PAUSE, deadline - time.monotonic()))
        if silent:
            self._left = max(0.0, deadline - time.monotonic())
        if broken:
            self._delivered = None
        return silent or broken

    def _answers(self, within: float, last: bool) -> bool:
        try:
            self._client.ping(within)
        except DOUBTFUL as error:
            if error.status == 501:  # it has no ping
                return True
            if last:
                raise
            return False
        except MemberNodeError:
            return True
        return True
