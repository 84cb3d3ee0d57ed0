"""A defect that is planted into the library in memory, at a place that it names."""

import re
from typing import NamedTuple

# A function or a step of a file of Lua: in one line, or up to the first `end` at the margin.
_FUNCTION = r"^(?:(?:local )?function (?:\w+\.)?{0}\(|step\.define\('{0}',)(?:[^\n]* end$|.*?^end\b)"


class Mutant(NamedTuple):
    """`place`: a file of the library, or a function or step in it, as `settle.release`; `old`: a text of which there is
    one in that place. `new` stands there instead; without it the line of `old` goes.
    """

    place: str
    why: str
    old: str
    new: str | None = None

    @classmethod
    def of(cls, place: str, why: str, old: str, new: str) -> "Mutant":
        """From the cells of its row."""
        words = {"its line goes": None, "nothing": ""}
        return cls(_code(place), why, _code(old), words[new] if new in words else _code(new))

    @property
    def file(self) -> str:
        return self.place.partition(".")[0]

    def plant(self, text: str) -> str:
        """LookupError if the place or the text is not there, or not once."""
        name = self.place.partition(".")[2]
        bodies = re.findall(_FUNCTION.format(name), text, re.MULTILINE | re.DOTALL) if name else [text]
        if [body.count(self.old) for body in bodies] != [1]:
            raise LookupError(f"{self.why}: {self.old!r} is not there once in {self.place}")
        (body,) = bodies
        before, _, after = body.partition(self.old)
        if self.new is None:
            before, after = before.rpartition("\n")[0], "\n" + after.partition("\n")[2]
        return text.replace(body, before + (self.new or "") + after)


def _code(cell: str) -> str:
    (text,) = re.findall("^`(.*)`$", cell)
    return str(text).replace("⏎", "\n")
