"""Which submits and calls are equal, so that with `when_busy="defer"` one coalesces into the other."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from kombu.utils.json import loads

from coordinator.core.jobs.options import JobDefaults, TaskDefault
from coordinator.core.jobs.request import KeyedCall, RequestMaker
from coordinator.core.jobs.spec import Message, Spec
from coordinator.core.settings import Settings

_CHAINED: dict[str, Any] = {"task": "shop.work", "args": [1], "kwargs": {"to": "ann"}, "options": {}}
_CALLS = itertools.count()
_MAKER = RequestMaker(Settings.load({}, {}, {}), JobDefaults("shop", lambda step: TaskDefault("celery")))


def chain(*steps: Mapping[str, object]) -> dict[str, Any]:
    """A chain of three steps, the later two of which are changed so."""
    tasks = [_CHAINED, *({**_CHAINED, **step} for step in [*steps, {}, {}][:2])]
    return {"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": tasks}}


def group(**change: object) -> dict[str, Any]:
    return {"task": "celery.group", "subtask_type": "group", "kwargs": {"tasks": [_CHAINED, {**_CHAINED, **change}]}}


def step(**options: object) -> dict[str, Any]:
    return {"options": options}


# A submit by its parts, and those of another.
ONE: dict[str, Any] = {
    "keys": ["a"], "task": "shop.work", "args": [1, ["x"]], "kwargs": {"to": "ann", "by": {"sea": 1}},
    "options": {"soft_time_limit": 5}, "rollback": _CHAINED, "retry_delay": [1, 2], "retry_on": [OSError],
}  # fmt: skip
MANY: dict[str, Any] = {"keys": ["a", "b"], "signature": chain()}

DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another key": (ONE, {"keys": ["b"]}),
    "another second key": (MANY, {"keys": ["a", "c"]}),
    "a key less": (MANY, {"keys": ["a"]}),
    "another task": (ONE, {"task": "shop.other"}),
    "another queue": (ONE, {"options": {"soft_time_limit": 5, "queue": "slow"}}),
    "a label": (ONE, {"needs": ["gpu"]}),
    "another argument": (ONE, {"args": [2, ["x"]]}),
    "another part of an argument": (ONE, {"args": [1, ["y"]]}),
    "an argument less": (ONE, {"args": [1]}),
    "no arguments": (ONE, {"args": []}),
    "another keyword argument": (ONE, {"kwargs": {"to": "ben", "by": {"sea": 1}}}),
    "another part of a keyword argument": (ONE, {"kwargs": {"to": "ann", "by": {"sea": 2}}}),
    "another name of a keyword argument": (ONE, {"kwargs": {"for": "ann", "by": {"sea": 1}}}),
    "a keyword argument less": (ONE, {"kwargs": {"to": "ann"}}),
    "no keyword arguments": (ONE, {"kwargs": {}}),
    "another soft time limit": (ONE, {"options": {"soft_time_limit": 6}}),
    "another rollback": (ONE, {"rollback": {**_CHAINED, "kwargs": {"to": "ben"}}}),
    "other delays": (ONE, {"retry_delay": [1]}),
    "other errors": (ONE, {"retry_on": [ValueError]}),
    "a bound on attempts": (ONE, {"max_attempts": 1}),
    "another first step": (MANY, {"start_at": 1}),
    "a later step with another task": (MANY, {"signature": chain({}, {"task": "shop.other"})}),
    "a later step with another argument": (MANY, {"signature": chain({}, {"args": [2]})}),
    "a later step with another keyword argument": (MANY, {"signature": chain({}, {"kwargs": {"to": "ben"}})}),
    "a later step without the result before it": (MANY, {"signature": chain({}, {"immutable": True})}),
    "a later step elsewhere": (MANY, {"signature": chain({}, step(queue="slow"))}),
    "a later step with a time limit": (MANY, {"signature": chain({}, step(time_limit=5))}),
    "a later step with a soft time limit": (MANY, {"signature": chain({}, step(soft_time_limit=5))}),
    "a later step with headers": (MANY, {"signature": chain({}, step(headers={"a": 1}))}),
    "a later step by another name": (MANY, {"signature": chain({}, step(shadow="shown"))}),
    "steps in another order": (
        {"keys": ["a"], "signature": chain({"args": [2]}, {"args": [3]})},
        {"signature": chain({"args": [3]}, {"args": [2]})},
    ),
    "another part of a group": ({"keys": ["a"], "signature": group()}, {"signature": group(kwargs={"to": "ben"})}),
}

# Where the result goes counts only for those who submit: the caller of a keyed task gets it under an id of its own.
TO_WHOM: dict[str, dict[str, Any]] = {
    "link": {"link": [{"task": "shop.told"}]},
    "link_error": {"link_error": [{"task": "shop.told"}]},
    "headers": {"headers": {"tenant": "ann"}},
    "shadow": {"shadow": "shown"},
    "ignore_result": {"ignore_result": True},
}

SAME: dict[str, dict[str, Any]] = {
    "names in another order": {"kwargs": {"by": {"sea": 1}, "to": "ann"}},
    "the same numbers": {"args": (1.0, ("x",))},
    "when it is to start": {"options": {"soft_time_limit": 5, "expires": 60}},
    "how long it may take in all": {"max_lifetime": 60},
    "how urgent it is": {"priority": 3},
    "how often it may be lost": {"max_losses": 0},
    "its id": {"job_id": "mine"},
}

# Fields of a spec that no submit can differ in alone.
OF_STEPS = {"task", "immutable", "awaited", "class", "canvas", "limit", "again"}
NOT_OF_SUBMITS = {"rest": "is not in a record", "message": "says where the result goes"}


def made(parts: Mapping[str, Any], call: bool) -> tuple[str, Spec]:
    """What makes the submit of these parts equal to others, and its spec."""
    left = {**parts}
    names = ("task", "args", "kwargs", "options")
    signature = left.pop("signature", None) or {name: left.pop(name) for name in names}
    whose = KeyedCall(Message(origin=f"host {next(_CALLS)}"), awaited=False) if call else None
    request = _MAKER.make(left.pop("keys"), signature, {"when_busy": "defer", **left}, whose)  # type: ignore[typeddict-item]
    fields = dict(zip(request.fields[::2], request.fields[1::2], strict=True))
    return str(fields["equal"]), loads(str(fields["spec"]))


@pytest.mark.parametrize("call", [False, True], ids=["submit", "call"])
@pytest.mark.parametrize("what", DIFFERENT)
def test_submits_and_calls_that_ask_for_something_else_are_not_equal(what: str, call: bool) -> None:
    one, change = DIFFERENT[what]
    assert made(one, call)[0] == made({**one}, call)[0]
    assert made(one, call)[0] != made({**one, **change}, call)[0]


@pytest.mark.parametrize("what", TO_WHOM)
def test_where_the_result_goes_makes_submits_different_and_calls_not(what: str) -> None:
    other = {**ONE, "options": {**ONE["options"], **TO_WHOM[what]}}
    assert made(ONE, call=False)[0] != made(other, call=False)[0]
    assert made(ONE, call=True)[0] == made(other, call=True)[0]


@pytest.mark.parametrize("call", [False, True], ids=["submit", "call"])
@pytest.mark.parametrize("what", SAME)
def test_what_does_not_change_the_work_leaves_submits_and_calls_equal(what: str, call: bool) -> None:
    assert made(ONE, call)[0] == made({**ONE, **SAME[what]}, call)[0]


def test_each_field_of_a_spec_is_tried() -> None:
    """A new one must stand in a table above, so that it is decided whether it counts."""
    pairs = [(one, {**one, **change}) for one, change in DIFFERENT.values()]
    pairs += [(ONE, {**ONE, "options": {**ONE["options"], **change}}) for change in TO_WHOM.values()]
    tried: set[str] = set()
    for one, other in pairs:
        here, there = made(one, call=False)[1], made(other, call=False)[1]
        tried |= {name for name in {*here, *there} if here.get(name) != there.get(name)}
    assert tried | OF_STEPS | NOT_OF_SUBMITS.keys() == set(Spec.__annotations__)
