"""Closes HTTP connections that send no complete request in time, so that idle clients do not use up uvicorn's limit of
connections.
"""

from __future__ import annotations

from asyncio import Transport
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

WITHIN = 5.0  # seconds between two checks of a connection: closed if no request has begun since the last


class Prompt(H11Protocol):
    """uvicorn's HTTP/1.1 protocol for a server without a proxy in front: closes a connection if no complete request
    arrives within 5 to 10 seconds.
    """

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(WITHIN, self._check, None)

    def _check(self, before: Any) -> None:
        """Close the connection if no new request has begun since the last check, 5 seconds ago, and none is being
        served.

        `before`: the request cycle of uvicorn at the last check; None: no request had arrived.
        """
        now = self.cycle
        is_served = now is not None and not (now.response_complete or now.more_body)
        if self.transport.is_closing():
            return
        if now is before and not is_served:
            self.transport.close()
        else:
            self.loop.call_later(WITHIN, self._check, now)
