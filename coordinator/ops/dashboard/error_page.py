"""Turns an exception into the status, title and text of an error page."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from coordinator import errors
from coordinator.ops.extension import Extension, plainly

logger = logging.getLogger(__name__)


class TooManyActs(errors.CoordinatorError):
    """Raised where as many acts run as may run at the same time."""


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """The content of an error page. `again`: True if the page is to reload by itself, since the error may pass."""

    status: int
    title: str
    text: str
    again: bool = False


def error_page_of(error: Exception, extensions: Iterable[Extension] = ()) -> ErrorPage:
    """Return the content of the error page for an exception. Unknown exceptions are logged.

    `extensions`: may turn exceptions of their own into ones whose text is for people.
    """
    error = error if isinstance(error, TimeoutError) else plainly(error, extensions)
    text = str(error)
    if isinstance(error, errors.StoreRefused):
        return ErrorPage(503, "Redis refused", text, True)
    if isinstance(error, ConnectionError):  # StoreUnavailable, or an extension's server
        return ErrorPage(503, "Redis does not answer" if text.startswith("Redis ") else "Out of reach", text, True)
    if isinstance(error, TimeoutError):
        return ErrorPage(503, "This page took too long", "It was given up, so that it slows no job. Filter for less.")
    if isinstance(error, errors.UnknownJob | errors.UnknownEntry | errors.UnknownQuota | LookupError):
        return ErrorPage(404, "Not there", text)
    if isinstance(error, errors.Forbidden):
        return ErrorPage(403, "You may not do this", text)
    if isinstance(error, TooManyActs):
        return ErrorPage(429, "Too many acts at once", text)
    if isinstance(error, errors.CoordinatorError):
        return ErrorPage(400, "That does not work", text)
    logger.error("A page of the dashboard failed", exc_info=error)
    return ErrorPage(500, "This page failed", "The log of the dashboard says why.")
