"""Checks a submit as a whole, before anything is written, and makes the arguments of the step `job_submit`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from kombu.utils.json import dumps

from coordinator.author import author
from coordinator.errors import InvalidJob
from coordinator.jobs import chain, instances, validation
from coordinator.jobs.current import working
from coordinator.jobs.encoding import bounded, encode, in_order
from coordinator.jobs.options import KEEP, JobDefaults, SubmitOptions
from coordinator.jobs.spec import Message, Signature, SignatureOptions, Spec, StepSpec
from coordinator.store.times import milliseconds
from coordinator.store.wire import Arg

if TYPE_CHECKING:
    from coordinator.settings import Settings

WHEN_BUSY = ("queue", "skip", "defer", "replace")
ON_FAILURE = ("release", "hold")
UNKNOWN = ("refuse", "wait")
TELL_COALESCED = 2  # a record's `tell` where its result is also for those whose submits coalesced into it

_KNOWN = SubmitOptions.__annotations__.keys()
_AUTHOR = 14  # characters: with its name the field `by` has 20 bytes in Redis
_OF_RESULT = {"message", "link", "link_error", "headers", "shadow", "ignore_result"}
_HONOURED = SignatureOptions.__annotations__.keys()


@dataclass(slots=True)  # not frozen, which is faster: each submit makes one
class JobRequest:
    """A checked submit: `step_args` are the arguments of the step job_submit. `not_before`: see `validation.start`.

    `when_busy`: `skip` looks at all keys; `skip 1 3` at the first and the third only.
    """

    id: str
    keys: tuple[str, ...]
    when_busy: str
    priority: int
    not_before: Arg
    room: Arg
    fields: tuple[Arg, ...]

    def step_args(self) -> tuple[Arg, ...]:
        return (
            self.id,
            "\n".join(self.keys),
            self.when_busy,
            self.priority,
            self.not_before,
            self.room,
            *self.fields,
        )


@dataclass(slots=True)
class KeyedCall:
    """The part of a submit that the call of a keyed task adds.

    `awaited`: somebody may wait under the call's own id, so a call that is skipped or coalesced has its result there,
    too.
    """

    message: Message
    awaited: bool


class RequestMaker:
    """Makes the requests of one installation and app. Works out once what is the same for all of them.

    `trusting`: the target of submits that wait for a node with their task.
    """

    def __init__(self, settings: Settings, target: JobDefaults, trusting: JobDefaults | None = None) -> None:
        self._target, self._trusting = target, trusting or target
        self._most = settings.max_payload
        self._losses = settings.max_losses
        self._lifetime = milliseconds(settings.max_lifetime)
        self._kept = f"{milliseconds(settings.keep_success)} {milliseconds(settings.keep_failure)}"
        if settings.keep_most:
            self._kept += f" {settings.keep_most}"

    def make(
        self,
        keys: str | Sequence[str],
        unchecked: Mapping[str, object],
        options: SubmitOptions,
        call: KeyedCall | None = None,
        stamps: Message | None = None,
    ) -> JobRequest:
        """Check a submit, and make its record. Raises InvalidJob, which names the fault."""
        try:
            return self._make(keys, unchecked, options, call, stamps)
        except RecursionError as error:
            raise InvalidJob("the arguments or the canvas are nested deeper than Python can follow") from error

    def _make(
        self,
        keys: str | Sequence[str],
        unchecked: Mapping[str, object],
        options: SubmitOptions,
        call: KeyedCall | None,
        stamps: Message | None,
    ) -> JobRequest:
        check_options(options)
        signature, own = check_signature(unchecked)
        lanes, of_grab = self._place(keys, options)
        when_busy, start = _when(options, own, lanes, call)
        waits = "if_unknown" in options and validation.one_of("if_unknown", options["if_unknown"], UNKNOWN) == "wait"
        plan = chain.plan(signature, own, self._trusting if waits else self._target, options)
        own = {**plan.own, **own}
        merge_args = _merge_args(options, plan.spec)
        spec = _spec(plan, own, options)
        if message := call.message if call else _shown(own, stamps):
            spec["message"] = message
        text = encode(signature["task"], spec, self._most)
        first = plan.first
        fields: list[Arg] = ["class", first.kind, "task", first.task, "spec", text]
        fields += ["limits", self._limits(first.limit, options), "by", author().name[:_AUTHOR]]
        if _is_owed(plan, own):
            fields += ["tell", TELL_COALESCED if when_busy == "defer" else 1]
        if when_busy == "defer":
            alike = in_order(dumps(_alike(spec, call)))
            same = (first.kind, first.task, alike, *sorted(merge_args), *lanes)
            fields += ["equal", uuid.uuid5(uuid.NAMESPACE_OID, "\n".join(same)).hex]
        if merge_args:
            fields += ["merge_args", bounded(f"{signature['task']}: merge_args has", dumps(merge_args), self._most)]
        if rare := [*_rare(options, own, plan, call), *of_grab]:
            fields += ["seldom", 1, *rare]
        if call and when_busy in ("skip", "defer"):
            fields += ["expected", int(call.awaited)]
        if number := _priority(options, own):
            fields += ["priority", number]
        return JobRequest(_id(options, own), lanes, when_busy, number, start, _room(options), tuple(fields))

    def in_place_of_a_step(self, signature: Signature, needs: list[str]) -> list[StepSpec]:
        """Make the steps that replace a job's own step, which has these labels. Raises InvalidJob."""
        return chain.in_place_of_a_step(signature, self._target, needs)

    def _limits(self, hard: int, options: SubmitOptions) -> str:
        """The record's `limits` (functions/rules/record.lua)."""
        attempts, losses, lifetime = 1, self._losses, self._lifetime
        if "max_attempts" in options:
            attempts = validation.count("max_attempts", options["max_attempts"], 1)
        if (number := options.get("max_losses")) is not None:
            losses = validation.count("max_losses", number)
        if (seconds := options.get("max_lifetime")) is not None:
            lifetime = milliseconds(validation.limit("max_lifetime", seconds))
        return f"{attempts} {losses} {hard} {lifetime} {self._kept}"

    def _place(self, keys: str | Sequence[str], options: SubmitOptions) -> tuple[tuple[str, ...], list[Arg]]:
        """The keys of the lanes, and the fields that follow from them."""
        fair_by = self._target.fair_by
        if options.get("instance") is None:
            if "keep_instance" in options:
                raise InvalidJob("keep_instance is for a submit with an instance")
            lanes = validation.check_keys(keys)
            return lanes, ["group", validation.group(lanes[0], fair_by(lanes[0]))] if fair_by else []
        if options.get("when_busy", "queue") != "queue" or options.get("max_waiting") is not None:
            raise InvalidJob("a submit with an instance has lost where another has it: no when_busy, no max_waiting")
        key, lane, keep = instances.checked_submit(keys, options["instance"], options.get("keep_instance", KEEP))
        group = validation.group(key, fair_by(key)) if fair_by else key[: max(0, key.find("/"))]
        return (lane,), ["grab", keep, "group", group]


