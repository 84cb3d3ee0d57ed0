"""How a machine chooses its next step: by weights that follow its state, so that most steps do something.

Hypothesis gives each step its chance, and takes steps away when it shrinks; what a step draws comes from that.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import currently_in_test_context, note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

Step = Callable[..., None]
Choice = Sequence[Any] | Callable[[Random], Any]


def always(machine: Any) -> bool:
    return True


def act(
    often: int = 1, when: Callable[[Any], bool] = always, seldom: int = 0, part: str = "", **given: Choice
) -> Callable[[Step], Step]:
    """A step: its weight, and its weight where `when` does not hold; its part; its arguments are one of each."""

    def marked(step: Step) -> Step:
        step.act = (often, when, seldom, part, given)  # type: ignore[attr-defined]
        return step

    return marked


def tell(line: str) -> None:
    """In what hypothesis prints of an example that fails; a course of its own number is found again without."""
    if currently_in_test_context():
        note(line)


class Stepping(RuleBasedStateMachine):
    """`again`: the calls of this step are made twice; `without`: parts that this example does not have."""

    again: bool
    parts: tuple[str, ...] = ("locks", "nodes", "time", "operators", "limits", "sorters")

    def __init__(self) -> None:
        super().__init__()
        self.without: set[str] = set()
        steps = {name: getattr(type(self), name) for name in dir(type(self)) if not name.startswith("_")}
        self.acts = {name: step.act for name, step in steps.items() if hasattr(step, "act")}

    @classmethod
    def course(cls, number: int, steps: int) -> None:
        """One example, drawn from its number: it needs no hypothesis, whose search costs more than the steps."""
        chance, machine = Random(number), cls()
        try:
            machine.begin(chance)
            for _ in range(steps):
                machine.go_on(chance)
                machine.look_at_all()
        finally:
            machine.teardown()

    def begin(self, chance: Random) -> None:
        self.without = {part for part in self.parts if chance.random() < 0.3}

    def look_at_all(self) -> None:
        """Fails where something does not hold."""

    @initialize(chance=st.randoms(use_true_random=True))
    def first(self, chance: Random) -> None:
        self.begin(chance)

    @invariant()
    def all_holds(self) -> None:
        self.look_at_all()

    @rule(chance=st.randoms(use_true_random=True))
    def step(self, chance: Random) -> None:
        self.go_on(chance)

    def go_on(self, chance: Random) -> None:
        weights = {
            name: often if when(self) else seldom
            for name, (often, when, seldom, part, _) in self.acts.items()
            if part not in self.without
        }
        (name,) = chance.choices(list(weights), list(weights.values()))
        choices = self.acts[name][-1]
        given = {what: one(chance) if callable(one) else chance.choice(one) for what, one in choices.items()}
        self.again = chance.random() < 0.25
        tell(f"{name}({', '.join(f'{what}={one!r}' for what, one in given.items())}){' twice' if self.again else ''}")
        getattr(self, name)(**given)
        self.again = False
