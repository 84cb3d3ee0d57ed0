"""The harmed folders of one program, and what each came to."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from threading import Lock
from typing import NamedTuple

from proof.power import harms
from proof.power.files import FOLDER, MANIFEST, parts, tail
from proof.power.going import goes_on
from proof.power.load import Mark, Written, write
from proof.power.rewriting import Moment, moments
from proof.power.server import Server
from proof.power.trial import Found, trial

REWRITE, AGAIN = "the end during a rewrite", "the end during a rewrite, then another rewrite"
TORN_REWRITTEN = "cut at any byte, BGREWRITEAOF after the start"
BASE_CUT, BASE_FLIP, LIST_CUT = "the base cut", "one bit of the base flipped", "the manifest cut"
KINDS = [
    harms.BORDER, harms.CUT, TORN_REWRITTEN, harms.SHORT, harms.ZEROS, harms.HOLE, harms.FLIP,
    REWRITE, AGAIN, BASE_CUT, BASE_FLIP, LIST_CUT,
]  # fmt: skip
HALF = ", and half a step more at the next start"
GOES = 100  # states that no step had left, at most, on which the library is to go on


class Case(NamedTuple):
    """`place`: tells it from others of its kind. `expected`: the number of the mark that must be there."""

    kind: str
    place: str
    written: Written
    expected: int
    make: Callable[[Path], None]


class Outcome(NamedTuple):
    """`told`: the last word of the server's log about its file; `goes`: why the library does not go on, None = it was
    not asked to.
    """

    kind: str
    place: str
    came: str
    told: str
    goes: str | None


def cases(folder: Path, program: str, most: int, seed: int, whole: bool = False) -> Iterator[Case]:
    """`most`: of each kind that is drawn. `whole`: cut at each byte instead, and flip one bit of each."""
    written = write(folder / "written", program, harms.LAST, seed)
    text, chance = tail(written.data).read_bytes(), Random(seed)
    most = len(text) if whole else most
    for one in harms.pages(text, most, chance):
        yield _of_tail(one, one.kind, written)
    yield from _forgotten(written, most, chance)
    (folder / "rewriting").mkdir()
    rewritten, kept = moments(folder / "rewriting", program, seed)
    for moment in kept[:most]:
        for kind in (REWRITE, AGAIN):
            yield of_moment(moment, kind, rewritten)
    drawn = harms.drawn(text, most, chance)
    for one in drawn:
        yield _of_tail(one, one.kind, written)
    for one in [one for one in drawn if one.kind == harms.CUT][::8]:
        yield _of_tail(one, TORN_REWRITTEN, written)


def _of_tail(harm: harms.Harm, kind: str, written: Written) -> Case:
    def make(data: Path) -> None:
        copy(written.data, data)
        path = tail(data)
        path.write_bytes(harm.on(path.read_bytes()))

    return Case(kind, f"{harm.at}.{harm.bit}", written, before(written.marks, harm.at), make)


def of_moment(moment: Moment, kind: str, written: Written) -> Case:
    return Case(kind, moment.about, written, moment.acknowledged, partial(copy, moment.data))


def _forgotten(written: Written, most: int, chance: Random) -> Iterator[Case]:
    """What a disk has that says it has written, and forgets."""
    (base,) = parts(written.data, "b")
    manifest = written.data / FOLDER / MANIFEST
    for kind, path, share in ((BASE_CUT, base, 100), (BASE_FLIP, base, 100), (LIST_CUT, manifest, 20)):
        text = path.read_bytes()
        for at in sorted(chance.sample(range(len(text)), min(-(-most // share), len(text)))):
            harm = harms.Harm(harms.FLIP if kind == BASE_FLIP else harms.CUT, at, chance.randrange(8))

            def make(data: Path, harm: harms.Harm = harm, path: Path = path, text: bytes = text) -> None:
                copy(written.data, data)
                (data / path.relative_to(written.data)).write_bytes(harm.on(text))

            yield Case(kind, f"{at}", written, len(written.marks) - 1, make)


def copy(data: Path, to: Path) -> None:
    shutil.copytree(data, to, ignore=shutil.ignore_patterns("log", "socket"))


def before(marks: list[Mark], at: int) -> int:
    """The number of the last mark whose bytes all lie before this one."""
    return sum(mark.end <= at for mark in marks) - 1


class Runner:
    """Two at a time. The library is to go on with each state that it has not seen yet."""

    def __init__(self, folder: Path, program: str) -> None:
        self._folder, self._program = folder, program
        self._seen: set[tuple[int, int, bool]] = set()
        self._lock = Lock()

    def run(self, every: Iterable[Case]) -> Iterator[Outcome]:
        with ThreadPoolExecutor(2) as pool:
            yield from pool.map(self.play, every)

    def play(self, case: Case) -> Outcome:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        told: list[str] = []

        def then(server: Server, kept: int, stays: bool) -> None:
            if self._is_new(case, kept, stays):
                told.append(_went_on(server, case.written.fence))

        try:
            case.make(folder / "data")
            rewritten, marks = case.kind in (TORN_REWRITTEN, AGAIN), case.written.marks
            found = trial(folder / "data", self._program, marks, case.expected, rewritten, then)
        finally:
            shutil.rmtree(folder)
        came = came_to(found, case.expected, len(marks) - 1)
        return Outcome(case.kind, case.place, came, last_word(found.said), told[0] if told else None)

    def _is_new(self, case: Case, kept: int, stays: bool) -> bool:
        with self._lock:
            wrong = sum(number < 0 for _, number, _ in self._seen)
            state = (id(case.written), kept if kept >= 0 else -1 - wrong, stays)
            if state in self._seen or (kept < 0 and wrong >= GOES):
                return False
            self._seen.add(state)
            return True


def _went_on(server: Server, fence: int) -> str:
    try:
        return goes_on(server.url(0), fence)
    except Exception as error:  # whatever a value may bring about that nobody wrote
        return f"{type(error).__name__}: {error}"


def came_to(found: Found, expected: int, last: int) -> str:
    if not found.started and not found.mended:
        return "refused, and not mended"
    start = "starts" if found.started else f"refused, mended by {found.mended}"
    if found.kept < 0:
        held = "a state that no step left"
    elif found.kept == last:
        held = "all"
    elif found.kept >= expected:
        held = "all before it"
    else:
        held = "less"
    return f"{start}: {held}" + ("" if found.stays else HALF)


def last_word(said: str) -> str:
    """Its last line about files, without numbers, and without what a check of a base adds."""
    lines = [line for line in said.splitlines() if re.search(r"^(?!\[).*(AOF|append|MULTI|ommand|RDB|manifest)", line)]
    return re.sub(r"\d+", "N", lines[-1]) if lines else ""
