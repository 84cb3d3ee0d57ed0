"""A chain as one job: its steps run one after another in one lane. A single task is a chain of one step.

    coordinator.submit("order/42", chain(pack.s(42), ship.s(), bill.s()))

A submit writes each step as JSON: {task, args, kwargs, immutable, headers, shadow, soft, class, limit (ms)}. A group or
chord becomes a step {canvas: the signature, class, limit}, which publishes the canvas, and then parks the job until all
tasks of the canvas have ended. Each step is claimed separately. The rollback of a job is written in the same form under
`rollback`; where it is a single task, its `limit` is there, too.

The body of a step may replace the step by others (`self.replace`). The record keeps those of them that have not run in
a field beside the spec, `instead`; the first of them has all its arguments, unless it is marked `awaited`: it follows a
wait for an event (`wait_for`), and gets its value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

from kombu.utils.json import dumps, loads

from coordinator.core.jobs import validation
from coordinator.core.jobs.arguments import in_canvas
from coordinator.core.jobs.options import Arguments, JobDefaults, SubmitOptions, TaskDefault
from coordinator.core.jobs.spec import InCanvas, Signature, SignatureOptions, Spec, StepSpec
from coordinator.core.store.times import milliseconds
from coordinator.errors import InvalidJob

CANVAS = "coordinator.canvas"  # task name in the record of a step that publishes a canvas; each node of the app runs it
MAPS = ("celery.map", "celery.starmap")  # the only tasks of Celery itself that may be jobs
STEP_OPTIONS = frozenset(
    {"queue", "time_limit", "soft_time_limit", "headers", "shadow", "ignore_result", "task_id", "needs"}
)


@dataclass(slots=True)  # not frozen, which is faster: each submit makes some
class Step:
    """A checked step of a submit. `kind`: its routing class. `limit`: time limit in ms, 0 = none.

    `payload`: the step as the record keeps it, in JSON. `result`: True if the app stores results of the task. `own`:
    options that the task itself has and the signature does not name.
    """

    kind: str
    task: str
    limit: int
    payload: StepSpec
    result: bool
    own: SignatureOptions
    rate: str = ""


@dataclass(slots=True)  # not frozen, which is faster: each submit makes one
class ChainPlan:
    """All steps of a submit, checked, in the form that the record of the job keeps.

    `first`: the step with which the job begins; `number`: its number, from 0. `undo`: the record's field with task,
    time limit and routing class of the first step of the rollback; "" without a rollback. `result`: True if the app
    stores the result of the last step. `own`: options of the task itself, where the job is a single task.
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
    """Check all steps of a submit and of its rollback, and return them as the record keeps them. Raises InvalidJob,
    which names the step.

    `options`: of the signature. `target`: the app, and the defaults of its tasks.
    """
    needs = validation.texts("needs", submit_options["needs"], validation.name) if "needs" in submit_options else []
    if signature.get("subtask_type"):
        steps, number, spec = _of_many(signature, options, target, submit_options, needs)
    else:
        if submit_options.get("start_at", 0):
            raise InvalidJob("start_at is for a chain")
        later = _later(submit_options.get("after"))
        listed = _is_listed(submit_options)
        steps, number = [_step(signature, options, target, submit_options, needs, later=later, listed=listed)], 0
        spec = _of_one(steps[0].payload)
    undo = ""
    if (rollback := submit_options.get("rollback")) is not None:
        back, spec["rollback"] = _of_rollback(rollback, target, submit_options, needs)
        undo = f"{back.task}\n{back.limit}\n{back.kind}"
    return ChainPlan(
        steps[number], number, spec, undo, steps[-1].result, SignatureOptions() if "steps" in spec else steps[0].own
    )


def _of_one(payload: StepSpec) -> Spec:
    """The spec of a job of a single task. It omits empty parts, to save memory, and the name and the routing class of
    the task, which are in other fields of the record.
    """
    spec: Spec = {}
    if payload["args"]:
        spec["args"] = payload["args"]
    if payload["kwargs"]:
        spec["kwargs"] = payload["kwargs"]
    if "soft" in payload:
        spec["soft"] = payload["soft"]
    return spec


