"""What must hold of sorters in Redis, after every step and from step to step, seen in the dumps alone."""

from collections import Counter
from collections.abc import Iterator

from proof.model.invariants import Held

Record = dict[str, str]


def member_of(name: str, record: Record) -> tuple[str, str]:
    """Its sorter, and its place there."""
    sorter, _, sort_key = record["sorter"].partition("\n")
    return sorter, f"{sort_key}\0{name}"


def broken(held: Held) -> Iterator[str]:
    """None lost, none twice, none left behind, and no sorter has what is another's."""
    sealed, collected = held.dump.under("batch"), held.dump.under("collected")
    found = Counter((name, one) for part in (sealed, collected) for name in part for one, _ in part[name])
    are = Counter(member_of(name, record) for name, record in held.live.items() if record["state"] == "collected")
    if found != are:
        yield f"sorters hold {dict(found)}, collected are {dict(are)}"
    for name, members in (*sealed.items(), *collected.items()):
        if [one for one, _ in members] != sorted((one for one, _ in members), key=str.encode):
            yield f"{name} holds {members}, not sorted"
    looks, about = held.dump.scores("sorters"), held.dump.under("sorter")
    if set(looks) != {*sealed, *collected}:
        yield f"flushed are {set(looks)}, something hold {set(sealed)} and {set(collected)}"
    if set(about) != set(collected):
        yield f"times are of {set(about)}, collected have {set(collected)}"
    for name, at in looks.items():
        due = 0 if name in sealed else int(about.get(name, {}).get("due", -1))
        if at != due:
            yield f"{name} is flushed at {at}, and due at {due}"


class Batches:
    """`let_go`: whom the last step put in line, in the order of its batch."""

    def __init__(self) -> None:
        self.sealed: dict[str, list[str]] = {}
        self.collected: dict[str, list[str]] = {}
        self.gone: set[str] = set()
        self.let_go: list[str] = []

    def look(self, held: Held) -> Iterator[str]:
        states = {name: record["state"] for name, record in held.live.items()}
        flushed = []
        for sorter in {*self.sealed, *self.collected}:
            pool = self.sealed.get(sorter) or self.collected[sorter]
            behind = self.collected.get(sorter, []) if sorter in self.sealed else []
            went = [name for name in [*pool, *behind] if states.get(name, "collected") != "collected"]
            if went != pool[: len(went)]:
                yield f"{sorter} had {pool} and put {went} in line"
            flushed += [went] if went else []
        self.let_go = flushed[0] if flushed else []
        if len(flushed) > 1:
            yield f"one step put in line {flushed}, which are of several sorters"
        yield from self._lines(held)
        yield from self._sealed(held)
        if again := {name for name in self.gone if states.get(name) == "collected"}:
            yield f"{again} were let go and are held again"
        self.gone.update(self.let_go)

    def _lines(self, held: Held) -> Iterator[str]:
        """Those of one priority stand in line as in their batch."""
        for key in held.lines:
            stand = [name for name in held.line(key) if name in self.let_go and held.waits(name)]
            places = [(-int(held.live[name].get("priority", 0)), self.let_go.index(name)) for name in stand]
            if places != sorted(places):
                yield f"{self.let_go} were let go, and stand on {key} as {stand}"

    def _sealed(self, held: Held) -> Iterator[str]:
        """Who comes later joins the next batch."""
        sealed, collected = (_names(held, kind) for kind in ("batch", "collected"))
        for sorter, names in sealed.items():
            before = self.sealed.get(sorter) or self.collected.get(sorter, [])
            if late := [name for name in names if name not in before]:
                yield f"{late} joined the batch {names} of {sorter}"
        self.sealed, self.collected = sealed, collected


def _names(held: Held, kind: str) -> dict[str, list[str]]:
    return {
        name: [member.partition("\0")[2] for member, _ in members] for name, members in held.dump.under(kind).items()
    }
