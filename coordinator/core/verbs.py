"""Declares verbs (what operators do) and readings (what they read): once each, with a decorator of the function.

    @verb(JOB, PRIORITY, TO, tell=_moved, many=True, plan=True)
    def move(self, job_id: str, *, priority: int | None = None, to: End = "back", **acting: Unpack[Acting]) -> State:
        \"\"\"Move a job that was not started to the back or the front of its priority, or of another one.\"\"\"

From the declaration are built: the command, the form and the JSON route of the dashboard, the method of the asyncio
coordinator, the command that `why` suggests, and the entry in docs/commands.md. The first paragraph of the function's
docstring is the help text of all of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import getdoc
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from coordinator.core.author import refuses_viewers
from coordinator.core.store.values import Json
from coordinator.errors import InvalidJob

F = TypeVar("F", bound=Callable[..., object])
AnyCoordinator: TypeAlias = Any
"""A Coordinator: `coordinator.py` imports this module, so this module cannot import the class."""
Given = dict[str, Any]
"""The arguments of a call, by the names of the function's parameters; without `why`, `by` and `ticket`."""
Host = Callable[[AnyCoordinator, Given], object]
"""Returns the object whose method a verb or reading is, for a coordinator and the arguments of the call."""
Answer = tuple[Mapping[str, Json], str]
"""What a verb did: values for programs, and a sentence for people."""


class Thing(NamedTuple):
    """A kind of object that verbs act on, such as a job or a lane.

    `parameters`: the parameters of the function that identify the object. `names`: what these parameters are called in
    JSON, in forms and in URLs. `metavars`: what they are called in the help of commands. `page`: the path of the
    dashboard's page about such an object.
    """

    kind: str
    parameters: tuple[str, ...]
    names: tuple[str, ...]
    metavars: tuple[str, ...]
    page: str


JOB = Thing("job", ("job_id",), ("id",), ("ID",), "/job")
LANE = Thing("lane", ("key",), ("key",), ("KEY",), "/lane")
NODE = Thing("node", ("node",), ("name",), ("NODE",), "/node")
ENTRY = Thing("entry", ("name",), ("name",), ("NAME",), "/entry")
SORTER = Thing("sorter", ("name",), ("name",), ("NAME",), "/sorters")
REQUEST = Thing("request", ("request_id",), ("id",), ("ID",), "/refused")
INSTANCE = Thing("instance", ("key", "instance"), ("key", "instance"), ("KEY", "INSTANCE"), "/grabs")
TASK = Thing("task", ("old",), ("old",), ("OLD",), "/jobs")
EVENT = Thing("event", ("name",), ("name",), ("NAME",), "/event")
GROUP = Thing("group", ("group",), ("group",), ("GROUP",), "/quotas")
QUOTA = Thing("quota", ("name",), ("name",), ("NAME",), "/quota")
FINDING = Thing("finding", ("code",), ("code",), ("CODE",), "/")
NOTHING = Thing("", (), (), (), "/")


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter of a verb or a reading, besides those that identify its `thing`.

    `kind`: the type of the value: str, int, float, bool, or list, dict or object (any value), written as JSON.
    `choices`: the possible values, with the words that people read. `least`, `most`: bounds of a number; None:
    unbounded. `argument`: True if the command takes the value as an argument; otherwise as the option `--name`, or as
    `flag` where that is set. `form`: where forms have it: `field` for an input field, `hidden` for a value from the
    link to the form, "" for no place: then only programs can set it. `several`: True for a list of texts: a URL and a
    command repeat the name.
    """

    name: str
    help: str = ""
    label: str = ""
    kind: type = str
    default: object = None
    choices: Mapping[str, str] | None = None
    least: float | None = None
    most: float | None = None
    argument: bool = False
    metavar: str | None = None
    flag: str = ""
    form: str = "field"
    several: bool = False

    @property
    def title(self) -> str:
        return self.label or self.name.replace("_", " ").capitalize()

    @property
    def placeholder(self) -> str:
        """The word that stands for the value in the help of commands, such as `KEY`."""
        return self.metavar or self.name.upper()

    @property
    def flagged(self) -> str:
        """The name of the command's option, such as `--max-wait`."""
        return self.flag or f"--{self.name.replace('_', '-')}"

    @property
    def text(self) -> str:
        """The default as text, as a form shows it; "" for None."""
        if self.kind in (list, dict):
            return json.dumps(self.default or self.kind())
        return "" if self.default is None else str(self.default)

    def read(self, text: str) -> object:
        """Convert text from a form, a URL or JSON into the value; "" gives the default. Raises InvalidJob, which names
        the option.
        """
        if text == "":
            return "" if self.argument and self.kind is str and self.default is None else self.default
        if self.several:
            return text.split("\n")
        if self.choices is not None and text not in self.choices:
            raise InvalidJob(f"{self.name} is one of {', '.join(self.choices)}, not {text:.40}")
        if self.kind in (int, float):
            return self._number(text)
        if self.kind is bool:
            return text.lower() in ("true", "1", "on", "yes")
        return self.of_json(text) if self.kind in (list, dict, object) else text

    def of_json(self, text: str) -> object:
        """Parse the JSON of an option whose `kind` is list, dict or object. Raises InvalidJob for anything else."""
        what = "list" if self.kind is list else "object" if self.kind is dict else "value"
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InvalidJob(f"{self.name} is a JSON {what}: {error}") from error
        if not isinstance(value, self.kind):
            raise InvalidJob(f"{self.name} is a JSON {what}, not {text:.40}")
        return value

    def _number(self, text: str) -> float:
        try:
            number = self.kind(text)
            if (self.least is None or self.least <= number) and (self.most is None or number <= self.most):
                return float(number) if self.kind is float else int(number)
        except ValueError:
            pass
        bounds = "" if self.least is None else f" from {self.least:g}"
        bounds += "" if self.most is None else f" to {self.most:g}"
        raise InvalidJob(f"{self.name} is a {'whole ' * (self.kind is int)}number{bounds}, not {text:.40}")


