"""A chain as one job: its steps run one after another in one lane. A single task is a chain of one step.

At submit each step is laid out as JSON: {task, args, kwargs, immutable, headers, shadow, soft, class, limit (ms)}, or,
for a group or chord, {canvas: its signature, class, limit}: its step publishes it, and parks until all of it has ended.
Each step is a claim of its own. A rollback is laid out likewise, as `rollback`, with the `limit` of a single task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from coordinator.errors import InvalidJob
from coordinator.jobs import validation
from coordinator.jobs.arguments import in_canvas
from coordinator.jobs.options import Arguments, Options, Target, TaskDefault
from coordinator.jobs.spec import InCanvas, Signature, SignatureOptions, Spec, StepSpec
from coordinator.store.times import milliseconds

CANVAS = "coordinator.canvas"  # the task name under which any node of the app takes a step that publishes a canvas
STEP_OPTIONS = frozenset(
    {"queue", "time_limit", "soft_time_limit", "headers", "shadow", "ignore_result", "task_id", "needs"}
)


@dataclass(slots=True)  # not frozen: one is made for each submit
class Step:
    """Where a step runs: its class, its task, its time limit in ms (0 = none), and all of it as it is kept.

    `result`: the app stores the result of such a task.
    """

    kind: str
    task: str
    limit: int
    laid: StepSpec
    result: bool
    own: SignatureOptions


@dataclass(slots=True)  # not frozen: one is made for each submit
class Plan:
    """`first`: the step to begin with, the `number`th; `undo`: the record's note of where the rollback runs.

    `result`: the app stores the result of the last step. `own`: options that the task of a lone job has by itself.
    """

    first: Step
    number: int
    spec: Spec
    undo: str
    result: bool
    own: SignatureOptions


def plan(signature: Signature, options: SignatureOptions, target: Target, wanted: Options) -> Plan:
    """Lay out all steps. `options`: those of the signature. Raises InvalidJob, naming the step."""
    needs = validation.texts("needs", wanted["needs"]) if "needs" in wanted else []
    if signature.get("subtask_type"):
        steps, number, spec = _of_many(signature, options, target, wanted, needs)
    else:
        if wanted.get("start_at", 0):
            raise InvalidJob("start_at is for a chain")
        steps, number = [_step(signature, options, target, wanted, needs, united=wanted.get("unite"))], 0
        spec = _of_one(steps[0].laid)
    undo = ""
    if (rollback := wanted.get("rollback")) is not None:
        back, spec["rollback"] = _of_rollback(rollback, target, wanted, needs)
        undo = f"{back.task}\n{back.limit}\n{back.kind}"
    return Plan(
        steps[number], number, spec, undo, steps[-1].result, SignatureOptions() if "steps" in spec else steps[0].own
    )


def _of_one(laid: StepSpec) -> Spec:
    """The spec of a single task: the record has the name, and the options of the signature have the rest.

    It is kept for each job: nothing is written that is empty.
    """
    spec: Spec = {}
    if laid["args"]:
        spec["args"] = laid["args"]
    if laid["kwargs"]:
        spec["kwargs"] = laid["kwargs"]
    if "soft" in laid:
        spec["soft"] = laid["soft"]
    return spec


def _of_many(
    signature: Signature, options: SignatureOptions, target: Target, wanted: Options, needs: list[str]
) -> tuple[list[Step], int, Spec]:
    """The steps of a chain, the number of the one to begin with, and the spec; a group or chord is one step."""
    if is_canvas(signature):
        signature = {**signature, "options": {}}  # they are the job's
    steps = []
    first = validation.count("start_at", wanted.get("start_at", 0))
    for number, one in enumerate(tasks_of(signature)):
        checked, own = _inner_step(one, number)
        before = int(number not in (0, first))
        steps.append(_step(checked, _of_all_steps(options, own), target, wanted, needs, before))
    if first >= len(steps):
        raise InvalidJob(f"start_at {first}: the chain has steps 0 to {len(steps) - 1}")
    for step in steps:
        step.laid["class"], step.laid["limit"] = step.kind, step.limit
    return steps, first, {"steps": [step.laid for step in steps], "first": first}


def _of_rollback(given: Mapping[str, object], target: Target, wanted: Options, needs: list[str]) -> tuple[Step, Spec]:
    """The first step of a rollback, and its spec."""
    signature, options = _inner_step(given, "rollback")
    if signature.get("subtask_type"):
        steps, _, spec = _of_many(signature, options, target, {**wanted, "start_at": 0}, needs)
        return steps[0], spec
    step = _step(signature, options, target, wanted, needs)
    return step, cast(Spec, {**step.laid, "limit": step.limit})


def _of_all_steps(options: SignatureOptions, own: SignatureOptions) -> SignatureOptions:
    """The options of a step: its own, and those of the chain that hold for all steps."""
    whole: SignatureOptions = {}
    for name in ("queue", "time_limit", "soft_time_limit", "headers", "needs"):
        if name in options:
            whole[name] = options[name]
    if "needs" in whole and "needs" in own:
        own = {**own, "needs": _needs(own, _needs(whole, []))}
    return {**whole, **own}


def _step(
    one: Signature, options: SignatureOptions, target: Target, wanted: Options, needs: list[str], before: int = 0,
    united: object = None,
) -> Step:  # fmt: skip
    """`before`: 1 where another step's result may be put in front; `united`: arguments that come with the claim."""
    task = validation.text("task", one["task"])
    default = target.default_of(one)
    hard = _limit("time_limit", wanted, options, default.time_limit)
    soft = _limit("soft_time_limit", wanted, options, default.soft_time_limit)
    if soft and hard and soft >= hard:
        raise InvalidJob(f"{one['task']}: soft_time_limit {soft} s must be below time_limit {hard} s")
    queue = validation.text("queue", options.get("queue") or default.queue)
    app = target.app if default.app is None else default.app
    kind = "\n".join((app, queue, *_needs(options, needs)))
    limit = milliseconds(hard) if hard else 0
    if is_canvas(one):
        whole = in_canvas(one, before, lambda part, behind: _given(part, target.default_of(part), behind))
        return Step(kind, CANVAS, limit, {"canvas": whole}, default.result, {})
    args, kwargs = _checked(one, default, before, united)
    laid: StepSpec = {"task": task, "args": args, "kwargs": kwargs}
    if options.get("headers"):
        laid["headers"] = options["headers"]
    if options.get("shadow"):
        laid["shadow"] = options["shadow"]
    if one.get("immutable"):
        laid["immutable"] = 1
    if soft:
        laid["soft"] = soft
    return Step(kind, task, limit, laid, default.result, default.options)