def _of_many(
    signature: Signature,
    options: SignatureOptions,
    target: JobDefaults,
    submit_options: SubmitOptions,
    needs: list[str],
    awaited: int = 0,
) -> tuple[list[Step], int, Spec]:
    """Check a chain, or a group or chord, which is one step. Return the steps, the number of the first step to run, and
    the spec. `awaited`: 1 if that step gets the value of an event.
    """
    if is_canvas(signature):
        signature = {**signature, "options": {}}  # these options are the job's, not those of the step
    steps = []
    first = validation.count("start_at", submit_options.get("start_at", 0))
    for number, step_signature in enumerate(tasks_of(signature)):
        checked, own = _inner_step(step_signature, number)
        before = awaited if number == first else int(number != 0)
        later = _later(submit_options.get("after")) if number == first else ()
        steps.append(_step(checked, _of_all_steps(options, own), target, submit_options, needs, before, later))
    if first >= len(steps):
        raise InvalidJob(f"start_at {first}: the chain has steps 0 to {len(steps) - 1}")
    for step in steps:
        if step.rate and len(steps) > 1:
            raise InvalidJob(
                f"{step.task} has a rate limit, which a chain would not keep for this step alone: submit the task by "
                "itself, or declare a quota that the whole chain uses"
            )
        step.payload["class"], step.payload["limit"] = step.kind, step.limit
    return steps, first, {"steps": [step.payload for step in steps], "first": first}


def in_place_of_a_step(signature: Signature, target: JobDefaults, needs: list[str], before: int = 0) -> list[StepSpec]:
    """Check a call, chain or canvas that is to replace the current step of a job (`self.replace`, `wait_for`), and
    return its steps as the record keeps them. `needs`: labels that their nodes must have. `before`: 1 if the first of
    them gets the value of an event in front of its arguments. Raises InvalidJob, which names the step.
    """
    own = options_of(signature) if is_chain(signature) else {}
    if refused := sorted(set(own) - STEP_OPTIONS):
        raise InvalidJob(f"a chain that replaces a step cannot honour {', '.join(refused)}")
    tasks = [_without(task, "coordinate") for task in tasks_of(signature)]
    steps, _, _ = _of_many(
        {"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": tasks}}, own, target, {}, needs, before
    )
    if before and not steps[0].payload.get("immutable"):
        steps[0].payload["awaited"] = 1
    else:
        steps[0].payload["immutable"] = 1
    return [step.payload for step in steps]


def _without(signature: Signature, name: str) -> Signature:
    options = {other: value for other, value in (signature.get("options") or {}).items() if other != name}
    return cast(Signature, {**signature, "options": options})


def _of_rollback(
    rollback: Mapping[str, object], target: JobDefaults, submit_options: SubmitOptions, needs: list[str]
) -> tuple[Step, Spec]:
    """Check the option `rollback` of a submit. Return the first step of the rollback, and its spec."""
    signature, options = _inner_step(rollback, "rollback")
    if signature.get("subtask_type"):
        steps, _, spec = _of_many(signature, options, target, {**submit_options, "start_at": 0, "after": None}, needs)
        return steps[0], spec
    step = _step(signature, options, target, submit_options, needs)
    return step, cast(Spec, {**step.payload, "limit": step.limit})


def _of_all_steps(options: SignatureOptions, own: SignatureOptions) -> SignatureOptions:
    """Merge the options of a step (`own`) over those options of its chain that apply to each step."""
    whole: SignatureOptions = {}
    for name in ("queue", "time_limit", "soft_time_limit", "headers", "needs"):
        if name in options:
            whole[name] = options[name]
    if "needs" in whole and "needs" in own:
        own = {**own, "needs": _needs(own, _needs(whole, []))}
    return {**whole, **own}


