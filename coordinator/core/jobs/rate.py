"""Reads rates: `100/m`, `5/10s`, or a number of starts a second, as Celery's `rate_limit` has them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from coordinator.core.jobs.validation import shown
from coordinator.errors import InvalidJob

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(\d*)(ms|s|m|h|d))?")
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST = 10**9
_LONGEST = 366 * 86_400_000  # ms


class Rate(NamedTuple):
    """At most `units` start in `period` ms."""

    units: int
    period: int

    def __str__(self) -> str:
        for unit in ("d", "h", "m", "s"):
            number, rest = divmod(self.period, _MS[unit])
            if number and not rest:
                return f"{self.units}/{number if number > 1 else ''}{unit}"
        return f"{self.units}/{self.period}ms"


def read_rate(value: object) -> Rate:
    """Raises InvalidJob for what is no rate above 0."""
    match = None if isinstance(value, bool) else _RATE.fullmatch(str(value).strip())
    if match is None or not isinstance(value, str | int | float):
        raise InvalidJob(f"rate {shown(value)}: write such as 100/m, 5/s or 1/10s (s, m, h, d)")
    number, spans, unit = match.groups()
    count, period = Fraction(number), Fraction(int(spans or 1) * _MS[unit or "s"])
    if count > 0 and count.denominator > 1:  # half a unit a minute is one in two minutes
        period, count = period * count.denominator, Fraction(count.numerator)
    if not 0 < count <= _MOST or not 0 < period <= _LONGEST:
        raise InvalidJob(f"rate {shown(value)}: a number above 0, in at most a year")
    return Rate(int(count), int(period))
