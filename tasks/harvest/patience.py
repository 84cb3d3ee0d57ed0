"""How long one run waits for a member that fell silent.

A member that was delivering a moment ago is given a few seconds: at most MOST, and not longer in all than it delivered,
MOST of them in advance. One that delivered nothing since its last silence is given none. So a member that comes and
goes makes progress within one run, and a dead one keeps no slot.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from tasks.member_node.client import Busy, Failing, MemberNode, MemberNodeError, MemberTimedOut, MemberUnreachable

Answer = TypeVar("Answer")

MOST = 5.0
DOUBTFUL = (Busy, Failing, MemberTimedOut, MemberUnreachable)
"""Errors after which nobody knows whether the member is there. The others are answers of a member that lives."""
_PAUSE, _LONGEST_PAUSE = 0.05, 0.4


class Patience:
    """Serves one run."""

    def __init__(self, client: MemberNode, within: float) -> None:
        """`within`: seconds in which a member that lives answers a ping."""
        self._client, self._within = client, within
        self._left = MOST
        self._delivered: float | None = None
        """When it delivered last; None: not since its last silence."""
        self.ever = False
        """It has delivered something within this run."""

    def delivered(self) -> None:
        now = time.monotonic()
        if self._delivered is not None:
            self._left = min(MOST, self._left + now - self._delivered)
        self._delivered = now
        self.ever = True

    def begin(self) -> None:
        """Ask the cheapest question, with little time for the answer. Raises MemberNodeError where there is none."""
        try:
            self._client.ping(self._within)
        except MemberNodeError as error:
            if error.status is None:
                raise

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Ask, and once more after each silence that the member breaks in time. Raises MemberNodeError."""
        while True:
            try:
                answer = question()
            except DOUBTFUL as error:
                if self._delivered is None:
                    raise
                try:
                    again = self.outlast(error)
                except MemberNodeError:
                    raise error from None
                if not again:
                    raise
            else:
                self.delivered()
                return answer

    def outlast(self, error: MemberNodeError) -> bool:
        """Return once the member answers. False: it was there all the time, so that the error is no fault of a silence.

        Raises the MemberNodeError of the last ping where it stays silent for too long.
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
