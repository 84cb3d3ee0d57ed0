"""Checks a submit as a whole before anything is written, and makes the arguments of `job_submit`, the function in Redis
that writes the job.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from kombu.utils.json import dumps

from coordinator.core.author import author
from coordinator.core.jobs import chain, collecting, instances, validation
from coordinator.core.jobs.after import text_of_after
from coordinator.core.jobs.collecting import Terms
from coordinator.core.jobs.current import working
from coordinator.core.jobs.encoding import encode, in_order
from coordinator.core.jobs.options import KEEP, JobDefaults, SubmitOptions, Use
from coordinator.core.jobs.spec import Message, Signature, SignatureOptions, Spec, StepSpec
from coordinator.core.jobs.uses import rate_quota, read_uses, text_of_uses
from coordinator.core.store.times import milliseconds
from coordinator.core.store.wire import Arg
from coordinator.errors import InvalidJob

if TYPE_CHECKING:
    from coordinator.core.settings import Settings

WHEN_BUSY = ("queue", "skip", "defer", "replace")
ON_FAILURE = ("release", "hold")
UNKNOWN = ("refuse", "wait")
TELL_COALESCED = 2  # the field `tell` of a job whose result also goes to the submits that coalesced into the job

_KNOWN = SubmitOptions.__annotations__.keys()
_SHORT = 64  # bytes of a value that Redis keeps in the small form of a hash
_AUTHOR = 14  # characters kept of an author, so that the field `by` with its name takes 20 bytes in Redis
# The parts of a spec that say where the result goes; two calls of a keyed task are equal whatever these are.
_OF_RESULT = {"message", "link", "link_error", "headers", "shadow", "ignore_result"}
_HONOURED = SignatureOptions.__annotations__.keys()


@dataclass(slots=True)  # not frozen, which is faster: each submit makes one
class JobRequest:
    """A checked submit.

    `when_busy`: the option as a text; `skip` looks whether any of the keys is busy, `skip 1 3` only at the first and
    the third; `collect …` are the `Terms` of a collector. `not_before`: ms since the epoch, or `+<ms>` from now; 0 = at
    once. `room`: the option `max_waiting`, "" where it is not set. `fields`: names and values of the record, in turns.
    """

    id: str
    keys: tuple[str, ...]
    when_busy: str
    priority: int
    not_before: Arg
    room: Arg
    fields: tuple[Arg, ...]

    @property
    def after(self) -> str:
        """The field `after`; "" where the job waits for nothing."""
        return str(dict(zip(self.fields[::2], self.fields[1::2], strict=True)).get("after", ""))

    def step_args(self) -> tuple[str, str, str, int, Arg, Arg, *tuple[Arg, ...]]:
        """The arguments of `job_submit`, the function in Redis that writes the job."""
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
    """What the call of a keyed task adds to a submit.

    `message`: the other values that the Celery message would have carried. `awaited`: True if a caller may wait for a
    result under the id of this call, so that a skipped or coalesced call stores its result under that id, too.
    """

    message: Message
    awaited: bool


class RequestMaker:
    """Checks the submits of one app, and makes a `JobRequest` of each.

    `target`: the app and the defaults of its tasks. `trusting`: the same for submits with `if_unknown="wait"`, which
    accept a task that neither this process nor any node has yet; None: the same defaults.
    """

    def __init__(self, settings: Settings, target: JobDefaults, trusting: JobDefaults | None = None) -> None:
        self._target, self._trusting = target, trusting or target
        self._most = settings.max_payload
        self._losses = settings.max_losses
        self._open = settings.quota_unknown == "open"
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
        """Check a submit, and return the request that writes its job. Raises InvalidJob, which names the fault.

        `unchecked`: the signature that the caller passed. `call`: set where the submit is a call of a keyed task.
        `stamps`: stamps of the signature, for `self.request`.
        """
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
        terms = self._terms(options, own, lanes)
        when_busy, start = _when(options, own, lanes, call)
        waits = "if_unknown" in options and validation.one_of("if_unknown", options["if_unknown"], UNKNOWN) == "wait"
        plan = chain.plan(signature, own, self._trusting if waits else self._target, options)
        own = {**plan.own, **own}
        spec = _spec(plan, own, options)
        of_calls: list[Arg] = []
        if terms:
            when_busy, of_calls = _collected(terms, signature, spec)
        if message := call.message if call else _shown(own, stamps):
            spec["message"] = message
        text = encode(signature["task"], spec, self._most)
        first = plan.first
        fields: list[Arg] = ["class", first.kind, "task", first.task, "spec", text]
        fields += ["limits", self._limits(first.limit, options), "by", author().name[:_AUTHOR]]
        if _is_owed(plan, own):
            fields += ["tell", TELL_COALESCED if when_busy == "defer" else 1]
        if when_busy == "defer":
            same = (first.kind, first.task, in_order(dumps(_alike(spec, call))), *lanes)
            fields += ["equal", uuid.uuid5(uuid.NAMESPACE_OID, "\n".join(same)).hex]
        fields += of_calls
        rare, uses = [*_rare(options, own, plan, call), *of_grab], self._uses(options, lanes, first)
        if rare or uses:
            fields += ["seldom", _seldom(bool(rare), uses), *rare, *uses]
        fields += _expected(own, call, when_busy, terms)
        if number := _priority(options, own):
            fields += ["priority", number]
        return JobRequest(_id(options, own), lanes, when_busy, number, start, _room(options), tuple(fields))

    def in_place_of_a_step(self, signature: Signature, needs: list[str], before: int = 0) -> list[StepSpec]:
        """Check the call, chain or canvas that `self.replace` or `wait_for` puts in the place of a job's current step,
        and return its steps. `needs`: the labels of the current step; `before`: 1 if the first gets the value of an
        event. Raises InvalidJob.
        """
        return chain.in_place_of_a_step(signature, self._target, needs, before)

    def _limits(self, hard: int, options: SubmitOptions) -> str:
        """Make the field `limits` of the record (functions/rules/record.lua). `hard`: time limit in ms, 0 = none."""
        attempts, losses, lifetime = 1, self._losses, self._lifetime
        if "max_attempts" in options:
            attempts = validation.count("max_attempts", options["max_attempts"], 1)
        if (number := options.get("max_losses")) is not None:
            losses = validation.count("max_losses", number)
        if (seconds := options.get("max_lifetime")) is not None:
            lifetime = milliseconds(validation.limit("max_lifetime", seconds))
        return f"{attempts} {losses} {hard} {lifetime} {self._kept}"

    def _place(self, keys: str | Sequence[str], options: SubmitOptions) -> tuple[tuple[str, ...], list[Arg]]:
        """Check keys and instance. Return the keys of the job's lanes, and the fields of the record that depend on
        them.
        """
        fair_by = self._target.fair_by
        if options.get("instance") is None:
            if "keep_instance" in options:
                raise InvalidJob("keep_instance is for a submit with an instance")
            if isinstance(keys, list | tuple) and not keys:
                return (), []
            lanes = validation.check_keys(keys)
            return lanes, ["group", validation.group(lanes[0], fair_by(lanes[0]))] if fair_by else []
        if any(options.get(name, "queue") not in ("queue", None) for name in ("when_busy", "max_waiting", "collect")):
            raise InvalidJob(
                "a submit with an instance never waits in line: it takes no when_busy, no max_waiting and no collect"
            )
        key, lane, keep = instances.checked_submit(keys, options["instance"], options.get("keep_instance", KEEP))
        group = validation.group(key, fair_by(key)) if fair_by else key[: max(0, key.find("/"))]
        return (lane,), ["grab", keep, "group", group]

    def _terms(self, options: SubmitOptions, own: SignatureOptions, lanes: tuple[str, ...]) -> Terms | None:
        """Check the option `collect`, and that nothing beside it says otherwise when the job goes into line."""
        if (option := options.get("collect")) is None:
            return None
        terms = collecting.read_terms(option, self._most)
        if not lanes:
            raise InvalidJob("collect gathers the calls of a lane: name a key")
        if options.get("when_busy", "queue") != "queue":
            raise InvalidJob("collect takes no when_busy: calls coalesce into the job that collects; leave one out")
        if options.get("not_before") is not None or "eta" in own or "countdown" in own:
            raise InvalidJob(
                "collect takes no not_before, eta or countdown: idle and max_wait say when the job goes into line"
            )
        return terms

    def _uses(self, options: SubmitOptions, lanes: tuple[str, ...], step: chain.Step) -> list[Arg]:
        """The field `uses`. A job in no lane uses a quota, and nothing that depends on a lane."""
        uses = _uses_of(options)
        rate = text_of_uses({rate_quota(step.task): Use()}, open_=True, rate=step.rate) if step.rate else ""
        exclusive = "exclusive" in options and validation.flag("exclusive", options["exclusive"])
        if exclusive and not uses:
            raise InvalidJob(
                "exclusive: the job uses all of its quotas, so name them: uses='…'; a lane is one at a time"
            )
        if not lanes and not uses and not rate:
            raise InvalidJob("a job without a key stands in no lane: name a quota that it uses, uses='…', or a key")
        if not lanes and options.get("when_busy", "queue") != "queue":
            raise InvalidJob(f"when_busy={options['when_busy']!r} is about lanes: name a key")
        lines = [*text_of_uses(uses, exclusive, self._open).split("\n"), rate] if uses else [rate]
        text = "\n".join(sorted(filter(None, lines), key=lambda line: line.split(" ", 2)[2].encode()))
        return ["uses", text] if text else []


def _uses_of(options: SubmitOptions) -> dict[str, Use]:
    uses = options.get("uses")
    return {} if uses is None else read_uses(uses)


def check_options(options: Mapping[str, object]) -> None:
    """Raise InvalidJob for an unknown option. The error lists the known ones, or says that the signature takes the
    option.
    """
    if not options.keys() <= _KNOWN:
        unknown = ", ".join(f"{name!r}{_way_out(name)}" for name in options if name not in _KNOWN)
        raise InvalidJob(f"got an unexpected option {unknown}; options of submit: {', '.join(sorted(_KNOWN))}")


def _way_out(name: str) -> str:
    if name in ("args", "kwargs"):
        return " (the signature has the arguments: write task.s(…))"
    if name in ("outbox", "session", "using"):
        return " (it belongs to submit_on_commit)"
    if name in _HONOURED and name != "task_id":
        return f" (the signature has it: write task.s(…).set({name}=…))"
    return validation.near(name, _KNOWN)


def check_signature(unchecked: object) -> tuple[Signature, SignatureOptions]:
    """Check that `unchecked` is a Celery signature that can be a job; return the signature, and its options without
    those that are None. Raises InvalidJob, which names each option that does not work in a job.
    """
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
    """The part of a spec in which two submits must agree to coalesce. For calls of keyed tasks, it leaves out where the
    result goes.
    """
    but = _OF_RESULT if call else {"message"}
    return cast(Spec, {name: value for name, value in spec.items() if name not in but})


def _shown(own: SignatureOptions, stamps: Message | None) -> Message:
    """The values of a signature's options and stamps that only `self.request` needs, as a Celery message has them."""
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
    """Return `when_busy` as text, and when the job may start: ms since the epoch, `+<ms>` from now, or 0 = at once."""
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
        raise InvalidJob(f"when_busy={when_busy!r} depends on the lane now: it takes no not_before, eta or countdown")
    return when_busy, start


