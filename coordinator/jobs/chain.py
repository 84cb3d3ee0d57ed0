"""A chain as one job: its steps run one after another in one lane. A single task is a chain of one step.

A submit writes each step as JSON: {task, args, kwargs, immutable, headers, shadow, soft, class, limit (ms)}. A group or
chord is {canvas: its signature, class, limit}: its step publishes the canvas, and parks until all of it has ended. Each
step is claimed separately. A rollback is written likewise, as `rollback`, with the `limit` of a single task.

A step at work may be replaced by other steps (`self.replace`). The record keeps those that are still to be run apart
from the spec; the first of them has all its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

from kombu.utils.json import dumps, loads

from coordinator.errors import InvalidJob
from coordinator.jobs import validation
from coordinator.jobs.arguments import in_canvas
from coordinator.jobs.options import Arguments, JobDefaults, SubmitOptions, TaskDefault
from coordinator.jobs.spec import InCanvas, Signature, SignatureOptions, Spec, StepSpec
from coordinator.store.times import milliseconds

CANVAS = "coordinator.canvas"  # the task name under which any node of the app takes a step that publishes a canvas
MAPS = ("celery.map", "celery.starmap")  # tasks of Celery's own that may be jobs
STEP_OPTIONS = frozenset(
    {"queue", "time_limit", "soft_time_limit", "headers", "shadow", "ignore_result", "task_id", "needs"}
)


@dataclass(slots=True)  # not frozen, which is faster: each submit makes some
class Step:
    """A step of a submit: its class, its task, its time limit in ms (0 = none), and `laid`, the JSON that is kept.

    `result`: the app stores the result of such a task. `own`: options that the task itself has.
    """

    kind: str
    task: str
    limit: int
    laid: StepSpec
    result: bool
    own: SignatureOptions


@dataclass(slots=True)  # not frozen, which is faster: each submit makes one
class ChainPlan:
    """The steps of a submit, as the record needs them.

    `first`: the step to begin with, the `number`th; `undo`: the record's note of where the rollback runs. `result`: the
    app stores the result of the last step. `own`: options of the task itself, for a job of one task.
    """

    first: Step
    number: int
    spec: Spec
    undo: str
    result: bool
    own: SignatureOptions


def plan(
    signature: Signature, options: SignatureOptions, target: JobDefaults, submit_options: SubmitOptions
) -> ChainPlan:
    """Check and write all steps. `options`: of the signature. Raises InvalidJob, naming the step."""
    needs = validation.texts("needs", submit_options["needs"], validation.name) if "needs" in submit_options else []
    if signature.get("subtask_type"):
        steps, number, spec = _of_many(signature, options, target, submit_options, needs)
    else:
        if submit_options.get("start_at", 0):
            raise InvalidJob("start_at is for a chain")
        steps, number = (
            [_step(signature, options, target, submit_options, needs, united=submit_options.get("merge_args"))],
            0,
        )
        spec = _of_one(steps[0].laid)
    undo = ""
    if (rollback := submit_options.get("rollback")) is not None:
        back, spec["rollback"] = _of_rollback(rollback, target, submit_options, needs)
        undo = f"{back.task}\n{back.limit}\n{back.kind}"
    return ChainPlan(
        steps[number], number, spec, undo, steps[-1].result, SignatureOptions() if "steps" in spec else steps[0].own
    )


def _of_one(laid: StepSpec) -> Spec:
    """The spec of a single task, whose name and class stand in the record. Leaves out what is empty, to save memory."""
    spec: Spec = {}
    if laid["args"]:
        spec["args"] = laid["args"]
    if laid["kwargs"]:
        spec["kwargs"] = laid["kwargs"]
    if "soft" in laid:
        spec["soft"] = laid["soft"]
    return spec


def _of_many(
    signature: Signature,
    options: SignatureOptions,
    target: JobDefaults,
    submit_options: SubmitOptions,
    needs: list[str],
) -> tuple[list[Step], int, Spec]:
    """The steps of a chain, the number of the first step to run, and the spec; a group or chord is one step."""
    if is_canvas(signature):
        signature = {**signature, "options": {}}  # the job has them
    steps = []
    first = validation.count("start_at", submit_options.get("start_at", 0))
    for number, step_signature in enumerate(tasks_of(signature)):
        checked, own = _inner_step(step_signature, number)
        before = int(number not in (0, first))
        steps.append(_step(checked, _of_all_steps(options, own), target, submit_options, needs, before))
    if first >= len(steps):
        raise InvalidJob(f"start_at {first}: the chain has steps 0 to {len(steps) - 1}")
    for step in steps:
        step.laid["class"], step.laid["limit"] = step.kind, step.limit
    return steps, first, {"steps": [step.laid for step in steps], "first": first}


def in_place_of_a_step(signature: Signature, target: JobDefaults, needs: list[str]) -> list[StepSpec]:
    """The steps of a call or chain that replaces a job's own step. Raises InvalidJob, naming the step."""
    own = options_of(signature) if is_chain(signature) else {}
    if refused := sorted(set(own) - STEP_OPTIONS):
        raise InvalidJob(f"a chain that replaces a step cannot honour {', '.join(refused)}")
    tasks = [_without(task, "coordinate") for task in tasks_of(signature)]
    steps, _, _ = _of_many(
        {"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": tasks}}, own, target, {}, needs
    )
    steps[0].laid["immutable"] = 1
    return [step.laid for step in steps]


