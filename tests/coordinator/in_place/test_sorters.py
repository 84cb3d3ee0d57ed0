"""Sorters in place, as users' suites see them: orders are held until the test lets them go."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from celery import Celery

from coordinator import Coordinator, DuplicateOrder, Sorter
from coordinator.in_place.in_place import InPlace
from coordinator.local.redis import free_port

app = Celery("mill", broker=f"redis://127.0.0.1:{free_port()}/0", backend="redis://127.0.0.1:1/0", set_as_current=False)
coordinator = Coordinator(app)
ground: list[str] = []


@app.task(shared=False)
def grind(name: str) -> str:
    ground.append(name)
    return name


@pytest.fixture
def jobs(coordinator_jobs: Callable[[Coordinator], InPlace]) -> InPlace:
    ground.clear()
    return coordinator_jobs(coordinator)


def add(sorter: Sorter, *order_ids: str) -> None:
    for order_id in order_ids:
        sorter.add(order_id, "mill", grind.s(order_id))


def test_orders_are_held_until_the_test_flushes_and_run_sorted(jobs: InPlace) -> None:
    wheat, rye = coordinator.sorter("wheat", order="natural"), coordinator.sorter("rye")
    add(wheat, "10", "9", "2")
    add(rye, "10", "9")
    assert ground == []
    assert wheat.orders() == ("wheat/2", "wheat/9", "wheat/10")
    assert [(held.name, held.collected) for held in coordinator.sorters()] == [("rye", 2), ("wheat", 3)]
    assert coordinator.why("wheat/9") == ["job wheat/9 is held by the sorter 'wheat' until the test flushes it"]
    assert coordinator.cancel("wheat/9") == "cancelled"
    assert coordinator.counts()["collected"] == 4
    jobs.flush("wheat")
    assert ground == ["2", "10"]
    jobs.flush()
    assert ground == ["2", "10", "10", "9"]
    assert [job.state for job in jobs.submitted if job.state != "succeeded"] == ["cancelled"]
    assert coordinator.sorters() == []


def test_an_id_that_is_taken_is_refused_but_not_to_who_asks_again(jobs: InPlace) -> None:
    sorter = coordinator.sorter("wheat")
    for _ in range(2):
        sorter.add("1", "mill", grind.s("1"), token="mine")
    with pytest.raises(DuplicateOrder):
        add(sorter, "1")
    jobs.flush()
    with pytest.raises(DuplicateOrder):
        add(sorter, "1")
    assert ground == ["1"]


def test_files_are_watched_in_place_too(jobs: InPlace, tmp_path: Path) -> None:
    def wanted(path: Path) -> object:
        if path.name == "last":
            stop.set()
        return grind.s(path.name)

    stop = threading.Event()
    for name in ("b", "a", "last"):
        (tmp_path / name).touch()
    coordinator.sorter("wheat").watch(tmp_path, key="mill", signature=wanted, poll=0.01, stop=stop)  # type: ignore[arg-type]
    (tmp_path / "a").unlink()
    stop.clear()
    (tmp_path / "last").write_text("again")
    coordinator.sorter("wheat").watch(tmp_path, key="mill", signature=wanted, poll=0.01, stop=stop)  # type: ignore[arg-type]
    jobs.flush()
    assert ground == ["a", "b", "last", "last"]