def _when_busy(policies: object, keys: tuple[str, ...]) -> str:
    """Check the option `when_busy`, which may be a mapping by key, and write it as `JobRequest.when_busy`."""
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


def _expected(own: SignatureOptions, call: KeyedCall | None, when_busy: str, terms: Terms | None) -> list[Arg]:
    """The field `expected`: 1 if the call asks for the result of the job into which it may coalesce, or for which it
    may be skipped.
    """
    if terms:
        asks = call.awaited if call else own.get("link") or own.get("link_error")
        return ["expected", 1] if asks else []
    return ["expected", int(call.awaited)] if call and when_busy in ("skip", "defer") else []


def _collected(terms: Terms, signature: Signature, spec: Spec) -> tuple[str, list[Arg]]:
    """Move the arguments of a call from its `spec` into the field `calls`. Returns the argument `when_busy` of the
    step, and the fields of the record.
    """
    if "steps" in spec:
        raise InvalidJob("collect is for calls of one task: collect(key, task.s(…))")
    args, kwargs = spec.pop("args", []), spec.pop("kwargs", {})
    if terms.how == "list":  # the body gets the list of calls, so these are not its arguments
        args, kwargs = list(signature.get("args") or ()), dict(signature.get("kwargs") or {})
    calls, alike = collecting.written(signature["task"], terms, (args, kwargs))
    return terms.text(alike), ["calls", calls, *(["equal", collecting.EQUAL] if terms.most > 1 else [])]