def _without(signature: Signature, name: str) -> Signature:
    options = {other: value for other, value in (signature.get("options") or {}).items() if other != name}
    return cast(Signature, {**signature, "options": options})


def _of_rollback(
    rollback: Mapping[str, object], target: JobDefaults, submit_options: SubmitOptions, needs: list[str]
) -> tuple[Step, Spec]:
    """The first step of a rollback, and its spec."""
    signature, options = _inner_step(rollback, "rollback")
    if signature.get("subtask_type"):
        steps, _, spec = _of_many(signature, options, target, {**submit_options, "start_at": 0}, needs)
        return steps[0], spec
    step = _step(signature, options, target, submit_options, needs)
    return step, cast(Spec, {**step.laid, "limit": step.limit})


def _of_all_steps(options: SignatureOptions, own: SignatureOptions) -> SignatureOptions:
    """The options of a step: its own, and the chain's options that hold for all steps."""
    whole: SignatureOptions = {}
    for name in ("queue", "time_limit", "soft_time_limit", "headers", "needs"):
        if name in options:
            whole[name] = options[name]
    if "needs" in whole and "needs" in own:
        own = {**own, "needs": _needs(own, _needs(whole, []))}
    return {**whole, **own}


def _step(
    signature: Signature, options: SignatureOptions, target: JobDefaults, submit_options: SubmitOptions,
    needs: list[str], before: int = 0, united: object = None,
) -> Step:  # fmt: skip
    """Check a step. `before`: 1 where an earlier result may go in front; `united`: arguments that the claim adds."""
    task = validation.name("task", signature["task"])
    default = target.default_of(signature)
    hard = _limit("time_limit", submit_options, options, default.time_limit)
    soft = _limit("soft_time_limit", submit_options, options, default.soft_time_limit)
    if soft and hard and soft >= hard:
        raise InvalidJob(f"{signature['task']}: soft_time_limit {soft} s must be below time_limit {hard} s")
    queue = target.queue_of(validation.name("queue", options.get("queue") or default.queue))
    app = target.app if default.app is None else default.app
    kind = "\n".join((app, queue, *_needs(options, needs)))
    limit = milliseconds(hard) if hard else 0
    if is_canvas(signature):
        whole = in_canvas(signature, before, partial(_checked_part, target))
        return Step(kind, CANVAS, limit, {"canvas": whole}, default.result, {})
    args, kwargs = _checked(signature, default, before, united)
    laid: StepSpec = {"task": task, "args": args, "kwargs": kwargs}
    if options.get("headers"):
        laid["headers"] = options["headers"]
    if options.get("shadow"):
        laid["shadow"] = options["shadow"]
    if signature.get("immutable"):
        laid["immutable"] = 1
    if soft:
        laid["soft"] = soft
    return Step(kind, task, limit, laid, default.result, default.options)


def _checked(signature: Signature, default: TaskDefault, before: int, united: object) -> Arguments:
    if isinstance(united, Mapping) and default.checked is not None:
        signature = {**signature, "kwargs": {**(signature.get("kwargs") or {}), **dict.fromkeys(united)}}
    return _arguments_of(signature, default, 0 if signature.get("immutable") else before)


def _checked_part(target: JobDefaults, part: Signature, before: int) -> Signature:
    validation.name("task", part["task"])
    default = target.default_of(part)
    if isinstance(queue := (part.get("options") or {}).get("queue") or default.queue, str):
        target.queue_of(queue)
    args, kwargs = _arguments_of(part, default, before)
    return {**part, "args": args, "kwargs": kwargs}


def _arguments_of(signature: Signature, default: TaskDefault, before: int) -> Arguments:
    args, kwargs = list(signature.get("args") or ()), dict(signature.get("kwargs") or {})
    return (args, kwargs) if default.checked is None else default.checked((args, kwargs), before)


def _needs(options: SignatureOptions, needs: list[str]) -> list[str]:
    """The labels that a step needs: its own and the submit's."""
    own = validation.texts("needs", options["needs"], validation.name) if "needs" in options else []
    return sorted({*needs, *own}) if own else needs


def _limit(
    name: Literal["time_limit", "soft_time_limit"],
    submit_options: SubmitOptions,
    options: SignatureOptions,
    default: float | None,
) -> float | None:
    """Seconds: the submit's, else the signature's, else the task's."""
    for seconds in (submit_options.get(name), options.get(name), default):
        if seconds is not None:
            return validation.limit(name, seconds)
    return None


def is_chain(signature: Signature) -> bool:
    return signature.get("subtask_type") == "chain"


def is_canvas(signature: Signature) -> bool:
    return signature.get("subtask_type") in ("group", "chord")