def _checked(one: Signature, default: TaskDefault, before: int, united: object) -> Arguments:
    if isinstance(united, Mapping) and default.checked is not None:
        one = {**one, "kwargs": {**(one.get("kwargs") or {}), **dict.fromkeys(united)}}
    return _given(one, default, 0 if one.get("immutable") else before)


def _given(one: Signature, default: TaskDefault, before: int) -> Arguments:
    args, kwargs = list(one.get("args") or ()), dict(one.get("kwargs") or {})
    return (args, kwargs) if default.checked is None else default.checked((args, kwargs), before)


def _needs(options: SignatureOptions, needs: list[str]) -> list[str]:
    """The labels that a step needs: its own and those of the submit."""
    own = validation.texts("needs", options["needs"]) if "needs" in options else []
    return sorted({*needs, *own}) if own else needs


def _limit(
    name: Literal["time_limit", "soft_time_limit"], wanted: Options, options: SignatureOptions, default: float | None
) -> float | None:
    """Seconds: the submit's, else the signature's, else the task's."""
    for given in (wanted.get(name), options.get(name), default):
        if given is not None:
            return validation.limit(name, given)
    return None


def is_chain(signature: Signature) -> bool:
    return signature.get("subtask_type") == "chain"


def is_canvas(signature: Signature) -> bool:
    return signature.get("subtask_type") in ("group", "chord")


def tasks_of(signature: Signature) -> list[Signature]:
    """The signatures of a chain in order, chains within it laid flat."""
    found = list(_flat(signature, outer=True))
    if not found:
        raise InvalidJob("a chain without tasks cannot be a job")
    return found


