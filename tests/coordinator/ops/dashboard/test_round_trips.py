"""A Redis that is far away: no page and no command asks many times, one request behind the other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordinator import Coordinator
from coordinator.core.store.connections import Connections
from coordinator.ops.diagnosis.status import status_of
from coordinator.ops.metrics.collector import Collector
from tests.coordinator.ops.dashboard.conftest import Visit
from tests.coordinator.ops.dashboard.stage import PAGES, Stage

MOST = 30
# What asks much asks it side by side. Where the doctor has found something, it looks a second time.
LESS = {"/": 16, "status": 20, "doctor": 12, "why --summary": 8}

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

    for name in ("ask", "ask_many", "execute", "replies"):
        exchange = getattr(Connections, name)
        monkeypatch.setattr(Connections, name, lambda *args, _of=exchange, **options: counted(_of, *args, **options))

    @contextmanager
    def at_most(most: int) -> Iterator[None]:
        before = asked
        yield
        assert asked - before <= most

    return at_most


def test_the_overview_of_a_sound_installation_asks_redis_ten_times(
    stage: Stage, visit: Visit, round_trips: Callable[[int], Any]
) -> None:
    browser = visit(stage.coordinator)
    with round_trips(10):
        page = browser.get("/").text
    assert "Longest lines" in page, "the second part, too"


@pytest.fixture
def broken(stage: Stage) -> Iterator[Stage]:
    """The doctor looks a second time: a job counts as held, and is none."""
    client: Any = stage.coordinator.store._client
    held = stage.coordinator.store.key("state", "held")
    client.sadd(held, "nobody")
    yield stage
    client.srem(held, "nobody")


def test_the_overview_asks_redis_a_bounded_number_of_times_also_where_much_is_wrong(
    broken: Stage, visit: Visit, round_trips: Callable[[int], Any]
) -> None:
    browser = visit(broken.coordinator)
    with round_trips(LESS["/"]):
        page = browser.get("/").text
    assert "index.ghost" in page


@pytest.mark.parametrize("path", PAGES)
def test_a_page_asks_redis_a_bounded_number_of_times(
    stage: Stage, visit: Visit, path: str, round_trips: Callable[[int], Any]
) -> None:
    browser = visit(stage.coordinator)
    with round_trips(LESS.get(path, MOST)):
        assert browser.get(path).status_code == 200


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_asks_redis_a_bounded_number_of_times(
    stage: Stage, name: str, round_trips: Callable[[int], Any]
) -> None:
    with round_trips(LESS.get(name, MOST)):
        COMMANDS[name](stage.coordinator)
