"""Turns an error into what a page says about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from coordinator import errors

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trouble:
    """`again`: the page asks again by itself."""

    status: int
    title: str
    text: str
    again: bool = False


def trouble_of(error: Exception) -> Trouble:
    text = str(error)
    if isinstance(error, errors.StoreUnavailable):
        return Trouble(503, "Redis does not answer", text, True)
    if isinstance(error, errors.StoreRefused):
        return Trouble(503, "Redis refused", text, True)
    if isinstance(error, TimeoutError):
        return Trouble(503, "This page took too long", "It was given up, so that it slows no job. Narrow it.")
    if isinstance(error, errors.UnknownJob | errors.UnknownEntry | LookupError):
        return Trouble(404, "Not there", text)
    if isinstance(error, errors.Forbidden):
        return Trouble(403, "You may not do this", text)
    if isinstance(error, errors.CoordinatorError):
        return Trouble(400, "That does not work", text)
    logger.error("A page failed", exc_info=error)
    return Trouble(500, "This page failed", "The log of the dashboard says why.")