def _flat(signature: Signature, outer: bool = False) -> Iterator[Signature]:
    if not is_chain(signature):
        yield signature
        return
    options = {name for name, value in (signature.get("options") or {}).items() if value is not None}
    if options and not outer:
        raise InvalidJob(f"a chain within a chain: cannot honour {', '.join(sorted(options))} there")
    for one in cast(InCanvas, signature.get("kwargs") or {}).get("tasks") or ():
        yield from _flat(one)


def inner(one: object) -> Iterator[Signature]:
    """The tasks of a group or chord, at any depth. Anything else holds none."""
    if isinstance(one, Mapping) and one.get("subtask_type"):
        kwargs = one.get("kwargs") or {}
        tasks, header = kwargs.get("tasks") or (), kwargs.get("header") or ()
        for part in (*tasks, *(header if isinstance(header, list | tuple) else [header]), kwargs.get("body")):
            yield from inner(part)
    elif isinstance(one, Mapping) and isinstance(one.get("task"), str):
        yield cast(Signature, one)


def _inner_step(given: Mapping[str, object], number: int | str) -> tuple[Signature, SignatureOptions]:
    """An inner step or a rollback, and its options; what cannot be honoured is refused by name."""
    what = number if isinstance(number, str) else f"step {number}"
    if not isinstance(given, Mapping) or not isinstance(given.get("task"), str):
        raise InvalidJob(f"{what} is no signature of a task: {given!r}")
    step = cast(Signature, given)
    whole = isinstance(number, str)
    if is_canvas(step) and not whole:
        return step, {}
    if step.get("subtask_type") and not (whole and (is_chain(step) or is_canvas(step))):
        raise InvalidJob(f"{what}: a {step['subtask_type']} cannot be run there")
    options = options_of(step)
    refused = sorted(set(options) - STEP_OPTIONS)
    if refused:
        raise InvalidJob(f"{what}, {step['task']}: cannot honour {', '.join(refused)} there")
    return step, options


def options_of(signature: Signature) -> SignatureOptions:
    """The options that a signature has: one that is None is not set."""
    found = {name: value for name, value in (signature.get("options") or {}).items() if value is not None}
    return cast(SignatureOptions, found)


def all_arguments(spec: Spec) -> Iterator[tuple[str, object]]:
    """Every argument of every step, of the rollback and of links, named."""
    yield from _of_steps(spec, "")
    if "rollback" in spec:
        yield from _of_steps(spec["rollback"], " of the rollback")
    for kind, links in (("link", spec.get("link", ())), ("link_error", spec.get("link_error", ()))):
        for link in links:
            for one in inner(link):
                yield from _arguments(one, f" of the {kind} {one['task']}")


def _of_steps(spec: Spec, whole: str) -> Iterator[tuple[str, object]]:
    steps: list[StepSpec] = spec.get("steps") or [spec]
    for number, step in enumerate(steps):
        where = (f" of step {number}" if "steps" in spec else "") + whole
        yield from _arguments(step, where)
        for one in inner(step.get("canvas")):
            yield from _arguments(one, f" of {one['task']}{where}")


def _arguments(one: Signature | StepSpec, where: str) -> Iterator[tuple[str, object]]:
    for place, value in [*enumerate(one.get("args") or ()), *(one.get("kwargs") or {}).items()]:
        yield f"{place!r}{where}", value


def laid(spec: Spec, number: int) -> StepSpec:
    """The `number`th step as it is kept. The spec of a single task is its own step."""
    return spec["steps"][number] if "steps" in spec else spec


def following(spec: Spec, number: int) -> StepSpec | None:
    steps = spec.get("steps", ())
    return steps[number + 1] if number + 1 < len(steps) else None


def arguments(spec: Spec, number: int, value: object) -> list[object]:
    """The positional arguments of a step: the result of the step before goes first, unless this one is immutable."""
    step = laid(spec, number)
    own = list(step.get("args", ()))
    return own if "steps" not in spec or number == spec["first"] or step.get("immutable") else [value, *own]


def number_of(back: str) -> int:
    """The number of a rollback's step, from the field `back` of its record."""
    return int(back.partition(" ")[0] or 0)


def advance(step: StepSpec) -> tuple[str, str, int]:
    """Class, task and time limit (ms) of a step, as the steps in Redis want them."""
    return step["class"], CANVAS if "canvas" in step else step["task"], step["limit"]
