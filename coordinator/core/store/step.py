"""Declares steps, the functions of the library in Redis: once each, by a signature in Python.

From a declaration come the Python function that runs the step, with types for type checkers; the unpacking of the
arguments in Lua (`library.py`); and a row of docs/redis.md. The docstring of a declaration says what the step does,
what its parameters mean, what it answers, and, after the words "Asked again", what a repeated call answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from coordinator.core.store.wire import Arg

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Reply: TypeAlias = Any  # a reply as Redis sends it: bytes, numbers, lists; the caller of the step converts it

_VARARGS = inspect.CO_VARARGS


class Runs(Protocol):
    """The methods of `Store` that run steps."""

    def step(self, name: str, *args: Arg, job_id: str | None = None) -> Reply: ...

    def step_many(self, name: str, calls: Iterable[Sequence[Arg]]) -> list[Reply]: ...

    def look(self, name: str, *args: Arg) -> Reply: ...

    def looking(self, name: str, *args: Arg) -> Sequence[Arg]: ...


class Call(NamedTuple, Generic[R]):
    """A step with the arguments of one call, in the form in which Redis gets them."""

    step: Step[..., R]
    args: tuple[Arg, ...]

    def run(self, store: Runs) -> R:
        """Run the step, and return its converted reply. If the first parameter of the step is `job_id`, an exception
        names that job.
        """
        step, args = self
        named = {"job_id": str(args[0])} if step.names_job else {}
        return step.read(store.step(step.name, *args, **named))


class Step(Generic[P, R]):
    """A declared step; `step(store, …)` runs it.

    `names`: the names of its parameters, the last one with a star if it takes any number of arguments. `count`: the
    number of parameters without a star. `flags`: the indexes of the parameters of type bool. `read`: converts the
    reply.
    """

    def __init__(self, declared: Callable[P, R]) -> None:
        code, types = declared.__code__, declared.__annotations__
        self.name, self.declared = declared.__name__, declared
        self.count = code.co_argcount
        self.rest = bool(code.co_flags & _VARARGS)
        self.parameters: tuple[str, ...] = code.co_varnames[: self.count]
        self.names = (*self.parameters, *([f"*{code.co_varnames[self.count]}"] if self.rest else ()))
        self.names_job = self.parameters[:1] == ("job_id",)
        self.flags = [index for index, name in enumerate(self.parameters) if types[name] == "bool"]
        self._empty = [index for index, name in enumerate(self.parameters) if types[name].endswith("None")]
        self.read: Callable[[Reply], R] = _READS[types["return"]]

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.declared)

    def __call__(self, store: Runs, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.of(*args, **kwargs).run(store)

    def of(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return the call of this step with these arguments, without running the step: for `many` and `Call.run`."""
        given = cast("tuple[Arg, ...]", args)
        if kwargs or len(given) < self.count:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.args
        if self.flags or self._empty:
            sent = list(given)
            for index in self.flags:
                sent[index] = "1" if sent[index] else ""
            for index in self._empty:
                sent[index] = "" if sent[index] is None else sent[index]
            given = tuple(sent)
        return Call(self, given)

    def look(self, store: Runs, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a step that only reads, through redis-py's own client, as `Store.look` describes."""
        return self.read(store.look(self.name, *self.of(*args, **kwargs).args))

    def looking(self, store: Runs, *args: P.args, **kwargs: P.kwargs) -> Sequence[Arg]:
        """Return the command that runs this step, one that only reads, for use in `Store.read_many`: the reply there is
        not converted.
        """
        return store.looking(self.name, *self.of(*args, **kwargs).args)


def step(declared: Callable[P, R]) -> Step[P, R]:
    """Declare a step by the signature of the decorated function, whose body is only a docstring."""
    return Step(declared)


def many(store: Runs, calls: Sequence[Call[R]]) -> list[R | Exception]:
    """Run calls of the same step in one round trip. Returns the reply to each, or the exception that it raised, which
    `Store.checked` translates.
    """
    if not calls:
        return []
    [one] = {call.step for call in calls}
    replies = store.step_many(one.name, [call.args for call in calls])
    return [reply if isinstance(reply, Exception) else one.read(reply) for reply in replies]


def declared_in(module: ModuleType) -> list[Step[..., object]]:
    """Return the steps that `module` declares."""
    return [thing for thing in vars(module).values() if isinstance(thing, Step)]


def _as_sent(reply: Reply) -> Reply:
    return reply


def _texts(reply: Iterable[bytes]) -> list[str]:
    return [text.decode() for text in reply]


_READS: dict[str, Callable[[Reply], Reply]] = {
    "Reply": _as_sent,
    "bool": bool,
    "int": int,
    "list[int]": list,
    "list[str]": _texts,
    "str": bytes.decode,
    "str | None": lambda reply: None if reply is None else reply.decode(),
    "tuple[str, bool]": lambda reply: (reply[0].decode(), bool(reply[1])),
    "tuple[str, str]": lambda reply: tuple(_texts(reply)),
}
