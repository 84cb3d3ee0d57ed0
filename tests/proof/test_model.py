"""The lane proved against a plain model: whatever is called in whatever order, both say and hold the same."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from coordinator.core.store.library import current
from proof.model.clock import Clocked, library
from proof.model.depending import Depending
from proof.model.gathering import Gathering
from proof.model.grabbing import Grabbing
from proof.model.grabbing_jobs import GrabbingJobs
from proof.model.starts import Starts
from proof.model.steps import Stepping
from proof.model.wholes import Whole
from proof.mutants import STEPS, mutants_of_page
from tasks.documents.library import text_of
from tests.harness.functions import ALL, tables_in
from tests.harness.long import long
from tests.harness.redis import RedisServer
from tests.test_floors import imports

MODEL = Path(__file__).parent.parent.parent / "proof" / "model"

# Steps of jobs and lanes that the machine does not drive, and why.
READ = "it reads"
OUTBOX = "it submits under a lock what job_submit does: tests/coordinator/outbox; seeds hold it: proof/steps/player.py"
BACKFILL = "tests/coordinator/scheduler/test_backfill.py; seeds hold it: proof/steps/player.py"
NOT_DRIVEN = {
    "jobs_likely": READ,
    "jobs_read": READ,
    "lanes_grouped": READ,
    "lines_grouped": READ,
    "lines_likely": READ,
    "ready_read": READ,
    "quotas_read": READ,
    "quota_queue": READ,
    "quota_place": READ,
    "jobs_named": "it reads, and notes ids that are no jobs' yet: tests/fleet/shared/test_keyed_canvas.py",
    "job_retarget": "the model knows no tasks: tests/coordinator/ops/verbs/test_retarget.py",
    "backfills_read": READ,
    "entry_backfill_plan": READ,
    "entry_backfill": BACKFILL,
    "entry_backfill_stop": BACKFILL,
    "backfill_look": BACKFILL,
    "backfill_take": BACKFILL,
    "backfill_fail": BACKFILL,
    "outbox_submit": OUTBOX,
    "outbox_forget": OUTBOX,
}
# Machines of their own drive these: grabbing.py, depending.py and gathering.py.
ELSEWHERE = {"grab_take", "grab_end", "grab_look", "grab_release", "event_set", "job_flush"}
KEYS = ("line", "lanes", "job", "lock", "ready", "group", "leases", "locks", "due", "expiry", "sorters", "quota")

OF_MODEL = [
    "record", "ready", "quotas", "lanes", "dependants", "rings", "attempts", "awaits", "sorters", "sweeps", "operators",
    "instances", "raw", "invariants", "mirror",
]  # fmt: skip


@pytest.mark.timeout(600)
def test_lanes_do_what_the_model_does_whatever_is_called(redis_server: RedisServer) -> None:
    used: set[str] = set()

    class Here(Whole):
        url = redis_server.url(9)

        def teardown(self) -> None:
            used.update(self.store.used)
            super().teardown()

    for number in courses(Whole, long(0, 300)):  # those of tests/proof/test_why.py and test_plans.py hold it, too
        Here.course(number, STEPS)
    assert {step.name for step in ALL if touches_jobs(step.file)} - NOT_DRIVEN.keys() - ELSEWHERE <= used


def touches_jobs(file: str) -> bool:
    """Steps of schedules, documents and the audit trail touch no job and no lane; what they ask for is driven."""
    text = text_of(file) + text_of("versions")
    called = set(re.findall(r"(submit|locks)\.(\w+)", text)) <= {("submit", "asked"), ("locks", "next_fence")}
    tables = {"redis", "step", "base", "versions", "locks", "ticks", "backfills", "submit", "audit"}
    return not (called and tables_in(text_of(file)) <= tables) or bool(re.search(rf"'({'|'.join(KEYS)}):?'", text))


@pytest.mark.parametrize("machine", [Depending, Gathering, Grabbing, GrabbingJobs, Starts])
def test_causes_collectors_grabs_and_first_fences_are_as_their_models_say(
    redis_server: RedisServer, machine: type[Stepping]
) -> None:
    here = type("Here", (machine,), {"url": redis_server.url(9)})
    for number in courses(machine, long(2, 60)):
        here.course(number, STEPS)


def courses(machine: type[Stepping], most: int) -> list[int]:
    """The first ones, and those by which docs/proof-mutants.md says that the machine sees each of its mutants."""
    return sorted({*range(most), *(next(one.courses()) for one in mutants_of_page() if one.machine is machine)})


@pytest.mark.parametrize("module", OF_MODEL)
def test_the_model_and_the_invariants_share_nothing_with_the_coordinator(module: str) -> None:
    used = set(imports(MODEL / f"{module}.py"))
    assert {name.split(".")[0] for name in used} <= {
        "collections",
        "dataclasses",
        "itertools",
        "json",
        "math",
        "proof",
        "typing",
    }
    assert not any(
        name.startswith(("proof.model.clock", "proof.model.beside", "tests.harness.hand_node")) for name in used
    )


def test_the_machine_runs_the_same_text_as_the_store() -> None:
    assert library(before="") == current()
    assert library().text.endswith(current().text.partition("\n")[2].partition("\n")[2])


def test_time_passes_only_where_the_test_says_so(redis_server: RedisServer) -> None:
    with closing(Clocked(redis_server.url(9))) as store:
        store._client.set(store.prefix + "lock:a", "token", px=100_000)
        store._client.zadd(store.prefix + "ends", {store.prefix + "lock:a": store.jump(0) + 50})
        store.jump(49)
        assert store._client.exists(store.prefix + "lock:a")
        store.jump(1)
        assert not store._client.exists(store.prefix + "lock:a")
