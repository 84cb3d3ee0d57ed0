"""`coordinator check` reads an app before it is started, and says what will not work and what differs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, group

from coordinator import Coordinator
from coordinator.cli.check import findings_of
from tests.harness.redis import RedisServer


@pytest.fixture
def app(redis_server: RedisServer, prefix: str) -> Iterator[Any]:
    app: Any = Celery("shop", broker="memory://", set_as_current=False)
    Coordinator(app, url=redis_server.url(0), prefix=prefix)
    yield app
    app.coordinator.close()
    app.close()


def found(app: Any, units: Path) -> dict[str, bool]:
    return {one.what.partition(";")[0]: one.works for one in findings_of(app, app.coordinator.store, units)}


def test_tasks_that_a_job_cannot_run_are_named(app: Any, tmp_path: Path) -> None:
    @app.task(name="shop.slow", shared=False, rate_limit="1/m", coordinate={"key": "k"})
    def slow() -> None: ...

    @app.task(name="shop.plain", shared=False, rate_limit="1/m")
    def plain() -> None: ...

    @app.task(name="shop.parts", shared=False, bind=True, coordinate={"key": "k"})
    def parts(self: Any) -> None:
        raise self.replace(group(slow.s()))

    told = found(app, tmp_path)
    assert told["task shop.slow: its rate limit 1/m is kept by no job"] is False
    assert told["task shop.plain: its rate limit 1/m is kept by no job"] is True
    assert told["task shop.parts: replace by a group or chord is refused where a part is in its own lane"] is True


def test_entries_that_cannot_be_sent_are_named(app: Any, tmp_path: Path) -> None:
    app.conf.beat_schedule = {
        "keyed": {"task": "shop.nobody", "schedule": 60, "key": "k"},
        "plain": {"task": "shop.nobody", "schedule": 60},
        "typo": {"task": "shop.nobody", "schedule": 60, "kye": "k"},
        "lacks": {"task": "shop.ship", "schedule": 60},
        "keyed lacks": {"task": "shop.ship", "schedule": 60, "key": "k"},
        "no json": {"task": "shop.ship", "schedule": 60, "args": [object()]},
        "option": {"task": "shop.ship", "schedule": 60, "args": [1], "key": "k", "submit": {"prio": 1}},
        "right": {"task": "shop.ship", "schedule": 60, "args": [1]},
    }

    @app.task(name="shop.ship", shared=False)
    def ship(order: int) -> None: ...

    told = found(app, tmp_path)
    assert told["schedule entry 'keyed': this app has no task 'shop.nobody'"] is False
    assert told["schedule entry 'plain': this app has no task 'shop.nobody'"] is True
    assert told["schedule entry 'typo': there is no field 'kye'"] is False
    for name, said in (
        ("lacks", "missing 1 required positional argument: 'order'"),
        ("keyed lacks", "missing 1 required positional argument: 'order'"),
        ("no json", "has no JSON form"),
        ("option", "unexpected option 'prio'"),
    ):
        assert [what for what in told if f"entry '{name}': " in what and said in what], (name, told)
    assert not [what for what in told if "'right'" in what]
    app.conf.beat_schedule = ["a list"]
    assert found(app, tmp_path)["beat_schedule is no table by names: ['a list']"] is False


def test_units_of_systemd_and_the_settings_of_redis_are_read(app: Any, tmp_path: Path) -> None:
    (tmp_path / "worker.service").write_text("[Service]\nExecStart=/bin/celery -A shop worker\n")
    (tmp_path / "right.service").write_text("[Service]\nExecStart=/bin/celery -A shop worker\nKillMode=mixed\n")
    (tmp_path / "other.service").write_text("[Service]\nExecStart=/bin/true\n")
    told = found(app, tmp_path)
    assert [what.partition(":")[0] for what in told if what.startswith("unit")] == ["unit worker.service"]
    assert "Redis keeps nothing on disk, so a restart loses all jobs" in told
    assert all(told.values())
