"""Bounds the time for which a run of a sync waits for a member that has stopped answering (that fell silent).

A run waits up to MOST seconds for a member that delivered a moment ago. The waits of a run use up a budget of seconds,
which begins at MOST and grows, up to MOST, with the time in which the member delivers. For a member that has delivered
nothing since its last silence the run does not wait. So a member that comes and goes makes progress within one run, and
a dead member keeps no slot.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from tasks.member_node.client import (
    AsksToWait,
    Busy,
    Failing,
    MemberNode,
    MemberNodeError,
    MemberTimedOut,
    MemberUnreachable,
)
from tasks.settings import Settings

Answer = TypeVar("Answer")

MOST = 5.0
INCONCLUSIVE = (Busy, Failing, MemberTimedOut, MemberUnreachable)
"""Errors after which the member may be up or down. All other errors are answers of a member that is up."""
_PAUSE, _LONGEST_PAUSE = 0.05, 0.4


class MemberPatience:
    """Makes requests to a member during one run, and waits for the member while it does not answer, in bounds."""

    def __init__(self, client: MemberNode, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._within = settings.connect_timeout  # seconds for the answer to a ping
        self._left = MOST
        self._delivered: float | None = None
        """When the member last delivered, by `time.monotonic`; None: not since its last silence."""
        self.delivered_once = False
        """True if the member has delivered anything in this run."""

    def delivered(self) -> None:
        """Note that the member has just answered with data."""
        now = time.monotonic()
        if self._delivered is not None:
            self._left = min(MOST, self._left + now - self._delivered)
        self._delivered = now
        self.delivered_once = True

    def begin(self) -> None:
        """Ping the member at the start of a run. Raises MemberNodeError where there is no answer at all."""
        try:
            self._client.ping(self._within)
        except MemberNodeError as error:
            if error.status is None or isinstance(error, AsksToWait):
                raise

    def call(self, request: Callable[[], Answer]) -> Answer:
        """Make a request, and repeat it whenever the member fell silent and answers again in time.

        An answer of 5xx is retried up to `settings.tries` times. Raises MemberNodeError after the last try.
        """
        tries, pause = self._settings.tries, self._settings.try_pause
        while True:
            try:
                answer = request()
            except INCONCLUSIVE as error:
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
        """True if the member was silent and answers again. Raises `error`, that of the request, if it stays silent."""
        try:
            return self._delivered is not None and self.outlast(error)
        except AsksToWait:
            raise
        except MemberNodeError:
            raise error from None

    def outlast(self, error: MemberNodeError) -> bool:
        """Wait until the member answers a ping. `error`: why a request failed before.

        Returns True if the member was silent, so that the request is worth a repetition; False if it answered at once.
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
        except INCONCLUSIVE as error:
            if error.status == 501:  # the member is up, and does not implement ping
                return True
            if last:
                raise
            return False
        except AsksToWait:
            raise
        except MemberNodeError:
            return True
        return True
