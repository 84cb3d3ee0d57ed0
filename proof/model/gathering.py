"""Collectors, beside all else: calls that gather in a few lanes, and what befalls the jobs meanwhile."""

from typing import Any

from proof.model import asks
from proof.model.beside import ACT
from proof.model.machine import PICK, A, B, C, Machine
from proof.model.steps import act
from proof.model.wholes import Whole

TERMS: list[dict[str, Any]] = [
    {"how": "latest", "idle": 5, "max_wait": 8},
    {"how": "latest", "idle": 5},
    {"how": "latest"},
    {"how": "latest", "idle": 5, "most_bytes": 60},
    {"how": "list", "idle": 5, "most": 2},
    {"how": "list", "idle": 5, "max_wait": 30, "most": 3},
    {"how": "list", "idle": 5, "most_bytes": 60},
    {"how": "list", "most": 4},
    {"how": "list", "most": 1, "idle": 5},
    {"how": "merge", "idle": 5, "max_wait": 8},
    {"how": "merge", "most": 3},
]
KINDS = [
    "bare",
    "bare",
    "bare",
    "bare",
    "hurried",
    "hurried from now",
    "more hurried",
    "room",
    "flow",
    "moved",
    "strange",
]
KEYS = [(A,), (A,), (A,), (B,), (A, B), (C, A)]


def gathers(machine: Machine) -> bool:
    return any(job.state == "collecting" for job in machine.model.jobs.values())


class Gathering(Whole):
    @act(24, keys=KEYS, terms=TERMS, kind=KINDS, number=range(3), priority=[0, 0, 0, 5], pick=PICK)
    def gather(
        self, keys: tuple[str, ...], terms: dict[str, Any], kind: str, number: int, priority: int, pick: int
    ) -> None:
        """Mostly a call that goes with those of the lane."""
        into = next(
            (job for job in self.model.jobs.values() if job.coalesce == "collect" and job.keys[0] == keys[0]), None
        )
        if into and into.terms and number:
            fit = [one for one in TERMS if one["how"] == into.terms.how and one.get("most") != 1]
            keys, terms = into.keys, fit[pick % len(fit)]
        call: dict[str, Any] = {"args": (number,), "kwargs": {"what": ["x" * number] if number else None}}
        asked = {
            **asks.FLAVOURS[kind],
            "collect": terms,
            "max_attempts": 2,
            **(call if terms["how"] != "merge" else {"args": (1,) if number % 2 else (), "kwargs": call["kwargs"]}),
        }
        ask = asks.Ask(self.new("j"), keys, priority, self.model.wall, "", **asked)
        self._submit(ask.job, ask.args, ask.busy, ask.room)

    @act(3, gathers, 1, part="operators", pick=PICK)
    def flush_what_collects(self, pick: int) -> None:
        name = self.any_job(pick, *(("collecting",) if pick % 5 else ()))
        assert self.call("job_flush", name, ACT) == self.model.flush_job(name)

    @act(8, gathers, ms=[500, 2_500, 5_100], swept=range(3))
    def wait_for_more(self, ms: int, swept: int) -> None:
        self.pass_time(ms)
        self.beat_all()
        if swept:
            self._sweep()

    @act(3, gathers, pick=PICK)
    def drop_what_collects(self, pick: int) -> None:
        self._cancel(self.any_job(pick, "collecting"))