def _after(options: SubmitOptions, plan: chain.ChainPlan) -> list[Arg]:
    """The field `after`. The job stands in no line while it waits, so options that depend on a line are refused."""
    if options.get("after") is None:
        if "on_failure_of" in options:
            raise InvalidJob("on_failure_of is for a submit with after")
        return []
    if any(options.get(name, "queue") not in ("queue", None) for name in ("when_busy", "max_waiting", "collect")):
        raise InvalidJob("a job with after stands in no line yet: it takes no when_busy, no max_waiting and no collect")
    if options.get("instance") is not None:
        raise InvalidJob("a submit with an instance begins at once: it takes no after")
    step = chain.step_spec(plan.spec, plan.number)
    if "canvas" in step and isinstance(options["after"], Mapping):
        raise InvalidJob("after cannot hand results on to a group or chord: begin with a task that takes them")
    policy = options.get("on_failure_of", "fail")
    return ["after", text_of_after(options["after"], policy, step.get("kwargs", {}))]


def _seldom(rare: bool, uses: Sequence[Arg]) -> Arg:
    """What tells the steps of rare fields: the text itself of `uses`, where that is the only one and short."""
    text = str(uses[1]) if uses else ""
    return 1 if rare or not 0 < len(text.encode()) < _SHORT else text


