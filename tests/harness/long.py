"""Some tests have a long form, with more of everything: `LONG=1 make test ARGS=tests/…` runs that."""

import os
from typing import TypeVar

T = TypeVar("T")


def long(usual: T, longer: T) -> T:
    return longer if os.environ.get("LONG") else usual