MOST = Option("most", "At most so many.", kind=int, default=100, least=1, most=1000)
AFTER = Option("after", "The page behind the one that names this cursor.", default="", metavar="CURSOR")


def own(coordinator: object, given: Given) -> object:
    """The default `host` of verbs and readings: the function is a method of the coordinator itself."""
    return coordinator


@dataclass(frozen=True)
class Reading:
    """The declaration of a function that reads something for operators. The dashboard serves it under `/api/<name>`.

    `thing`, `options`: the parameters of `function`. `host`: returns the object whose method `function` is, from the
    coordinator and the arguments, and may remove arguments that it uses itself; None if `function` is not a method.
    `blocks`: True if the function calls more than the coordinator's Redis: asyncio then runs it in a thread.
    """

    name: str
    function: Callable[..., object]
    thing: Thing = NOTHING
    options: tuple[Option, ...] = ()
    host: Host | None = own
    blocks: bool = False

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the function, each with its name in JSON, forms and URLs."""
        things = dict(zip(self.thing.parameters, self.thing.names, strict=True))
        return things | {option.name: option.name for option in self.options}

    @cached_property
    def help(self) -> str:
        """The help text: the first paragraph of the function's docstring, in one line."""
        return " ".join((getdoc(self.function) or "").split("\n\n")[0].split())

    def given(self, text: Callable[[str], str]) -> Given:
        """Convert the texts of a form or URL into the arguments of the function. `text(name)` returns the text for a
        name in JSON, forms and URLs; "" if it is missing. Raises InvalidJob.
        """
        things = {own: text(name) for own, name in zip(self.thing.parameters, self.thing.names, strict=True)}
        return things | {option.name: option.read(text(option.name)) for option in self.options}

    def call(self, coordinator: object, given: Mapping[str, object]) -> object:
        left = dict(given)
        call = getattr(self.host(coordinator, left), self.function.__name__) if self.host else self.function
        return call(**left)


Tell = Callable[[AnyCoordinator, Given, Any], Answer]
Plans = Callable[[AnyCoordinator, Given], Any]


