"""How a machine chooses its next step: by weights that follow its state, so that most steps do something."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Step = Callable[..., None]
Choice = Sequence[Any] | Callable[[Random], Any]


def act(
    often: int = 1, when: Callable[[Any], object] = lambda _: True, seldom: int = 0, part: str = "", **given: Choice
) -> Callable[[Step], Step]:
    """A step: its weight, and its weight where `when` does not hold; its part; its arguments are one of each."""

    def marked(step: Step) -> Step:
        step.act = (often, when, seldom, part, given)  # type: ignore[attr-defined]
        return step

    return marked


class Stepping:
    """`again`: the calls of this step are made twice; `without`: parts that this course does not have."""

    again: bool
    parts: tuple[str, ...] = ("locks", "nodes", "time", "operators", "sorters", "flow")

    def __init__(self) -> None:
        self.without: set[str] = set()
        self.past: list[str] = []
        steps = {name: getattr(type(self), name) for name in dir(type(self)) if not name.startswith("_")}
        self.acts = {name: step.act for name, step in steps.items() if hasattr(step, "act")}

    @classmethod
    def course(cls, number: int, steps: int) -> None:
        """So many steps, drawn from its number. One that fails names them."""
        chance, machine = Random(number), cls()
        try:
            machine.begin(chance)
            for _ in range(steps):
                machine.go_on(chance)
                machine.look_at_all()
        except Exception as error:
            error.add_note("\n".join([f"course {number}:", *machine.past]))
            raise
        finally:
            machine.teardown()

    def begin(self, chance: Random) -> None:
        self.without = {part for part in self.parts if chance.random() < 0.3}

    def look_at_all(self) -> None:
        """Fails where something does not hold."""

    def teardown(self) -> None:
        """Nothing is left of it."""

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
        arguments = ", ".join(f"{what}={one!r}" for what, one in given.items())
        self.past.append(f"{name}({arguments}){' twice' if self.again else ''}")
        getattr(self, name)(**given)
        self.again = False
