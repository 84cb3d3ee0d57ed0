"""The option `coordinate` is checked when the app is finalized, and its keys are made from the arguments of a call."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from celery import Celery, _state, shared_task
from celery.app.task import Task
from django.utils.safestring import SafeString
from kombu.utils.json import dumps, loads

from coordinator import Coordinator, InvalidJob, SettingsError
from coordinator.core.keyed_task.coordinate import read

DEEP: list[object] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("shop", broker="memory://", set_as_current=False)
    Coordinator(app, url="redis://nowhere")
    yield app
    app.close()


def declared(app: Celery, option: Any, **more: Any) -> Any:
    @app.task(name="shop.ship", shared=False, coordinate=option, **more)
    def ship(order_id: Any, *, fast: bool = False) -> None:
        """Ship it."""

    return ship


def keys_of(option: Any, args: Any, kwargs: Any, headers: Any = None) -> tuple[str, ...]:
    keys: tuple[str, ...] = option.keys_of({"args": args, "kwargs": kwargs, "options": {"headers": headers}})
    return keys


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"key": "order/{order}"}, r"\{order\} is no argument of the task; its arguments: order_id, fast"),
        ({"key": "order/{}"}, r"\{\} is no argument"),
        ({"key": "order/{"}, "key 'order/{'"),
        ({"key": "order/{headers}"}, r"\{headers\} is no argument of the task"),
        ({"key": lambda headers: "k"}, "key function .*lambda> must take the arguments of the task, order_id, fast: "),
        ({"key": []}, "empty list"),
        ({"key": 3}, "text, a function of the arguments, or a list"),
        ({"key": lambda order: order}, "key function .*lambda> must take the arguments of the task, order_id, fast: "),
        ({}, "name the key"),
        ({"key": "k", "when_bussy": "skip"}, r"unknown option 'when_bussy' \(did you mean 'when_busy'\?\)"),
        ({"key": "k", "unique_on": ["order_id"]}, "name the arguments in the key"),
        ({"keys": ["order_id"]}, "name the arguments in the key"),
        ({"key": "k", "lock_expiry": 60}, "a lane needs none"),
        ({"key": "k", "timeout": 60}, "a lane needs none"),
        ({"key": "k", "graceful": True}, 'when_busy="skip" gives'),
        ({"key": "k", "raise_on_duplicate": True}, 'on_skip="raise"'),
        ({"key": "k", "unlock_before_run": True}, 'when_busy="defer"'),
        ({"key": "order_id"}, r"one lane for all calls: write '\{order_id\}'"),
        ({"key": ["order_id"]}, r"one lane for all calls: write '\{order_id\}'"),
        ({"key": "k", "when_busy": "sometimes"}, "one of queue, skip, defer"),
        ({"key": ["a", "b"], "when_busy": {"a": "skip"}}, r"name each part of key, and no other: 'a', 'b'"),
        ({"key": ["a", "b"], "when_busy": {"a": "skip", "b": "defer"}}, "when_busy of a key 'defer'"),
        ({"key": "k", "when_busy": ["skip"]}, "one of queue, skip, defer"),
        ({"key": "k", "on_skip": "ignore"}, "one of result, raise"),
        ({"key": "k", "job_id": "one"}, "name task_id at the call"),
        ({"key": "k", "after": ["one"]}, r"name it in submit\(None, task.s\(…\), after=…\)"),
        ({"key": "k", "max_attempts": "3"}, "max_attempts is a whole number"),
        ({"key": "k", "max_attempts": None}, "max_attempts is a whole number"),
        ({"key": "k", "retry_on": [int]}, "types of exceptions"),
        ({"key": "k", "rollback": "undo"}, "signature"),
        ({"key": "k", "exclusive": "some"}, "exclusive is True or False"),
        ({"key": "k", "needs": "gpu"}, "needs is a list of texts"),
        ({"key": "k", "collect": ["x"]}, "collect is a mapping of how, idle"),
        ({"key": "k", "collect": {"idle": 10, "max_wait": 5}}, "idle 10 is above max_wait 5"),
        ({"key": "k", "collect": {}, "when_busy": "defer"}, "name the key, and no when_busy"),
        ({"uses": "q", "collect": {}}, "name the key, and no when_busy"),
        ({"key": "k", "on_failure": "stop"}, "one of release, hold"),
        ({"key": "k", "retry_delay": "soon"}, "retry_delay"),
        ({"key": "k", "max_waiting": -1}, "max_waiting is a whole number"),
        ({"key": "k", "time_limit": 0}, "time_limit is seconds above 0"),
        ({"key": "k", "if_unknown": "wait for it"}, "one of refuse, wait"),
        ("order/{order_id}", "give your attribute another name"),
    ],
)
def test_a_wrong_option_is_refused_when_the_app_is_finalized(app: Celery, option: Any, said: str) -> None:
    declared(app, option)
    with pytest.raises(SettingsError, match=said) as caught:
        app.finalize()
    assert "shop.ship" in str(caught.value)


def test_all_wrong_options_are_named_at_once_and_again_at_each_call(app: Celery) -> None:
    ship = declared(app, {"key": "{nothing}"})

    @app.task(name="shop.bill", shared=False, coordinate={})
    def bill() -> None:
        """Bill it."""

    with pytest.raises(SettingsError, match=r"shop\.ship.*shop\.bill|shop\.bill.*shop\.ship"):
        app.finalize()
    with pytest.raises(SettingsError, match=r"shop\.ship"):
        ship.delay(1)


def test_a_base_class_that_has_the_name_for_itself_is_named(app: Celery) -> None:
    class Ours(Task):
        def coordinate(self) -> None:
            """Something else."""

    @app.task(name="shop.ship", shared=False, base=Ours)
    def ship() -> None:
        """Ship it."""

    with pytest.raises(SettingsError, match=r"shop\.ship: .*Ours\.coordinate is .*give your attribute another name"):
        app.finalize()


def test_without_a_coordinator_the_option_changes_nothing() -> None:
    app = Celery("shop", broker="memory://", set_as_current=False)
    ship = declared(app, {"key": "{nothing}"})
    app.finalize()
    with app.connection_for_write() as connection, connection.SimpleQueue("celery") as queue:
        ship.delay(1)
        ship.apply_async((2,), coordinate=False)
        assert [queue.get(timeout=60).payload[0] for _ in range(2)] == [[1], [2]]
    app.close()


@pytest.mark.parametrize(
    ("key", "args", "kwargs", "keys"),
    [
        ("order/{order_id}", (42,), {}, ["order/42"]),
        ("order/{order_id}/{fast}", (), {"order_id": "x"}, ["order/x/false"]),
        ("order/{order_id:04d}", (42,), {}, ["order/0042"]),
        ("order/{order_id[id]}", ({"id": 7},), {}, ["order/7"]),
        (["a/{order_id}", "b/{order_id}", "a/{order_id}"], (1,), {}, ["a/1", "b/1"]),
        (lambda order_id, fast: [f"o/{one}" for one in order_id], ([1, 2],), {}, ["o/1", "o/2"]),
        (["fixed", lambda **all_: f"f/{all_['fast']}"], (1,), {"fast": True}, ["fixed", "f/True"]),
    ],
)
def test_keys_are_made_from_the_bound_arguments(
    app: Celery, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], keys: list[str]
) -> None:
    option = read(declared(app, {"key": key}))
    assert option
    assert list(keys_of(option, args, kwargs)) == keys


class Size(str, Enum):  # noqa: UP042 - as many apps still have it
    big = "XL"


@pytest.mark.parametrize(
    ("here", "elsewhere", "key"),
    [
        ((1, 2), "[1, 2]", "[1,2]"),
        ({"b": 1, "a": (True, None)}, '{"a": [true, null], "b": 1}', '{"a":[true,null],"b":1}'),
        ({"a": 1, "b": 2}, '{"b": 2.0, "a": 1.0}', '{"a":1,"b":2}'),
        ({1: "é"}, '{"1": "\\u00e9"}', '{"1":"é"}'),
        (7, "7.0", "7"),
        (1.5, "15e-1", "1.5"),
        (True, "true", "true"),
        (Size.big, '"XL"', "XL"),
        (SafeString("x"), '"x"', "x"),
        (UUID(int=3), '"00000000-0000-0000-0000-000000000003"', "00000000-0000-0000-0000-000000000003"),
        (Decimal("1.10"), '"1.10"', "1.10"),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00+00:00"', "2026-01-02T00:00:00+00:00"),
        ([date(2026, 1, 2)], '["2026-01-02"]', '["2026-01-02"]'),
    ],
)
def test_an_argument_is_one_lane_in_python_in_its_message_and_in_that_of_another_program(
    app: Celery, here: Any, elsewhere: str, key: str
) -> None:
    option = read(declared(app, {"key": ["{order_id}", "{order_id!s}"]}))
    assert option
    for value in (here, loads(dumps(here)), json.loads(elsewhere)):
        assert keys_of(option, (value,), {}) == (key,)


def test_a_key_function_gets_what_a_worker_would(app: Celery) -> None:
    @app.task(name="shop.pack", shared=False, coordinate={"key": lambda *ids, **more: repr((ids, more))})
    def pack(*ids: Any, box: Any = (1, 2), **more: Any) -> None:
        """Pack it."""

    option = read(pack)
    assert option
    called = keys_of(option, ((3, 4), Size.big), {"z": {"b": 1, "a": 2}, "c": 1.0})
    assert called == keys_of(option, ([3, 4], "XL"), {"box": [1, 2], "c": 1, "z": {"a": 2, "b": 1}})
    assert called == ("(([3, 4], 'XL'), {'box': [1, 2], 'c': 1, 'z': {'a': 2, 'b': 1}})",)


def test_headers_of_a_call_are_in_its_key_and_one_that_is_missing_is_named(app: Celery) -> None:
    headers = {"tenant": {"b": 1.0, "a": (1, 2)}}
    key = ["{headers[tenant][b]}/{order_id}", lambda order_id, headers, **_: f"{headers['tenant']}/{order_id}"]
    option = read(declared(app, {"key": key}))
    assert keys_of(option, (4,), {}, headers) == ("1/4", "{'a': [1, 2], 'b': 1}/4")
    with pytest.raises(
        InvalidJob, match=r"shop\.ship: key '\{headers\[tenant\]\[b\]\}/.*cannot be read: KeyError\('tenant'\)"
    ):
        keys_of(option, (4,), {})

    @app.task(name="shop.send", shared=False, coordinate={"key": ["{headers[to]}", lambda headers: headers["to"]]})
    def send(headers: Any) -> None:
        """Send it."""

    assert keys_of(read(send), ({"to": "ann"},), {}, {"to": "ben"}) == ("ann",), "an argument goes before"


def test_a_set_of_keys_has_one_order(app: Celery) -> None:
    option = read(declared(app, {"key": lambda order_id, fast: {f"o/{number}" for number in range(9)}}))
    assert option
    assert keys_of(option, (1,), {}) == tuple(f"o/{number}" for number in range(9))


def test_arguments_without_a_name_and_those_of_any_name_make_keys_too(app: Celery) -> None:
    parts = ["{colour}", lambda first, *rest, **more: [f"{first}/{len(rest)}", more["colour"]]]

    @app.task(name="shop.paint", shared=False, coordinate={"key": parts})
    def paint(first: int, /, *rest: int, **more: str) -> None:
        """Paint it."""

    option = read(paint)
    assert option
    assert keys_of(option, (1, 2, 3), {"colour": "red"}) == ("red", "1/2")
    with pytest.raises(InvalidJob, match=r"\{colour\} cannot be read"):
        keys_of(option, (1,), {})


def test_an_option_that_is_none_is_not_set_and_false_is_no_option(app: Celery) -> None:
    unset = {"priority": None, "max_losses": None, "time_limit": None, "retry_delay": None, "rollback": None}
    assert read(declared(app, {"key": "k", "if_unknown": "wait", **unset}))
    app.tasks.unregister("shop.ship")
    assert read(declared(app, False)) is None


def test_when_busy_is_told_for_each_part_of_the_key_and_skip_wins(app: Celery) -> None:
    def more(order_id: int, fast: bool) -> list[str]:
        return ["more/1", f"order/{order_id}"]

    when_busy = {"order/{order_id}": "skip", "pool/{fast}": "queue", more: "queue"}
    option = read(declared(app, {"key": list(when_busy), "when_busy": when_busy}))
    assert option
    assert option.options_of({"task": "shop.ship", "args": [4]}) == {
        "when_busy": {"order/4": "skip", "pool/false": "queue", "more/1": "queue"}
    }


@pytest.mark.parametrize(
    ("key", "args", "said"),
    [
        ("order/{order_id}", (), "missing a required argument: 'order_id'"),
        ("order/{order_id}", (None,), r"\{order_id\} is None"),
        ("order/{order_id}", ("",), r"\{order_id\} is ''"),
        ("order/{order_id}", (object(),), "no text of its own"),
        ("order/{order_id[id]}", ({},), r"\{order_id\[id\]\} cannot be read: KeyError"),
        ("order/{order_id}", (DEEP,), "cannot be read: RecursionError"),
        ("order/{order_id:d}", ("x",), "cannot be made"),
        (lambda order_id, fast: None, (1,), "a key is text"),
        (lambda order_id, fast: [], (1,), "1 to 16 keys"),
        ("order/{order_id}", ("a\nb",), "control characters"),
    ],
)
def test_a_key_that_cannot_be_made_is_refused_by_name(app: Celery, key: Any, args: tuple[Any, ...], said: str) -> None:
    option = read(declared(app, {"key": key}))
    assert option
    with pytest.raises(InvalidJob, match=said) as caught:
        keys_of(option, args, {})
    assert str(caught.value).startswith("shop.ship: ")


def test_self_is_no_argument_and_autoretry_and_pydantic_hide_none(app: Celery) -> None:
    @app.task(name="a", shared=False, bind=True, autoretry_for=(OSError,), coordinate={"key": "{x}"})
    def bound(self: Task, x: int) -> None:
        """Bound."""

    @app.task(name="b", shared=False, bind=True, pydantic=True, coordinate={"key": "{x}"})
    def checked(self: Task, x: int) -> None:
        """Checked."""

    app.finalize()
    for task in (bound, checked):
        option = read(task)
        assert option
        assert keys_of(option, (5,), {}) == ("5",)


def test_annotations_for_all_tasks_leave_those_of_celery_and_ours_alone(app: Celery) -> None:
    app.conf.task_annotations = {"*": {"coordinate": {"key": "all"}}}

    @app.task(name="shop.ship", shared=False)
    def ship() -> None:
        """Ship it."""

    app.finalize()
    keyed = [name for name, task in app.tasks.items() if app.coordinator._keyed_tasks.of(task)]
    assert "shop.ship" in keyed
    assert not [name for name in keyed if name.startswith(("celery.", "coordinator."))]


def test_a_send_task_that_an_sdk_wraps_later_is_called(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    ship = declared(app, None)
    monkeypatch.setattr(Celery, "send_task", lambda self, name, *args, **options: f"wrapped {name}")
    assert ship.delay(1) == "wrapped shop.ship"


def test_a_shared_task_is_keyed_in_an_app_with_a_coordinator(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    monkeypatch.setattr(_state, "_get_active_apps", lambda: [app])  # those of other tests have no part in it

    @shared_task(name="shared.ship", coordinate={"key": lambda order_id, **_: f"order/{order_id}"})
    def ship(order_id: int, more: int = 0) -> None:
        """Ship it."""

    app.finalize()
    option = app.coordinator._keyed_tasks.of(app.tasks["shared.ship"])
    assert keys_of(option, (4,), {"more": 2}) == ("order/4",)


def test_a_key_function_that_raises_is_named(app: Celery) -> None:
    ship = declared(app, {"key": lambda order_id, fast: order_id.number})
    with pytest.raises(InvalidJob, match=r"shop.ship: the key function .*<lambda> raised AttributeError"):
        ship.delay(5)
