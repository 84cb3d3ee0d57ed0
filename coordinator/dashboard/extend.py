"""The parts of which the dashboard's pages are made, its own and those that an extension adds (`Extension.pages`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from coordinator.author import Acting, Author
from coordinator.dashboard.show import url
from coordinator.errors import InvalidJob
from coordinator.jobs.validation import shown_lane
from coordinator.lanes.bulk import Progress

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator

T = TypeVar("T")
LONGEST = 2000  # characters of one value in a URL or a form
_NAMES = ("holder", "id", "instance", "key", "name")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page or an act: the values of its URL or form, and who asks.

    `path`: of the page. `token`: of the forms on it; "" where nobody has logged in, and in what is sent again.
    """

    coordinator: Coordinator
    values: Mapping[str, str]
    author: Author
    kept: dict[str, tuple[float, object]] = field(default_factory=dict)
    path: str = "/"
    token: str = ""

    def keep(self, name: str, seconds: float, read: Callable[[], T]) -> T:
        """Give what `read` gave for anybody at most so many seconds ago: for what is dear, and changes slowly."""
        till, value = self.kept.get(name, (0.0, None))
        if time.monotonic() > till:
            value = read()
            for over in [one for one, (end, _) in [*self.kept.items()] if time.monotonic() > end]:
                self.kept.pop(over, None)
            self.kept[name] = time.monotonic() + seconds, value
        return cast(T, value)

    def text(self, name: str, default: str = "") -> str:
        """Give a value, without blanks around it unless it names a thing, whose name may have them.

        Raises InvalidJob where it has more than 2,000 characters.
        """
        value = self.values.get(name, default)
        value = value if name in _NAMES else value.strip()
        if len(value) > LONGEST:
            raise InvalidJob(f"{name} has {len(value)} characters; give at most {LONGEST}")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Give a whole number between `least` and `most`. Raises InvalidJob."""
        value = self.text(name) or str(default)
        try:
            if least <= (number := int(value)) <= most:
                return number
        except ValueError:
            pass
        raise InvalidJob(f"{name} is a whole number from {least} to {most}, not {value:.40}")

    def acting(self) -> Acting:
        """Give what an act takes. Its author is the one for whom this code runs."""
        return Acting(why=self.text("why"), ticket=self.text("ticket"))


@dataclass(frozen=True, slots=True)
class Page:
    """What a view gives: a template, the title of the tab, and the values that the template shows.

    The template begins with `{% extends frame %}` and fills the block `live`, which is sent again when it changes, and
    the block `filter` above it, which is not. `ui`: the macros of macros.html; `url(path, **values)`: an address.
    """

    template: str
    title: str
    values: Mapping[str, object] = field(default_factory=dict)
    status: int = 200


View = Callable[[Asked], Page]


@dataclass(frozen=True, slots=True)
class Tab:
    """An entry of the bar. `path`: of its page, `/members`. `also`: paths of pages that belong to it."""

    title: str
    path: str
    also: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """An input of an act's form. `choices`: (value, words); without any, it is a line of text.

    `read`: makes a value of what was sent, where it is no mere text; it raises InvalidJob for what is none.
    """

    name: str
    label: str
    choices: Sequence[tuple[str, str]] = ()
    default: str = ""
    hint: str = ""
    read: Callable[[Asked], object] | None = None

    def value(self, asked: Asked) -> object:
        """The value that was sent."""
        return self.read(asked) if self.read else asked.text(self.name) or self.default


@dataclass(frozen=True, slots=True)
class Act:
    """Something that an operator does to one thing.

    `title`: on the button. `thing`: the names of the values that say what it is done to; the page's link carries them.
    `does`: a sentence, in which `{id}` stands for the value of this name, and `{all}` for all of them. `do`: does it,
    with `asked.acting()`, for the current author, whose role the function that it calls checks; gives a sentence about
    what happened, or Markup. `back`: the path of the page to go on with, which has the same values in its address.
    `plan`: the things that would be hit, one line each. `grave`: it ends or loses work. `needs`: so many of `thing`,
    the first ones, must have a value. An act that takes long gives its progress first, an object with `done` and
    `total`, as often as it likes, and then the sentence.
    """

    title: str
    thing: Sequence[str]
    does: str
    do: Callable[[Asked], str | Iterable[str | Progress]]
    back: str
    plan: Callable[[Asked], Sequence[str]] | None = None
    fields: Sequence[Field] = ()
    grave: bool = False
    needs: int = 1

    def sentence(self, asked: Asked) -> str:
        """What it does to the thing that was asked for."""
        values = {name: shown_lane(asked.text(name)) for name in self.thing}
        named = ", ".join(f"{name} {value}" for name, value in values.items() if value)
        return self.does.format_map({**values, "all": named or "nothing is named"})

    def address(self, asked: Asked) -> str:
        """The page to go on with."""
        return url(self.back, **{name: asked.text(name) for name in self.thing})


@dataclass(frozen=True, slots=True)
class Reading:
    """What `/api/<path>` gives: the type of the answer, the function that reads it, the values in the URL.

    Dataclasses in the type become models of the OpenAPI document.
    """

    kind: object
    read: Callable[[Asked], object]
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of an extension: entries of the bar, a view for each path, acts by name, a folder of templates.

    `readings`: what it adds to `/api`, by path.
    """

    tabs: Sequence[Tab]
    views: Mapping[str, View]
    acts: Mapping[str, Act] = field(default_factory=dict)
    templates: Path | None = None
    readings: Mapping[str, Reading] = field(default_factory=dict)