@dataclass(frozen=True)
class Verb(Reading):
    """The declaration of a function by which an operator changes something.

    `command`: the words after `coordinator` on the command line. `title`: the text of the button. `tell`: builds the
    Answer from the coordinator, the arguments and the function's return value. `grave`: True if the verb ends or loses
    work. `many`: True if it can also act on all jobs that a filter finds. `plan`: returns what a call would do, as a
    Plan or as lines of text; None if the help text says all.
    """

    command: str = ""
    title: str = ""
    tell: Tell = lambda coordinator, given, answer: ({}, str(answer))
    grave: bool = False
    many: bool = False
    plan: Plans | None = None

    def steps(self, coordinator: object, given: Given, acting: Mapping[str, object]) -> Iterator[object]:
        """Run the verb with the arguments `given`, and `acting` (why, by, ticket). Yields the progress where the
        function is a generator, and the Answer at the end.
        """
        answer = self.call(coordinator, {**given, **acting})
        if isinstance(answer, Generator):
            answer = yield from answer
        yield self.tell(coordinator, given, answer)

    def act(self, coordinator: object, given: Given, acting: Mapping[str, object]) -> Answer:
        """Run the verb with the arguments `given`, and `acting` (why, by, ticket), and return its Answer."""
        *_, answer = self.steps(coordinator, given, acting)
        return cast(Answer, answer)

    def line(self, given: Mapping[str, str], written: Callable[[str], str]) -> tuple[str, str]:
        """Return the command line of this verb: the command with its options, and its arguments. `given`: values by
        parameter; an argument without a value stands there by its metavar. `written`: quotes a value for the shell.
        """
        named = [one for one in self.options if one.name in given and not one.argument]
        options = [f"{one.flagged} {written(given[one.name])}" for one in named]
        pairs = [*zip(self.thing.parameters, self.thing.metavars, strict=True)]
        pairs += [(one.name, one.placeholder) for one in self.options if one.argument]
        arguments = [written(given[name]) if name in given else metavar for name, metavar in pairs]
        return " ".join([self.command, *options]), " ".join(arguments)


def verb(
    thing: Thing, *options: Option, tell: Tell, name: str = "", command: str = "", title: str = "", grave: bool = False,
    many: bool = False, plan: Plans | bool = False, host: Host | None = own,
    blocks: bool = False,
) -> Callable[[F], F]:  # fmt: skip
    """Declare the decorated function as a verb; a call by a viewer then raises Forbidden.

    `name`: by default the name of the function, with `-` for `_`. `plan=True`: `coordinator.plan` has a method of the
    same name, which returns the plan. `Thing`, `Option`, `Reading` and `Verb` describe the other parameters.
    """

    def declare(function: F) -> F:
        short = name or function.__name__.replace("_", "-")

        def projected(coordinator: AnyCoordinator, given: Given) -> object:
            return getattr(coordinator.plan, function.__name__)(**given)

        guarded = refuses_viewers(function)
        guarded.verb = Verb(  # type: ignore[attr-defined]
            short, guarded, thing, options, host, blocks, command or short,
            title or short.replace("-", " ").capitalize(), tell, grave, many,
            projected if plan is True else plan or None,
        )  # fmt: skip
        return cast(F, guarded)

    return declare


def reading(
    thing: Thing = NOTHING, *options: Option, name: str = "",
    host: Host | None = own, blocks: bool = False,
) -> Callable[[F], F]:  # fmt: skip
    """Declare the decorated function as a reading. `name`: by default the name of the function, with `-` for `_`.
    `Thing`, `Option` and `Reading` describe the other parameters.
    """

    def declare(function: F) -> F:
        short = name or function.__name__.replace("_", "-")
        function.reading = Reading(short, function, thing, options, host, blocks)  # type: ignore[attr-defined]
        return function

    return declare


def verbs_in(*places: type | ModuleType | Callable[..., object]) -> dict[str, Verb]:
    """Return the verbs that `places` (classes, modules or functions) declare, by name."""
    found = (getattr(value, "verb", None) for value in _values(places))
    return {one.name: one for one in found if isinstance(one, Verb)}


def readings_in(*places: type | ModuleType | Callable[..., object]) -> dict[str, Reading]:
    """Return the readings that `places` (classes, modules or functions) declare, by name."""
    found = (getattr(value, "reading", None) for value in _values(places))
    return {one.name: one for one in found if isinstance(one, Reading)}


def _values(places: Iterable[object]) -> Iterator[object]:
    for place in places:
        if isinstance(place, type):
            yield from (value for part in reversed(place.__mro__) for value in vars(part).values())
        else:
            yield from vars(place).values() if isinstance(place, ModuleType) else (place,)
