"""The plain model's words: what a job is, what is asked for with it."""

from dataclasses import dataclass

BEGINNING = 1_700_000_000_000  # ms: when a model, and its clock, begin
TERMINAL = frozenset({"succeeded", "failed", "rolled_back", "double_fault", "cancelled", "expired"})


@dataclass(frozen=True)
class Place:
    """Where and what a taking runs: class, task, time limit (ms, 0 = none)."""

    kind: str
    task: str
    limit: int = 0


@dataclass(eq=False)
class Job:
    """`steps`: of an order, its places; `undo`: of its rollback, `back` the one at work; `plain`: a lock in plain code;
    times are ms; `order`: lower goes first.

    `span`: `expires` and `not_before` are so long from its submit; else people named them, by the wall clock.
    `alone`: exclusive. `fair`: its group, as its submit names it. `slots`: which lock of each key it holds. `own`: its
    place while it is rolled back. `unite`: None = everything. `move`: token of who moved it last. Of what a sorter
    holds: `asked` is the token of who added it; `sealed`: its batch is under way. `awaits`: a token, and whom the code
    under it waits for; `seen`: when a waiter asked last, which is `nested` where it holds others.
    """

    id: str
    keys: tuple[str, ...]
    place: Place | None
    order: tuple[int, int] = (0, 0)
    priority: int = 0
    alone: bool = False
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
    unite: frozenset[str] | None = frozenset()
    ttl: int = 0
    sorter: str = ""
    sort_key: str = ""
    asked: str = ""
    sealed: bool = False
    move: str = ""
    replaces: bool = False
    fair: str = ""

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
    slots: tuple[int, ...] = ()
    handles: str = ""
    stale: bool = False
    waits_for: tuple[str, ...] = ()
    awaits: tuple[str, str] = ("", "")
    seen: int = 0
    nested: bool = False
    till: int = 0

    @property
    def plain(self) -> bool:
        return self.place is None

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    @property
    def group(self) -> str:
        """Ready jobs are taken in turns between groups: what was asked for, else what the first key begins with."""
        first, slash, _ = self.keys[0].partition("/")
        return self.fair or (first if slash else "")

    @property
    def lined(self) -> bool:
        return not self.over and self.state not in ("scheduled", "collected")

    @property
    def kept_until(self) -> int:
        """Longer where a node has tried to send what it owes."""
        return max(self.kept, self.ended + (self.keep_success if self.state == "succeeded" else self.keep_failure))

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
