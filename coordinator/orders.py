"""An order: the steps of a chain, one after another in one lane. A single task is an order of one step.

At submit each step is laid out as JSON: {task, args, kwargs, immutable, headers, shadow, soft, class, limit (ms)}, or,
for a group or chord, {canvas: its signature, class, limit}: published as it is, its step parks until all of it ended.
Each step is a taking of its own. A rollback is laid out likewise, as `rollback`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator import checks
from coordinator.errors import InvalidJob
from coordinator.store import milliseconds

CANVAS = "coordinator.canvas"  # the task name under which any node of the app takes a step that publishes a canvas
STEP_OPTIONS = frozenset({"queue", "time_limit", "soft_time_limit", "headers", "shadow", "ignore_result", "task_id"})


_OF_ALL_STEPS = ("queue", "time_limit", "soft_time_limit", "headers")  # options of a chain that its steps have


@dataclass(slots=True)  # not frozen: one is made for each submit
class Step:
    """Where a step runs: its class, its task, its time limit in ms (0 = none), and all of it as it is kept."""

    kind: str
    task: str
    limit: int
    laid: dict[str, Any]


@dataclass(slots=True)  # not frozen: one is made for each submit
class Plan:
    """`first`: the step to begin with, the `number`th; `undo`: the record's note of where the rollback runs."""

    first: Step
    number: int
    spec: dict[str, Any]
    undo: str
    united: dict[str, list[str] | None]


def plan(
    signature: Mapping[str, Any], options: Mapping[str, Any], app: str, usual: Callable[[Any], Any], wanted: Any
) -> Plan:
    """Lay out all steps. Raises InvalidJob, naming the step."""
    needs = checks.texts("needs", wanted.needs)
    if not isinstance(wanted.unite, Mapping):
        raise InvalidJob(f"unite is {{argument: texts}}, not {wanted.unite!r}")
    united = {name: None if texts is None else checks.texts(name, texts) for name, texts in wanted.unite.items()}
    if signature.get("subtask_type"):
        if is_canvas(signature):
            signature = {**signature, "options": {}}  # they are the job's
        whole = {name: options[name] for name in _OF_ALL_STEPS if name in options}
        steps = [
            _step(one, whole | step_options(one, i), app, usual, wanted, needs)
            for i, one in enumerate(tasks_of(signature))
        ]
        number = checks.count("start_at", wanted.start_at)
        if number >= len(steps):
            raise InvalidJob(f"start_at {number}: the chain has steps 0 to {len(steps) - 1}")
        spec: dict[str, Any] = {"steps": [step.laid | {"class": step.kind, "limit": step.limit} for step in steps]}
        spec |= {"first": number}
        if united:
            raise InvalidJob("unite is for a job of one task")
    else:
        if wanted.start_at:
            raise InvalidJob("start_at is for a chain")
        steps, number = [_step(signature, options, app, usual, wanted, needs)], 0
        spec = {
            name: value
            for name, value in steps[0].laid.items()
            if name not in ("task", "immutable", "headers", "shadow")
        }
        if united:
            spec["kwargs"] = {name: value for name, value in spec["kwargs"].items() if name not in united}
    undo = ""
    if wanted.rollback is not None:
        back = _step(wanted.rollback, step_options(wanted.rollback, "rollback"), app, usual, wanted, needs)
        spec["rollback"] = back.laid | {"limit": back.limit}
        undo = f"{back.task}\n{back.limit}\n{back.kind}"
    return Plan(steps[number], number, spec, undo, united)


def _step(
    one: Mapping[str, Any],
    options: Mapping[str, Any],
    app: str,
    usual: Callable[[Any], Any],
    wanted: Any,
    needs: list[str],
) -> Step:
    own = usual(one)
    hard = checks.limit("time_limit", _given(wanted.time_limit, options.get("time_limit"), own.time_limit))
    soft = checks.limit(
        "soft_time_limit", _given(wanted.soft_time_limit, options.get("soft_time_limit"), own.soft_time_limit)
    )
    if soft and hard and soft >= hard:
        raise InvalidJob(f"{one['task']}: soft_time_limit {soft} s must be below time_limit {hard} s")
    kind = "\n".join((app, checks.text("queue", options.get("queue") or own.queue), *needs))
    if is_canvas(one):
        for part in inner(one):
            usual(part)
        return Step(kind, CANVAS, milliseconds(hard or 0), {"canvas": one})
    laid: dict[str, Any] = {
        "task": one["task"],
        "args": list(one.get("args") or ()),
        "kwargs": dict(one.get("kwargs") or {}),
    }
    laid |= {name: options[name] for name in ("headers", "shadow") if options.get(name)}
    if one.get("immutable"):
        laid["immutable"] = 1
    if soft:
        laid["soft"] = soft
    return Step(kind, one["task"], milliseconds(hard or 0), laid)


