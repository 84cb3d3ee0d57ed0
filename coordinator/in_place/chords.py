"""Chords of keyed tasks in place: the parts of a header are counted here, and the last one has the body called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from celery import Celery, states
from celery.app.task import Context
from celery.canvas import Signature, _chain
from celery.exceptions import ChordError


class Chords:
    """Counts as a result backend does. `following`: within it, what is published is called in place."""

    def __init__(self, app: Celery, following: Callable[[], AbstractContextManager[None]]) -> None:
        self._app = app
        self._following = following
        self._sizes: dict[str, int] = {}
        self._parts: dict[str, dict[int, tuple[str, object]]] = {}

    def set_size(self, group: str, size: int) -> None:
        """Celery knows it before it publishes the last part."""
        self._sizes[group] = size

    def count(self, request: Context, state: str, result: object, **_: object) -> None:
        """A part has ended."""
        group = request.group
        parts = self._parts.setdefault(group, {})
        parts[len(parts) if request.group_index is None else request.group_index] = state, result
        if len(parts) != self._sizes.get(group):
            return
        del self._sizes[group], self._parts[group]
        body = self._app.signature(request.chord)
        ends = [parts[index] for index in sorted(parts)]
        errors = [value for ended, value in ends if ended != states.SUCCESS]
        with self._following():
            if errors:
                self._fail(body, ChordError(f"a part of its header raised {errors[0]!r}"))
            else:
                body.apply_async(([value for _, value in ends],))

    def _fail(self, body: Signature, error: ChordError) -> None:
        """Its error links are called. It may be a part of another chord, which fails, too."""
        last = (body.tasks[-1] if isinstance(body, _chain) else body).options
        request = Context(
            id=last.get("task_id"), task=body.task, args=(), kwargs={}, errbacks=body.options.get("link_error"),
            chord=last.get("chord"), group=last.get("group_id"), group_index=last.get("group_index"), delivery_info={},
        )  # fmt: skip
        self._app.backend.mark_as_failure(request.id, error, request=request, store_result=False)