def _step(
    signature: Signature, options: SignatureOptions, target: JobDefaults, submit_options: SubmitOptions,
    needs: list[str], before: int = 0, later: Collection[str] = (), listed: bool = False,
) -> Step:  # fmt: skip
    """Check one step, and make its JSON.

    `options`: of the step and its chain. `needs`: labels that the submit asks for. `before`: 1 if the step gets the
    result of the step before in front of its arguments, else 0. `later`: names of arguments that are added when the job
    is claimed. `listed`: the body gets one list of calls, and not the arguments of this one.
    """
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
    args, kwargs = _checked(_as_list(signature) if listed else signature, default, before, later)
    payload: StepSpec = {"task": task, "args": args, "kwargs": kwargs}
    if options.get("headers"):
        payload["headers"] = options["headers"]
    if options.get("shadow"):
        payload["shadow"] = options["shadow"]
    if signature.get("immutable"):
        payload["immutable"] = 1
    if soft:
        payload["soft"] = soft
    return Step(kind, task, limit, payload, default.result, default.options, default.rate)


def _later(*options: object) -> set[str]:
    """The names of arguments in options that are mappings, of which the job gets the values when it is claimed."""
    return {str(name) for option in options if isinstance(option, Mapping) for name in option}


def _checked(signature: Signature, default: TaskDefault, before: int, later: Collection[str]) -> Arguments:
    own = signature.get("kwargs") or {}
    if later and default.checked is not None:
        signature = {**signature, "kwargs": {**dict.fromkeys(later), **own}}
    args, kwargs = _arguments_of(signature, default, 0 if signature.get("immutable") else before)
    return args, {name: value for name, value in kwargs.items() if name in own or name not in later}


def _is_listed(options: SubmitOptions) -> bool:
    return (options.get("collect") or {}).get("how") == "list"


def _as_list(signature: Signature) -> Signature:
    return {**signature, "args": ([],), "kwargs": {}}


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
    """The labels that the node of a step must have: those in the options of the step, and the submit's `needs`."""
    own = validation.texts("needs", options["needs"], validation.name) if "needs" in options else []
    return sorted({*needs, *own}) if own else needs


def _limit(
    name: Literal["time_limit", "soft_time_limit"],
    submit_options: SubmitOptions,
    options: SignatureOptions,
    default: float | None,
) -> float | None:
    """The limit `name` in seconds: the submit's, else the signature's, else the task's `default`; None: no limit."""
    for seconds in (submit_options.get(name), options.get(name), default):
        if seconds is not None:
            return validation.limit(name, seconds)
    return None


def is_chain(signature: Signature) -> bool:
    return signature.get("subtask_type") == "chain"


def is_canvas(signature: Signature) -> bool:
    return signature.get("subtask_type") in ("group", "chord")


def tasks_of(signature: Signature) -> list[Signature]:
    """The tasks and canvases of a chain in order; those of a chain within the chain stand in its place. Any other
    signature is the only element. Raises InvalidJob for an empty chain.
    """
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
        raise InvalidJob(f"a chain within a chain cannot honour its own options {', '.join(sorted(options))}")
    for task in cast(InCanvas, signature.get("kwargs") or {}).get("tasks") or ():
        yield from _flat(task)


def inner(canvas: object) -> Iterator[Signature]:
    """Yield the signatures of all tasks in a canvas, at any depth. The signature of a task yields itself; any other
    value yields nothing.
    """
    if isinstance(canvas, Mapping) and canvas.get("subtask_type"):
        kwargs = canvas.get("kwargs") or {}
        tasks, header = kwargs.get("tasks") or (), kwargs.get("header") or ()
        for part in (*tasks, *(header if isinstance(header, list | tuple) else [header]), kwargs.get("body")):
            yield from inner(part)
    elif isinstance(canvas, Mapping) and isinstance(canvas.get("task"), str):
        yield cast(Signature, canvas)


