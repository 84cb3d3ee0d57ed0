"""The parts of which the dashboard's pages are made, both its own and those of extensions (`Extension.pages`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, cast

from coordinator.core.author import Acting, Author
from coordinator.core.verbs import Reading, Verb
from coordinator.errors import InvalidJob

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator

T = TypeVar("T")
LONGEST = 2000  # characters of one value in a URL or a form
_NAMES = ("holder", "id", "instance", "key", "name")


@dataclass(frozen=True, slots=True)
class Query:
    """A request for a page or an act: the values of its URL or form, and its author.

    `kept`: the cache of `keep`, which all requests share. `path`: of the page. `token`: value of the field `_token` in
    the page's forms; "" before a login, and in the part of the page that is sent again. `session`: whether the session
    of a login with the token has a name; "" for another login.
    """

    coordinator: Coordinator
    values: Mapping[str, str]
    author: Author
    kept: dict[str, tuple[float, object]] = field(default_factory=dict)
    path: str = "/"
    token: str = ""
    session: Literal["", "named", "unnamed"] = ""

    def keep(self, name: str, seconds: float, read: Callable[[], T]) -> T:
        """Return what `read` returns, or what it returned for any request within the last `seconds`, under this `name`:
        for values that are expensive to read and change slowly.
        """
        till, value = self.kept.get(name, (0.0, None))
        if time.monotonic() > till:
            value = read()
            for over in [one for one, (end, _) in [*self.kept.items()] if time.monotonic() > end]:
                self.kept.pop(over, None)
            self.kept[name] = time.monotonic() + seconds, value
        return cast(T, value)

    def text(self, name: str, default: str = "") -> str:
        """Return a value of the request; of several, each in a line. Blanks around it are removed, except from keys,
        ids and names, which may begin or end with blanks. Raises InvalidJob where a value has more than 2,000
        characters.
        """
        value = self.values.get(name, default)
        value = value if name in _NAMES else value.strip()
        if (length := max(map(len, value.split("\n")))) > LONGEST:
            raise InvalidJob(f"{name} has {length} characters; give at most {LONGEST}")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a value of the request as a whole number from `least` to `most`. Raises InvalidJob for another one."""
        value = self.text(name) or str(default)
        try:
            if least <= (number := int(value)) <= most:
                return number
        except ValueError:
            pass
        raise InvalidJob(f"{name} is a whole number from {least} to {most}, not {value:.40}")

    def acting(self) -> Acting:
        """Return the reason and the ticket of an act. The act's author comes from the context in which code runs."""
        return Acting(why=self.text("why"), ticket=self.text("ticket"))


@dataclass(frozen=True, slots=True)
class Page:
    """What a view returns: the name of a template, the title for the browser, and the values that the template shows.

    The template begins with `{% extends frame %}` and fills the block `live`, which is sent again when it changes, and
    the block `filter` above `live`, which is sent once. A template can also use `ui`, the macros of macros.html, and
    `url(path, **values)`, which returns the address of a page.

    `later`: reads more values, for a page that shows the first ones at once. The browser gets what stands above
    `{% set rest = later() %}` before they are read. `rest` has them, and in `rest.error` why they cannot be read.
    """

    template: str
    title: str
    values: Mapping[str, object] = field(default_factory=dict)
    status: int = 200
    later: Callable[[], Mapping[str, object]] | None = None


def values_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Read the values of a URL or a form. A name that comes several times has each of its values in a line."""
    values: dict[str, str] = {}
    for name, value in pairs:
        values[name] = f"{values[name]}\n{value}" if values.get(name) else value
    return values


View = Callable[[Query], Page]


class Hit(NamedTuple):
    """Something that the search found: its kind, such as `job`, its name, and the path of its page with the values that
    the page's address has.
    """

    kind: str
    name: str
    path: str
    values: Mapping[str, str]


Finder = Callable[[Query, str], Iterable[Hit]]
"""Finds what has a name, or one that begins so."""


@dataclass(frozen=True, slots=True)
class Tab:
    """An entry of the bar at the top of each page. `path`: of the page to which the entry leads, such as `/members`.
    `also`: paths of other pages on which the entry is marked as the present one.
    """

    title: str
    path: str
    also: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of an extension: entries of the bar, a view for each path, and a folder of templates.

    `verbs`, `readings`: those that the extension adds to the dashboard's acts and to `/api`. `finders`: what the search
    asks besides its own.
    """

    tabs: Sequence[Tab] = ()
    views: Mapping[str, View] = field(default_factory=dict)
    templates: Path | None = None
    verbs: Iterable[Verb] = ()
    readings: Iterable[Reading] = ()
    finders: Sequence[Finder] = ()
