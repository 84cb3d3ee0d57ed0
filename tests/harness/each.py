"""One test over many cases. Each process collects each test: thousands that take a millisecond cost minutes so."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def each(cases: Callable[[], Iterable[T]], name: Callable[[T], str] = str) -> Callable[[Callable[[T], None]], object]:
    """The test tries each case, and fails with the names and errors of all that fail. `cases`: asked when it runs."""

    def decorate(test: Callable[[T], None]) -> Callable[[], None]:
        def whole() -> None:
            found, failed = list(cases()), []
            for case in found:
                try:
                    test(case)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(f"{name(case)}: {type(error).__name__}: {error}")
            assert found, "there are no cases"
            assert not failed, "\n".join([f"{len(failed)} of {len(found)} cases:", *failed])

        whole.__name__, whole.__doc__, whole.__module__ = test.__name__, test.__doc__, test.__module__
        return whole

    return decorate