def tasks_of(signature: Signature) -> list[Signature]:
    """The signatures of a chain in order, chains within it laid flat."""
    tasks = list(_flat(signature, outer=True))
    if not tasks:
        raise InvalidJob("a chain without tasks cannot be a job")
    return tasks


def _flat(signature: Signature, outer: bool = False) -> Iterator[Signature]:
    if not is_chain(signature):
        yield signature
        return
    options = {name for name, value in (signature.get("options") or {}).items() if value is not None}
    if options and not outer:
        raise InvalidJob(f"a chain within a chain: cannot honour {', '.join(sorted(options))} there")
    for task in cast(InCanvas, signature.get("kwargs") or {}).get("tasks") or ():
        yield from _flat(task)


def inner(canvas: object) -> Iterator[Signature]:
    """Yield the tasks of a group or chord, at any depth; a plain task yields itself, anything else nothing."""
    if isinstance(canvas, Mapping) and canvas.get("subtask_type"):
        kwargs = canvas.get("kwargs") or {}
        tasks, header = kwargs.get("tasks") or (), kwargs.get("header") or ()
        for part in (*tasks, *(header if isinstance(header, list | tuple) else [header]), kwargs.get("body")):
            yield from inner(part)
    elif isinstance(canvas, Mapping) and isinstance(canvas.get("task"), str):
        yield cast(Signature, canvas)


def _inner_step(step_signature: Mapping[str, object], number: int | str) -> tuple[Signature, SignatureOptions]:
    """Check an inner step or a rollback; return it and its options. Refuses by name what a job cannot honour."""
    what = number if isinstance(number, str) else f"step {number}"
    if not isinstance(step_signature, Mapping) or not isinstance(step_signature.get("task"), str):
        raise InvalidJob(f"{what} is no signature of a task: {step_signature!r}")
    step = cast(Signature, step_signature)
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
    """The options that a signature sets; None counts as not set."""
    options = {name: value for name, value in (signature.get("options") or {}).items() if value is not None}
    return cast(SignatureOptions, options)


def all_arguments(spec: Spec) -> Iterator[tuple[str, object]]:
    """Yield every argument of every step, of the rollback and of links, with a name for error texts."""
    yield from _of_steps(spec, "")
    if "rollback" in spec:
        yield from _of_steps(spec["rollback"], " of the rollback")
    for kind, links in (("link", spec.get("link", ())), ("link_error", spec.get("link_error", ()))):
        for link in links:
            for task in inner(link):
                yield from _arguments(task, f" of the {kind} {task['task']}")


def _of_steps(spec: Spec, whole: str) -> Iterator[tuple[str, object]]:
    steps: list[StepSpec] = spec.get("steps") or [spec]
    for number, step in enumerate(steps):
        where = (f" of step {number}" if "steps" in spec else "") + whole
        yield from _arguments(step, where)
        for task in inner(step.get("canvas")):
            yield from _arguments(task, f" of {task['task']}{where}")


def _arguments(step: Signature | StepSpec, where: str) -> Iterator[tuple[str, object]]:
    for place, value in [*enumerate(step.get("args") or ()), *(step.get("kwargs") or {}).items()]:
        yield f"{place!r}{where}", value


def laid(spec: Spec, number: int) -> StepSpec:
    """The `number`th step as the record keeps it. The spec of a single task is its own step."""
    return spec["steps"][number] if "steps" in spec else spec


def detoured(spec: Spec, number: int, instead: list[StepSpec]) -> Spec:
    """The spec while other steps replace the `number`th step: the first of them stands in its place."""
    if not instead:
        return spec
    steps = spec.get("steps") or [spec]
    now = [*steps[:number], instead[0], *steps[number + 1 :]]
    return {**spec, "first": spec.get("first", 0), "steps": now, "rest": instead[1:]}


def following(spec: Spec, number: int) -> StepSpec | None:
    if rest := spec.get("rest"):
        return rest[0]
    steps = spec.get("steps", ())
    return steps[number + 1] if number + 1 < len(steps) else None


def arguments(spec: Spec, number: int, value: object) -> list[object]:
    """The positional arguments of a step: the result of the step before goes first, unless the step is immutable."""
    step = laid(spec, number)
    own = list(step.get("args", ()))
    return own if "steps" not in spec or number == spec["first"] or step.get("immutable") else [value, *own]


def number_of(back: str) -> int:
    """The number of a rollback's step, from the field `back` of its record."""
    return int(back.partition(" ")[0] or 0)


def advance(step: StepSpec) -> tuple[str, str, int]:
    """Class, task and time limit (ms) of a step, as the functions in Redis take them."""
    return step["class"], CANVAS if "canvas" in step else step["task"], step["limit"]


def end_of(spec: Spec, step: StepSpec, result: str) -> tuple[str, str, tuple[str, str, int]]:
    """The good end of a step that `step` follows: kind, detail, and the next step as `advance` returns it."""
    rest = spec.get("rest")
    if not rest:
        return "step", result, advance(step)
    if not step.get("immutable"):
        step = cast(StepSpec, {**step, "args": [loads(result), *step.get("args", ())], "immutable": 1})
    return "replaced", dumps([step, *rest[1:]]), advance(step)
