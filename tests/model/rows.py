"""Rows of calls on both sides that chance seldom puts together."""

from tests.model.in_place import KEY, KEYS, UNDO, A, B, Both, C
from tests.model.steps import act


class Rows(Both):
    @act(2, key=KEYS, hold=["hold", "release"], end=[2, 3, 99], then=["retry", "cancel", "release"])
    def undo_a_chain(self, key: tuple[str, ...], hold: str, end: int, then: str) -> None:
        steps = [{"task": "work", "script": [["value", 7]]}, {"task": "work", "script": [["raise", end]]}]
        name = self.new()
        self.both("submit", key, {"steps": steps}, rollback=UNDO, on_failure=hold, job_id=name)
        for _ in range(2):
            self.both(then, key[0] if then == "release" else name, why="why", by="anna")

    @act(
        2,
        part="parked",
        key=KEYS,
        back=[[], ["value"], ["park"], ["park", "value"], ["value", "park"]],
        then=["retry", "cancel", "release"],
    )
    def undo_in_steps(self, key: tuple[str, ...], back: list[str], then: str) -> None:
        """Its rollback parks on a job that waits, or not at all, and then its lane is taken from it, or not."""
        child, name = self.new(), self.new()
        self.both("pause", "p", why="why", by="anna")
        self.both("submit", "p", {"task": "work", "script": []}, job_id=child)
        ends = {"value": [["value", 7]], "park": [["park", [child]]]}
        steps = [{"task": "work", "script": ends[one]} for one in back] or [
            {"task": "work", "script": [["eager", True]]}
        ]
        failing = {"task": "work", "script": [["raise", 99]]}
        self.both("submit", key, failing, rollback={"steps": steps}, job_id=name)
        self.both(then, key[0] if then == "release" else name, why="why", by="anna")
        self.both("resume" if then == "retry" else "cancel", "p" if then == "retry" else child, why="why", by="anna")
        self.both("resume", "p", why="why", by="anna")

    @act(part="limits", key=KEY, low=[0, 1], end=[2, 99])
    def lower_a_limit(self, key: str, low: int, end: int) -> None:
        """A job that was started before may run again once the lock beside it is gone."""
        if self.sides[0].locked_by_tasks():
            return
        name = self.new()
        self.both("set_limit", key, 2, why="why", by="anna")
        self.both("lock", key)
        self.both("submit", key, {"task": "work", "script": [["raise", end]]}, on_failure="hold", job_id=name)
        self.both("set_limit", key, low, why="why", by="anna")
        self.both("retry", name, why="why", by="anna")

    @act(2, part="operators", key=KEYS, one=[["b", "c"], None], two=[["c", "a"], None], then=["resume", "cancel"])
    def melt(self, key: tuple[str, ...], one: list[str] | None, two: list[str] | None, then: str) -> None:
        first, second = self.new(), self.new()
        self.both("pause", key[0], why="why", by="anna")
        for name, texts in ((first, one), (second, two)):
            options = {"when_busy": "defer", "unite": {"x": texts}, "job_id": name}
            self.both("submit", key, {"task": "work", "script": []}, **options)
        self.both(then, key[0] if then == "resume" else second, why="why", by="anna")

    @act(part="parked", keys=[(A, B), (B, C), (C, A)], then=["cancel", "release", "resume"], hold=["hold", "release"])
    def park_on_one_that_waits(self, keys: tuple[str, str], then: str, hold: str) -> None:
        child, parent = self.new(), self.new()
        self.both("pause", keys[0], why="why", by="anna")
        self.both("submit", keys[0], {"task": "work", "script": []}, job_id=child)
        self.both("submit", keys[1], {"task": "work", "script": [["park", [child]]]}, on_failure=hold, job_id=parent)
        key = keys[0] if then == "resume" else keys[1]
        self.both(then, parent if then == "cancel" else key, why="why", by="anna")

    @act(2, part="parked", keys=[(A, B), (B, C), (C, A)], limit=[1, 1, 2])
    def close_a_ring(self, keys: tuple[str, str], limit: int) -> None:
        """Each of two parents parks on one that stands behind the other."""
        for key in keys:
            self.both("pause", key, why="why", by="anna")
        children = self.new(), self.new()
        for key, child in zip(keys, children[::-1], strict=True):
            self.both("submit", key, {"task": "work", "script": [["park", [child]]]}, job_id=self.new())
        for key, child in zip(keys, children, strict=True):
            self.both("submit", key, {"task": "work", "script": []}, job_id=child)
        if not self.sides[0].locked_by_tasks():
            self.both("set_limit", keys[0], limit, why="why", by="anna")
        for key in keys:
            self.both("resume", key, why="why", by="anna")

    @act(2, part="parked", keys=[(A, B), (B, C), (C, A)])
    def move_into_a_ring(self, keys: tuple[str, str]) -> None:
        first, second = self.new(), self.new()
        self.both("pause", keys[0], why="why", by="anna")
        self.both("submit", keys[0], {"task": "work", "script": []}, job_id=first)
        self.both("submit", keys[1], {"task": "work", "script": [["park", [first]]]}, job_id=self.new())
        self.both("submit", keys, {"task": "work", "script": []}, job_id=second)
        self.both("move", second, to="front", why="why", by="anna")
