"""Turns an error into what a page says about it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from coordinator import errors
from coordinator.extension import Extension, plainly

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """`again`: the page asks again by itself."""

    status: int
    title: str
    text: str
    again: bool = False


def error_page_of(error: Exception, extensions: Iterable[Extension] = ()) -> ErrorPage:
    """`extensions`: they say what an error of theirs means to people."""
    error = error if isinstance(error, TimeoutError) else plainly(error, extensions)
    text = str(error)
    if isinstance(error, errors.StoreRefused):
        return ErrorPage(503, "Redis refused", text, True)
    if isinstance(error, ConnectionError):  # StoreUnavailable, or what an extension reads
        return ErrorPage(503, "Redis does not answer" if text.startswith("Redis ") else "Out of reach", text, True)
    if isinstance(error, TimeoutError):
        return ErrorPage(503, "This page took too long", "It was given up, so that it slows no job. Narrow it.")
    if isinstance(error, errors.UnknownJob | errors.UnknownEntry | LookupError):
        return ErrorPage(404, "Not there", text)
    if isinstance(error, errors.Forbidden):
        return ErrorPage(403, "You may not do this", text)
    if isinstance(error, errors.CoordinatorError):
        return ErrorPage(400, "That does not work", text)
    logger.error("A page failed", exc_info=error)
    return ErrorPage(500, "This page failed", "The log of the dashboard says why.")