def _given(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def is_chain(signature: Mapping[str, Any]) -> bool:
    return signature.get("subtask_type") == "chain"


def is_canvas(signature: Mapping[str, Any]) -> bool:
    return signature.get("subtask_type") in ("group", "chord")


def tasks_of(signature: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The signatures of a chain in order, chains within it laid flat."""
    found = list(_flat(signature, outer=True))
    if not found:
        raise InvalidJob("a chain without tasks cannot be a job")
    return found


def _flat(signature: Mapping[str, Any], outer: bool = False) -> Iterator[Mapping[str, Any]]:
    if not is_chain(signature):
        yield signature
        return
    options = {name for name, value in (signature.get("options") or {}).items() if value is not None}
    if options and not outer:
        raise InvalidJob(f"a chain within a chain: cannot honour {', '.join(sorted(options))} there")
    for one in (signature.get("kwargs") or {}).get("tasks") or ():
        yield from _flat(one)


def inner(one: Any) -> Iterator[Mapping[str, Any]]:
    """The tasks of a group or chord, at any depth."""
    if isinstance(one, Mapping) and one.get("subtask_type"):
        kwargs = one.get("kwargs") or {}
        tasks, header = kwargs.get("tasks") or (), kwargs.get("header") or ()
        for part in (*tasks, *(header if isinstance(header, list | tuple) else [header]), kwargs.get("body")):
            yield from inner(part)
    elif isinstance(one, Mapping) and isinstance(one.get("task"), str):
        yield one


def step_options(step: Any, number: int | str) -> dict[str, Any]:
    """The options of an inner step or a rollback; what cannot be honoured is refused by name."""
    what = number if isinstance(number, str) else f"step {number}"
    if not isinstance(step, Mapping) or not isinstance(step.get("task"), str):
        raise InvalidJob(f"{what} is no signature of a task: {step!r}")
    options = {name: value for name, value in (step.get("options") or {}).items() if value is not None}
    if is_canvas(step) and not isinstance(number, str):
        return {}
    if step.get("subtask_type"):
        raise InvalidJob(f"{what}: a {step['subtask_type']} cannot be run there")
    refused = sorted(set(options) - STEP_OPTIONS)
    if refused:
        raise InvalidJob(f"{what}, {step['task']}: cannot honour {', '.join(refused)} there")
    return options


def all_arguments(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every argument of every step, of the rollback and of links, named."""
    for number, step in enumerate(spec.get("steps") or [spec]):
        where = f" of step {number}" if "steps" in spec else ""
        yield from _arguments(step, where)
        for one in inner(step.get("canvas")):
            yield from _arguments(one, f" of {one['task']}{where}")
    yield from _arguments(spec.get("rollback") or {}, " of the rollback")
    for name in ("link", "link_error"):
        for link in spec.get(name) or ():
            for one in inner(link):
                yield from _arguments(one, f" of the {name} {one['task']}")


def _arguments(one: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for place, value in [*enumerate(one.get("args") or ()), *(one.get("kwargs") or {}).items()]:
        yield f"{place!r}{where}", value


def laid(spec: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """What the `number`th step runs; of a single task, the spec itself."""
    return spec["steps"][number] if "steps" in spec else spec


def following(spec: Mapping[str, Any], number: int) -> Mapping[str, Any] | None:
    steps = spec.get("steps", ())
    return steps[number + 1] if number + 1 < len(steps) else None


def arguments(spec: Mapping[str, Any], number: int, value: Any) -> list[Any]:
    """What a step is called with: the result of the one before it goes first, unless it is immutable."""
    step = laid(spec, number)
    own = list(step.get("args", ()))
    return own if "steps" not in spec or number == spec["first"] or step.get("immutable") else [value, *own]


def advance(step: Mapping[str, Any]) -> tuple[str, str, int]:
    """Class, task and time limit (ms) of a step, as the scripts want them."""
    return step["class"], CANVAS if "canvas" in step else step["task"], step["limit"]
