"""The plain model's words: what a job is, what is asked for with it."""

from dataclasses import dataclass, field
from typing import NamedTuple

BEGINNING = 1_700_000_000_000  # ms: when a model, and its clock, begin
FIRST = 60_000  # ms for which the record of a job is kept at least for which others wait
TERMINAL = frozenset({"succeeded", "failed", "rolled_back", "double_fault", "cancelled", "expired"})


class Place(NamedTuple):
    """Where and what a taking runs: class, task, time limit (ms, 0 = none)."""

    kind: str
    task: str
    limit: int = 0


class Use(NamedTuple):
    """So many units of a quota, 0 = all. `stays`: until the end of the job; `open`: the quota may be undeclared."""

    name: str
    units: int = 1
    stays: bool = False
    open: bool = False

    @property
    def all(self) -> bool:
        return not self.units


class Terms(NamedTuple):
    """Of a collector; `idle`, `longest`: ms. `alike`: what the calls of a merge have in common."""

    how: str
    idle: int
    longest: int | None
    most: int
    bytes: int
    alike: str = ""

    @classmethod
    def of(cls, text: str) -> "Terms | None":
        """From the argument `when_busy` of a submit."""
        word, *parts = text.split(" ")
        if word != "collect":
            return None
        how, idle, longest, most, size, *alike = parts
        return cls(how, int(idle), None if longest == "-" else int(longest), int(most), int(size), *alike)


def collected(when_busy: str, calls: str) -> tuple[Terms | None, tuple[str, ...]]:
    """The terms of a submit, and the arguments of its call, from the field `calls`: {"<how>":[<the call>]}."""
    terms = Terms.of(when_busy)
    return terms, (calls[len(terms.how) + 5 : -2],) if terms else ()


@dataclass(eq=False)
class Job:
    """`steps`: of an order, its places; `undo`: of its rollback, `back` the one at work; `plain`: a lock in plain code;
    times are ms; `order`: lower goes first.

    `span`: `expires` and `not_before` are so long from its submit; else people named them, by the wall clock.
    `fair`: its group, as its submit names it. `own`: its place while it is rolled back. `terms`: of the newest call
    that it collected, `called`: how many it did, `calls`: their arguments, which are only those of the newest where
    it wants no others; `coalesce`: it still takes more. `move`: token of who moved it last. Of what a sorter holds:
    `asked` is the token of who added it; `sealed`: its batch is under way. `awaits`: a token, and whom the code
    under it waits for; `seen`: when a waiter asked last, which is `nested` where it holds others. `uses`: in the
    order of names; `lack`: the quota in whose queue it stands, and `lacked` since when it has lacked one; `apart`:
    it has units before its claim; `offered`: the quotas of which it takes units once it is claimed.
    `after`: arguments and causes, of which those in `open` have not ended well;
    `given`: arguments by which it gets their results; `blocks`: others wait for it. `event`: for which it is parked
    until `timeout`, to go on at `then` or `otherwise`; `home`: the place of its own step, once another replaced it.
    """

    id: str
    keys: tuple[str, ...]
    place: Place | None
    order: tuple[int, int] = (0, 0)
    priority: int = 0
    steps: tuple[Place, ...] = ()
    max_attempts: int = 1
    max_losses: int = 3
    lifetime: int = 0
    keep_success: int = 5000
    keep_failure: int = 5000
    undo: tuple[Place, ...] = ()
    hold: bool = False
    tell: bool = False
    parent: str = ""
    expires: int | None = None
    not_before: int = 0
    span: bool = False
    coalesce: str = ""
    terms: Terms | None = None
    calls: tuple[str, ...] = ()
    called: int = 1
    ttl: int = 0
    sorter: str = ""
    sort_key: str = ""
    asked: str = ""
    sealed: bool = False
    move: str = ""
    replaces: bool = False
    fair: str = ""
    uses: tuple[Use, ...] = ()
    after: tuple[tuple[str, str], ...] = ()
    policy: str = "fail"

    state: str = "waiting"
    token: str = ""
    last: str = ""
    answered: str = ""
    fence: int = 0
    attempt: int = 0
    losses: int = 0
    forgiven: int = 0
    conflicts: int = 0
    node: str = ""
    runner: str = ""
    taken: int | None = None
    started: int = 0
    ended: int = 0
    given_up: int = 0
    due: int = 0
    since: int = 0
    lease: int = 0
    step: int = 0
    back: int = 0
    phase: str = ""
    ends: str = ""
    rollback: str = ""
    stop: str = ""
    condemned: str = ""
    offers: int = 0
    kept: int = 0
    own: Place | None = None
    handles: str = ""
    stale: bool = False
    waits_for: tuple[str, ...] = ()
    awaits: tuple[str, str] = ("", "")
    seen: int = 0
    nested: bool = False
    till: int = 0
    lack: str = ""
    lacked: int = 0
    apart: bool = False
    offered: tuple[str, ...] = ()
    open: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)
    blocks: bool = False
    event: str = ""
    timeout: int = 0
    then: Place | None = None
    otherwise: Place | None = None
    home: Place | None = None

    def calls_text(self) -> str:
        """As the record keeps them: while it takes more, only the first."""
        calls = self.calls[:1] if self.coalesce else self.calls
        return f'{{"{self.terms.how}":[{",".join(calls)}]}}' if self.terms else ""

    @property
    def plain(self) -> bool:
        return self.place is None

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    @property
    def group(self) -> str:
        """Ready jobs have fair shares between groups: what was asked for, else what the first key begins with."""
        first, slash, _ = (self.keys or ("",))[0].partition("/")
        return self.fair or (first if slash else "")

    @property
    def lined(self) -> bool:
        """It stands in its lines: a job that never began is held by a cause, not in line."""
        away = self.state in ("scheduled", "collected", "collecting", "blocked") or (
            self.state == "held" and self.taken is None
        )
        return not self.over and not away

    @property
    def kept_until(self) -> int:
        """Longer where a node has tried to send what it owes."""
        keep = self.keep_success if self.state == "succeeded" else self.keep_failure
        return max(self.kept, self.ended + (max(keep, FIRST) if self.blocks else keep))

    @property
    def expiry(self) -> int | None:
        """When the sweep ends it, as long as nobody acts for it."""
        if self.plain or self.over or self.state == "running":
            return None
        if self.phase == "rollback":
            return (self.started if self.state == "parked" else self.given_up) + self.lifetime
        return self.taken + self.lifetime if self.taken is not None else self.expires

    @property
    def left(self) -> tuple[Place, ...]:
        """The steps after the one at work."""
        return self.undo[self.back + 1 :] if self.phase == "rollback" else self.steps[self.step + 1 :]

    def count_from(self, now: int) -> None:
        """It comes now."""
        if self.span:
            self.expires = None if self.expires is None else self.expires + now
            self.not_before += now if self.not_before else 0

    def by_the_wall(self) -> bool:
        """Is it the wall clock that ends it, or starts it?"""
        return not self.span and self.taken is None

    def attempts_left(self, most: int) -> bool:
        return self.attempt - self.losses - self.forgiven < most