def check_options(options: Mapping[str, object]) -> None:
    """Refuse an unknown option; the error names the known ones, and the options that a signature has instead."""
    if not options.keys() <= _KNOWN:
        unknown = ", ".join(f"{name!r}{_way_out(name)}" for name in options if name not in _KNOWN)
        raise InvalidJob(f"got an unexpected option {unknown}; options of submit: {', '.join(sorted(_KNOWN))}")


def _way_out(name: str) -> str:
    if name in ("args", "kwargs"):
        return " (the signature has the arguments: write task.s(…))"
    if name in _HONOURED and name != "task_id":
        return f" (the signature has it: write task.s(…).set({name}=…))"
    return validation.near(name, _KNOWN)


def check_signature(unchecked: object) -> tuple[Signature, SignatureOptions]:
    """Check a signature; return it and its options. Refuses by name what a job cannot honour."""
    if not isinstance(unchecked, Mapping) or not isinstance(unchecked.get("task"), str):
        raise InvalidJob(f"not a signature of a task: {unchecked!r}; make one with task.s(…)")
    signature = cast(Signature, unchecked)
    name = signature["task"]
    kind = signature.get("subtask_type") or (name[7:] if name.startswith("celery.") else "")
    if kind and kind not in ("chain", "group", "chord") and name not in chain.MAPS:
        raise InvalidJob(f"a {kind} cannot be a job; submit its tasks, or one task that calls them")
    options = {name: value for name, value in (signature.get("options") or {}).items() if value is not None}
    if not options.keys() <= _HONOURED:
        unknown = ", ".join(sorted(options.keys() - _HONOURED))
        raise InvalidJob(f"{name}: a job cannot honour the option {unknown}")
    return signature, cast(SignatureOptions, options)


def _alike(spec: Spec, call: KeyedCall | None) -> Spec:
    """The part of a spec that makes two submits equal. Where the result of a call goes does not count."""
    but = _OF_RESULT if call else {"message"}
    return cast(Spec, {name: value for name, value in spec.items() if name not in but})


def _shown(own: SignatureOptions, stamps: Message | None) -> Message:
    """The options of a signature that `self.request` shows."""
    shown: Message = {**(stamps or {})}
    if "eta" in own or "countdown" in own:
        shown["eta"] = _iso(own.get("eta") or own["countdown"])
    if "expires" in own:
        shown["expires"] = _iso(own["expires"])
    if own.get("priority"):
        shown["priority"] = own["priority"]
    return shown


def _iso(when: float | datetime | str) -> str:
    if isinstance(when, int | float):
        when = datetime.now(UTC) + timedelta(seconds=when)
    return when.isoformat() if isinstance(when, datetime) else when


