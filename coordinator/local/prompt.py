"""Has uvicorn close connections that send no request: idle ones shut nobody out."""

from __future__ import annotations

from asyncio import Transport
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

WITHIN = 5.0  # seconds for the whole of a request to come, twice that where another was answered before


class Prompt(H11Protocol):
    """A connection of a server that is not hidden behind a proxy."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(WITHIN, self._look, None)

    def _look(self, before: Any) -> None:
        """`before`: the request that came last when this looked last."""
        now = self.cycle
        is_served = now is not None and not (now.response_complete or now.more_body)
        if self.transport.is_closing():
            return
        if now is before and not is_served:
            self.transport.close()
        else:
            self.loop.call_later(WITHIN, self._look, now)
