"""Benchmarks. Each script answers one question, with figures beside those of its peers. `make bench`; see README.md."""

import os
from typing import TypeVar

T = TypeVar("T")


def amount(usual: T, smallest: T) -> T:
    """`smallest` if BENCH_SMALLEST is set: then all parts of a benchmark run, and its figures mean nothing."""
    return smallest if os.environ.get("BENCH_SMALLEST") else usual
