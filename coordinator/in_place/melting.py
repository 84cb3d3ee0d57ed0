"""The texts of jobs that melt into one, in memory: as functions/rules/coalesce.lua has it."""

from __future__ import annotations

from kombu.utils.json import dumps, loads

from coordinator.in_place.lines import Record

_TEXTS, _BYTES = 10_000, 1024 * 1024  # united texts have no more


def unite(one: Record, other: Record) -> None:
    """None, everything, wins; too many texts become everything."""
    if "unite" not in other:
        return
    both = loads(one["unite"])
    for name, texts in loads(other["unite"]).items():
        has = both[name]
        many = has is None or texts is None or len(has) + len(texts) > _TEXTS
        both[name] = None if many else list(dict.fromkeys([*has, *texts]))
    text = dumps(both)
    one["unite"] = text if len(text) <= _BYTES else dumps(dict.fromkeys(both))