def _when(
    options: SubmitOptions, own: SignatureOptions, keys: tuple[str, ...], call: KeyedCall | None
) -> tuple[str, Arg]:
    """Return `when_busy`, and when the job may start (`validation.start`), 0 = now."""
    policy = options.get("when_busy", "queue")
    when_busy = policy if policy == "queue" else _when_busy(policy, keys)
    named = options.get("not_before")
    if named is not None:
        start: Arg = validation.epoch_ms(named)
    elif "eta" in own:
        start = validation.start("eta", own["eta"])
    elif "countdown" in own:
        start = validation.start("countdown", own["countdown"])
    else:
        return when_busy, 0
    if when_busy != "queue" and call is None:
        raise InvalidJob(f"when_busy={when_busy!r} looks at the lane now: not with not_before, eta or countdown")
    return when_busy, start


def _when_busy(policies: object, keys: tuple[str, ...]) -> str:
    """Write `when_busy` as JobRequest keeps it."""
    if not isinstance(policies, Mapping):
        return validation.one_of("when_busy", cast(str, policies), WHEN_BUSY)
    if set(policies) != set(keys):
        raise InvalidJob(f"when_busy names {sorted(map(str, policies))}: name each key of the job, and no other")
    for policy in policies.values():
        validation.one_of("when_busy of a key", policy, WHEN_BUSY[:2])
    places = [str(place) for place, key in enumerate(keys, 1) if policies[key] == "skip"]
    if len(places) in (0, len(keys)):
        return "skip" if places else "queue"
    return " ".join(["skip", *places])


def _id(options: SubmitOptions, own: SignatureOptions) -> str:
    job_id = options.get("job_id")
    if job_id is None:
        job_id = own.get("task_id")
    return str(uuid.uuid4()) if job_id is None else validation.check_id(job_id)


def _priority(options: SubmitOptions, own: SignatureOptions) -> int:
    priority = options.get("priority")
    if priority is None:
        priority = own.get("priority")
    return 0 if priority is None else validation.priority(priority)


def _room(options: SubmitOptions) -> Arg:
    most = options.get("max_waiting")
    return "" if most is None else validation.count("max_waiting", most, 1)


def _merge_args(options: SubmitOptions, spec: Spec) -> dict[str, list[str] | None]:
    """The texts to merge. Takes them out of the task's arguments, since the claim adds them."""
    united = validation.texts_by_name("merge_args", options["merge_args"]) if "merge_args" in options else {}
    if not united:
        return {}
    if "steps" in spec:
        raise InvalidJob("merge_args is for a job of one task")
    spec["kwargs"] = {name: value for name, value in spec.get("kwargs", {}).items() if name not in united}
    return united


def _rare(options: SubmitOptions, own: SignatureOptions, plan: chain.ChainPlan, call: KeyedCall | None) -> list[Arg]:
    """Fields that few jobs have: the steps read them only where `seldom` is set."""
    fields: list[Arg] = []
    if plan.number:
        fields += ["step", plan.number]
    if plan.undo:
        fields += ["undo", plan.undo]
    if "on_failure" in options and validation.one_of("on_failure", options["on_failure"], ON_FAILURE) == "hold":
        fields += ["hold", 1]
    if "exclusive" in options and validation.flag("exclusive", options["exclusive"]):
        fields += ["exclusive", "1"]
    if options.get("when_busy") == "replace":
        fields += ["replaces", 1]
    if "expires" in own:
        fields += ["expires", validation.start("expires", own["expires"])]
    if job := working.get():
        fields += ["parent", job.id]
    elif call and "child_of" in call.message:
        fields += ["parent", call.message["child_of"]]
    return fields


def _is_owed(plan: chain.ChainPlan, own: SignatureOptions) -> bool:
    """True if the job's end is to be sent: a result, or links."""
    ignored = own.get("ignore_result")
    result = plan.result if ignored is None else not ignored
    return bool(result or own.get("link") or own.get("link_error"))


def _spec(plan: chain.ChainPlan, own: SignatureOptions, options: SubmitOptions) -> Spec:
    """Add the options of the signature and of the submit to the plan's spec."""
    spec = plan.spec
    if own.get("link"):
        spec["link"] = _links("link", own["link"])
    if own.get("link_error"):
        spec["link_error"] = _links("link_error", own["link_error"])
    if own.get("headers"):
        spec["headers"] = own["headers"]
    if own.get("shadow"):
        spec["shadow"] = own["shadow"]
    if (ignored := own.get("ignore_result")) or (ignored is False and not plan.result):
        spec["ignore_result"] = ignored
    if (delay := options.get("retry_delay")) is not None:
        spec["retry_delay"] = validation.delays(delay)
    if kinds := options.get("retry_on", ()):
        spec["retry_on"] = validation.names_of_errors("retry_on", kinds)
    if "max_attempts" not in options:
        spec["free"] = 1
    return spec


def _links(name: str, value: object) -> list[Signature]:
    """Check links; `set(link=…)` keeps a single signature outside a list."""
    links = list(value) if isinstance(value, list | tuple) else [value]
    for link in links:
        if not isinstance(link, Mapping) or not isinstance(link.get("task"), str):
            raise InvalidJob(f"{name} is no signature of a task: {link!r}")
    return cast(list[Signature], links)
