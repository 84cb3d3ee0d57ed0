"""Grabs by processes and by jobs, each made on both sides of beside.py; then both answer alike and hold the same."""

from random import Random
from typing import Any

from tests.model.in_place import PICK, Both, drawn
from tests.model.steps import act, tell

NAMES = [("a", "1"), ("a", "2"), ("g/c", "1")]


class GrabsInPlace(Both):
    def look_at_all(self) -> None:
        super().look_at_all()
        self.both("seen_grabs")
        self.both("lanes", "grab")

    @act(14, chance=drawn, names=NAMES)
    def submit_an_instance(self, chance: Random, names: tuple[str, str]) -> None:
        (_, signature), options = self.asked(chance, 1)
        job_id = self.some(chance, "failed", "cancelled") if chance.random() < 0.2 and self.ids else self.new()
        kept = ("max_attempts", "rollback", "on_failure", "priority", "not_before", "weight")
        given = {name: value for name, value in options.items() if name in kept}
        if chance.random() < 0.3:
            self.both("pause", "a", by="anna")
        self.both("submit", names[0], signature, instance=names[1], job_id=job_id, **given)

    @act(6, chance=drawn, names=NAMES)
    def submit_many_instances(self, chance: Random, names: tuple[str, str]) -> None:
        jobs: list[Any] = []
        for _ in range(3):
            jobs.append(((names[0], self.signature(chance, 0)), {"instance": names[1], "job_id": self.new()}))
        self.both("submit_many", [(*given, options) for given, options in jobs])

    @act(6, names=NAMES)
    def grab(self, names: tuple[str, str]) -> None:
        tell(f"grab {names}")
        self.both("grab_here", *names)

    @act(6, names=NAMES, end=["complete", "fail", "wait", "check"])
    def end_grab(self, names: tuple[str, str], end: str) -> None:
        self.both("end_grab", *names, end)

    @act(4, chance=drawn, pick=PICK)
    def retry_one_that_ended_badly(self, chance: Random, pick: int) -> None:
        self.both("retry", self.some(chance, "failed", "cancelled", "rolled_back"), why="why", by="anna")
