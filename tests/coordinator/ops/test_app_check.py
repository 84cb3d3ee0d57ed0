"""`coordinator doctor -A app` reads an app before it is started, and says what will not work and what differs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chord, group

from coordinator import Coordinator, Entry
from coordinator.core.finding import Level
from coordinator.ops.app_check import of_app
from tests.harness.redis import RedisServer


@pytest.fixture
def app(redis_server: RedisServer, prefix: str) -> Iterator[Any]:
    app: Any = Celery("shop", broker="memory://", set_as_current=False)
    Coordinator(app, url=redis_server.url(0), prefix=prefix)
    yield app
    app.coordinator.close()
    app.close()


def slow_body() -> None: ...


def levels_of(app: Any, units: Path) -> dict[str, Level]:
    return {str(one).partition(" ")[2]: one.level for one in of_app(app, units)}


def test_tasks_that_a_job_cannot_run_are_named(app: Any, tmp_path: Path) -> None:
    @app.task(name="shop.slow", shared=False, rate_limit="1/m", coordinate={"key": "k"})
    def slow() -> None: ...

    @app.task(name="shop.plain", shared=False, rate_limit="1/m")
    def plain() -> None: ...

    @app.task(name="shop.parts", shared=False, bind=True, coordinate={"key": "k"})
    def parts(self: Any) -> None:
        raise self.replace(group(slow.s()))

    levels = levels_of(app, tmp_path)
    for name in ("shop.slow", "shop.plain"):
        kept = f"its jobs keep the rate limit 1/m over the fleet, as quota rate_limit/{name}"
        assert levels[f"[app.rate-limit] (task {name}) {kept}"] == "info"
    replaces = "self.replace is refused if a task of its group is in the job's lane"
    assert levels[f"[app.replace] (task shop.parts) {replaces}"] == "info"


def test_what_a_task_does_that_its_own_lane_forbids_is_named_and_a_wrong_option(app: Any, tmp_path: Path) -> None:
    slow = app.task(slow_body, name="shop.slow", shared=False)

    @app.task(name="shop.named", shared=False, bind=True, coordinate={"key": "k"})
    def named(self: Any) -> None:
        parts = group(slow.s(), slow.s())
        self.replace(parts)

    @app.task(name="shop.returned", shared=False, coordinate={"key": "k"})
    def returned() -> Any:
        parts = chord([slow.s()], slow.s())
        return parts.apply_async()

    @app.task(name="shop.waits", shared=False, coordinate={"key": "k"})
    def waits() -> Any:
        handle = slow.delay()
        return handle.get()

    @app.task(name="shop.quiet", shared=False, bind=True, coordinate={"key": "k"})
    def quiet(self: Any) -> None:
        self.retry(throw=False)

    @app.task(name="shop.fine", shared=False, bind=True, coordinate={"key": "k"})
    def fine(self: Any, settings: dict[str, Any]) -> Any:
        group(slow.s()).delay()
        self.retry(countdown=settings.get("delay"))
        return settings.get("result")

    @app.task(name="shop.mistyped", shared=False, coordinate={"kye": "k"})
    def mistyped() -> None: ...

    levels = levels_of(app, tmp_path)
    (wrong,) = [what for what in levels if "app.coordinate" in what]
    assert "(task shop.mistyped) wrong option `coordinate`: unknown option 'kye' (did you mean 'key'?)" in wrong
    for task, code in (
        ("named", "app.replace"), ("returned", "app.return"), ("waits", "app.get"), ("quiet", "app.retry"),
    ):  # fmt: skip
        assert [what for what in levels if what.startswith(f"[{code}] (task shop.{task}) ")], levels
    assert not [what for what in levels if "shop.fine" in what]


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

    levels = levels_of(app, tmp_path)
    assert levels["[app.schedule] (entry keyed) this app has no task 'shop.nobody'"] == "error"
    assert levels["[app.schedule] (entry plain) this app has no task 'shop.nobody'"] == "warning"
    for name, message in (
        ("typo", "no beat sends it: there is no field 'kye'"),
        ("lacks", "missing 1 required positional argument: 'order'"),
        ("keyed lacks", "missing 1 required positional argument: 'order'"),
        ("no json", "has no JSON form"),
        ("option", "unexpected option 'prio'"),
    ):
        assert [what for what in levels if f"(entry {name}) " in what and message in what], (name, levels)
    assert not [what for what in levels if "(entry right)" in what]
    for name, task in (("stored", "shop.nope"), ("good", "shop.ship")):
        app.coordinator.entries.put(Entry(name, 60, task, args=[1]))
    levels = levels_of(app, tmp_path)
    gone = "[app.schedule] (entry stored) neither this app nor a living node has its task 'shop.nope'"
    assert (levels[gone], [what for what in levels if "(entry good)" in what]) == ("warning", [])
    app.conf.beat_schedule = ["a list"]
    assert (
        levels_of(app, tmp_path)["[app.schedule] (beat_schedule) it is not a table of entries by name: ['a list']"]
        == "error"
    )


def test_entries_of_a_function_that_cannot_be_sent_are_named_and_one_that_cannot_be_read(
    app: Any, tmp_path: Path
) -> None:
    def rows() -> tuple[str, list[Any]]:
        return "1", [Entry("bad", "every so often", "celery.ping"), Entry("good", 60, "celery.backend_cleanup"), "none"]

    def away() -> tuple[str, list[Entry]]:
        raise ConnectionError("the database is away")

    for source in (rows, away):
        app.coordinator.schedule_source(source)
    found = list(of_app(app, tmp_path))
    [bad, none] = [one for one in found if one.level == "error"]
    assert (bad.thing, none.thing) == ("entry bad", "entry 'none'")
    assert bad.message.startswith("no beat sends it: ")
    assert bad.fix.startswith("fix it in tests.coordinator.ops.test_app_check.")
    [unread] = [one for one in found if one.thing.startswith("source ")]
    assert unread.thing.endswith(".away")
    assert unread.message == "it cannot be read here: ConnectionError: the database is away"


def test_units_of_systemd_that_stop_all_processes_at_once_are_named(app: Any, tmp_path: Path) -> None:
    (tmp_path / "worker.service").write_text("[Service]\nExecStart=/bin/celery -A shop worker\n")
    (tmp_path / "right.service").write_text("[Service]\nExecStart=/bin/celery -A shop worker\nKillMode=mixed\n")
    (tmp_path / "other.service").write_text("[Service]\nExecStart=/bin/true\n")
    unit = "[app.unit] (unit worker.service) systemd stops all processes of the worker at once, jobs too"
    assert levels_of(app, tmp_path) == {unit: "warning"}


def test_doctor_imports_the_app_s_modules_and_names_one_that_fails(
    app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_tasks.py").write_text("raise RuntimeError('no such thing')")
    app.conf.imports = ["broken_tasks"]
    findings = {finding.code: finding for finding in app.coordinator.doctor()}
    assert findings["app.import"].message == "a module cannot be imported: RuntimeError: no such thing"
    assert findings["app.import"].level == "error"
    assert "redis.persistence" in findings