def _inner_step(step_signature: Mapping[str, object], number: int | str) -> tuple[Signature, SignatureOptions]:
    """Check the signature of a step of a chain, or of a rollback, and return it with its options. Raises InvalidJob,
    which names each option that does not work there. `number`: of the step, or the text "rollback".
    """
    place = number if isinstance(number, str) else f"step {number}"
    if not isinstance(step_signature, Mapping) or not isinstance(step_signature.get("task"), str):
        raise InvalidJob(f"{place} is no signature of a task: {step_signature!r}")
    step = cast(Signature, step_signature)
    whole = isinstance(number, str)
    if is_canvas(step) and not whole:
        return step, {}
    if step.get("subtask_type") and not (whole and (is_chain(step) or is_canvas(step))):
        raise InvalidJob(f"{place}: a {step['subtask_type']} cannot be run there")
    options = options_of(step)
    refused = sorted(set(options) - STEP_OPTIONS)
    if refused:
        raise InvalidJob(f"{place}, {step['task']}: cannot honour {', '.join(refused)} there")
    return step, options


def options_of(signature: Signature) -> SignatureOptions:
    """The options of a signature, without those whose value is None."""
    options = {name: value for name, value in (signature.get("options") or {}).items() if value is not None}
    return cast(SignatureOptions, options)


def all_arguments(spec: Spec) -> Iterator[tuple[str, object]]:
    """Yield each argument in a spec, also those of the rollback and of links, as pairs: a text for error messages that
    says where the argument is, and the value.
    """
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


def step_spec(spec: Spec, number: int) -> StepSpec:
    """The step with this number, from 0. For a job of a single task, the spec itself is the step."""
    return spec["steps"][number] if "steps" in spec else spec


def detoured(spec: Spec, number: int, instead: list[StepSpec]) -> Spec:
    """Return the spec as it is while other steps, `instead`, replace step `number` (`self.replace`): the first of them
    takes the place of that step, the others become `rest`. An empty `instead` changes nothing.
    """
    if not instead:
        return spec
    steps = spec.get("steps") or [spec]
    now = [*steps[:number], instead[0], *steps[number + 1 :]]
    return {**spec, "first": spec.get("first", 0), "steps": now, "rest": instead[1:]}


def following(spec: Spec, number: int) -> StepSpec | None:
    """The step that runs after step `number`; None if that is the last."""
    if rest := spec.get("rest"):
        return rest[0]
    steps = spec.get("steps", ())
    return steps[number + 1] if number + 1 < len(steps) else None


def arguments(spec: Spec, number: int, value: object) -> list[object]:
    """The positional arguments of step `number`. The result of the step before, or the value of the event before it,
    `value`, is the first of them, unless the job began with this step, or the step is immutable.
    """
    step = step_spec(spec, number)
    own = list(step.get("args", ()))
    begins = "steps" not in spec or (number == spec["first"] and not step.get("awaited"))
    return own if begins or step.get("immutable") else [value, *own]


def number_of(back: str) -> int:
    """Read the number of the current step of a rollback from `back`, a field of the job's record."""
    return int(back.partition(" ")[0] or 0)


def advance(step: StepSpec) -> tuple[str, str, int]:
    """Routing class, task name and time limit (ms) of the job's next step, as the functions in Redis take them."""
    return step["class"], CANVAS if "canvas" in step else step["task"], step["limit"]


def end_of(spec: Spec, step: StepSpec, result: str) -> tuple[str, str, tuple[str, str, int]]:
    """What to report to Redis when a step has succeeded and `step` follows it: the kind of end, its detail, and routing
    class, task and time limit of `step`.

    `result`: of the step that succeeded, in JSON.
    """
    rest = spec.get("rest")
    if not rest:
        return "step", result, advance(step)
    if not step.get("immutable"):
        step = cast(StepSpec, {**step, "args": [loads(result), *step.get("args", ())], "immutable": 1})
    return "replaced", dumps([step, *rest[1:]]), advance(step)