def _rare(options: SubmitOptions, own: SignatureOptions, plan: chain.ChainPlan, call: KeyedCall | None) -> list[Arg]:
    """Make the fields that few jobs have. The functions in Redis read them only where the field `seldom` is set."""
    fields: list[Arg] = []
    if plan.number:
        fields += ["step", plan.number]
    if plan.undo:
        fields += ["undo", plan.undo]
    if "on_failure" in options and validation.one_of("on_failure", options["on_failure"], ON_FAILURE) == "hold":
        fields += ["hold", 1]
    if options.get("when_busy") == "replace":
        fields += ["replaces", 1]
    if "expires" in own:
        fields += ["expires", validation.start("expires", own["expires"])]
    if job := working.get():
        fields += ["parent", job.id]
    elif call and "child_of" in call.message:
        fields += ["parent", call.message["child_of"]]
    return fields + _after(options, plan)


def _is_owed(plan: chain.ChainPlan, own: SignatureOptions) -> bool:
    """True if something is to be sent when the job has ended: its result to the result backend, or its links."""
    ignored = own.get("ignore_result")
    result = plan.result if ignored is None else not ignored
    return bool(result or own.get("link") or own.get("link_error"))


def _spec(plan: chain.ChainPlan, own: SignatureOptions, options: SubmitOptions) -> Spec:
    """Return the spec of a job: that of its steps, with the options of the signature and of the submit added."""
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
    """Check the option `link` or `link_error` and return it as a list; Celery keeps a single one without a list."""
    links = list(value) if isinstance(value, list | tuple) else [value]
    for link in links:
        if not isinstance(link, Mapping) or not isinstance(link.get("task"), str):
            raise InvalidJob(f"{name} is no signature of a task: {link!r}")
    return cast(list[Signature], links)
