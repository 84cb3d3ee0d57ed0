"""The lane proved against a plain model: whatever is called in whatever order, both say and hold the same."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from coordinator.settings import Settings
from coordinator.store.library import current
from proof.model.clock import Clocked, library
from proof.model.grabbing import Grabbing
from proof.model.grabbing_jobs import GrabbingJobs
from proof.model.starts import Starts
from proof.model.steps import Stepping
from proof.model.wholes import Whole
from tasks.documents.library import text_of
from tests.harness.functions import ALL, NAMES, tables_in
from tests.harness.redis import RedisServer
from tests.test_floors import imports

MODEL = Path(__file__).parent.parent.parent / "proof" / "model"

# Steps that the machine does not drive, and why.
DOCUMENTS = "documents: no lane is touched; tests/consistency/"
AMONG_DRIVEN = {
    "counts_read",
    "jobs_likely",
    "jobs_read",
    "lines_likely",
    "jobs_named",
    "job_retarget",
    "fence_next",
}  # beside driven steps in their files
SCHEDULES = "schedules: no lane is touched; tests/coordinator/scheduler/"
APART = {
    "counts_read": "read after each step and held against the model",
    "jobs_likely": "it reads",
    "jobs_read": "it reads",
    "lines_likely": "it reads",
    "jobs_named": "it reads, and notes ids that are no jobs' yet: tests/fleet/shared/test_keyed_canvas.py",
    "job_retarget": "the model knows no tasks: tests/coordinator/jobs/test_retarget.py",
    "trouble_take": "it takes what rules noted: tests/coordinator/warden/errands/test_trouble_reports.py",
    "tick_take": SCHEDULES,
    "tick_done": SCHEDULES,
    "schedule_follow": SCHEDULES,
    "run_take": SCHEDULES,
    "entry_put": SCHEDULES,
    "entry_remove": SCHEDULES,
    "entries_read": SCHEDULES,
    "entry_pause": SCHEDULES,
    "entry_resume": SCHEDULES,
    "entry_omit": SCHEDULES,
    "entry_change": SCHEDULES,
    "entry_run": SCHEDULES,
    "audit_note": "it writes a line of the trail: tests/coordinator/jobs/test_trail.py",
    "document_ask": DOCUMENTS,
    "document_report": DOCUMENTS,
    "document_leave": DOCUMENTS,
    "document_restore": DOCUMENTS,
    "document_followed": DOCUMENTS,
    "document_note": DOCUMENTS,
    "fence_next": "a number of the clock: tests/coordinator/store/test_clock.py",
}

GRABS = {"grab_take", "grab_end", "grab_look", "grab_release"}  # a machine of their own drives them: grabbing.py

OF_MODEL = [
    "record", "lanes", "rings", "attempts", "awaits", "sorters", "sweeps", "operators", "raw", "invariants", "batches",
    "history", "mirror",
]  # fmt: skip

BOUNDED = settings(
    max_examples=70,  # `python -m proof model` has more, and longer ones
    stateful_step_count=60,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, *([Phase.shrink] if os.environ.get("MODEL_SHRINK") else [])],
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


@pytest.mark.timeout(600)
def test_lanes_do_what_the_model_does_whatever_is_called(redis_server: RedisServer) -> None:
    used: set[str] = set()

    class Here(Whole):
        url = redis_server.url(9)

        def teardown(self) -> None:
            used.update(self.on.store.used)
            super().teardown()

    run_state_machine_as_test(Here, settings=BOUNDED)  # type: ignore[no-untyped-call]
    assert used | AMONG_DRIVEN == NAMES - set(APART) - GRABS | AMONG_DRIVEN


@pytest.mark.parametrize(("machine", "courses"), [(Grabbing, 60), (GrabbingJobs, 30), (Starts, 40)])
def test_grabs_and_first_fences_are_as_their_models_say(
    redis_server: RedisServer, machine: type[Stepping], courses: int
) -> None:
    here = type("Here", (machine,), {"url": redis_server.url(9)})
    for number in range(courses):
        here.course(number, 40)


def test_every_step_is_driven_by_the_machine_or_named_with_a_reason() -> None:
    modules = ("machine", "collecting", "courses", "wholes", "harness", "grabbing")
    called = "".join((MODEL / f"{module}.py").read_text() for module in modules)
    driven = {name for name in NAMES if f'"{name}"' in called}
    assert driven | set(APART) == NAMES
    assert not driven & set(APART)


@pytest.mark.parametrize("file", sorted({step.file for step in ALL if step.name in set(APART) - AMONG_DRIVEN}))
def test_a_step_that_is_not_driven_touches_no_lane_and_no_job(file: str) -> None:
    assert {step.name for step in ALL if step.file == file} <= set(APART)
    assert tables_in(text_of(file)) <= {"redis", "step", "base", "versions", "locks", "ticks", "submit", "audit"}
    text = text_of(file) + text_of("versions")
    assert set(re.findall(r"submit\.(\w+)", text)) <= {"asked"}, "the machine drives that as job_submit"
    assert set(re.findall(r"locks\.(\w+)", text)) <= {"next_fence"}
    kinds = ("line", "lanes", "job", "lock", "slot", "ready", "group", "leases", "locks", "due", "expiry", "sorters")
    assert not [kind for kind in kinds if f"'{kind}'" in text or f"'{kind}:'" in text]


@pytest.mark.parametrize("module", OF_MODEL)
def test_the_model_and_the_invariants_share_nothing_with_the_coordinator(module: str) -> None:
    used = set(imports(MODEL / f"{module}.py"))
    assert {name.split(".")[0] for name in used} <= {
        "collections",
        "dataclasses",
        "itertools",
        "json",
        "proof",
        "typing",
    }
    assert not any(
        name.startswith(("proof.model.clock", "proof.model.harness", "tests.harness.hand_node")) for name in used
    )


def test_the_machine_runs_the_same_text_as_the_store() -> None:
    assert library(before="") == current()
    assert library().text.endswith(current().text.partition("\n")[2].partition("\n")[2])


def test_time_passes_only_where_the_test_says_so(redis_server: RedisServer) -> None:
    store = Clocked(Settings(url=redis_server.url(9), prefix=redis_server.fresh_prefix()))
    try:
        store._client.set(store.prefix + "lock:a", "token", px=100_000)
        store._client.zadd(store.prefix + "ends", {store.prefix + "lock:a": store.jump(0) + 50})
        store.jump(49)
        assert store._client.exists(store.prefix + "lock:a")
        store.jump(1)
        assert not store._client.exists(store.prefix + "lock:a")
    finally:
        store.forget()
        store.close()
