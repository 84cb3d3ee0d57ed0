"""A Redis that is far away: no page and no command asks many times, one request behind the other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordinator import Coordinator
from coordinator.diagnosis.status import status_of
from coordinator.metrics.collector import Collector
from coordinator.store.connections import Connections
from tests.coordinator.dashboard.conftest import Visit
from tests.coordinator.dashboard.stage import PAGES, Stage

MOST = 30
MORE = {"/": 50, "status": 40, "doctor": 35}  # each reads all that there is to be looked at

COMMANDS: dict[str, Callable[[Coordinator], object]] = {
    "status": lambda c: status_of(c.store, c.doctor()),
    "doctor": lambda c: c.doctor(),
    "nodes": lambda c: c.nodes(),
    "why --summary": lambda c: c.why_summary(),
    "why --node": lambda c: c.why(node=c.nodes()[0].name),
    "why --key": lambda c: c.why(key=c.contended().longest[0].key),
    "jobs": lambda c: c.jobs(),
    "lanes": lambda c: c.lanes(),
    "metrics": lambda c: list(Collector(c).collect()),
}


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    asked = 0

    def counted(exchange: Callable[..., object], connections: Connections, *args: Any, **options: Any) -> object:
        nonlocal asked
        asked += 1
        return exchange(connections, *args, **options)

    for name in ("ask", "ask_many", "execute", "execute_many"):
        exchange = getattr(Connections, name)
        monkeypatch.setattr(Connections, name, lambda *args, _of=exchange, **options: counted(_of, *args, **options))

    @contextmanager
    def at_most(most: int) -> Iterator[None]:
        before = asked
        yield
        assert asked - before <= most

    return at_most


@pytest.mark.parametrize("path", PAGES)
def test_a_page_asks_redis_a_bounded_number_of_times(
    stage: Stage, visit: Visit, path: str, round_trips: Callable[[int], Any]
) -> None:
    browser = visit(stage.coordinator)
    with round_trips(MORE.get(path, MOST)):
        assert browser.get(path).status_code == 200


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_asks_redis_a_bounded_number_of_times(
    stage: Stage, name: str, round_trips: Callable[[int], Any]
) -> None:
    with round_trips(MORE.get(name, MOST)):
        COMMANDS[name](stage.coordinator)
