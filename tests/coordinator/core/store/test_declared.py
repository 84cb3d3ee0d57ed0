"""Each step is declared once: type checkers, Python and Redis refuse a call that takes it for another."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from coordinator.core.author import act_of
from coordinator.core.store.step import many
from coordinator.core.store.steps import (
    job_cancel,
    job_move,
    job_progress,
    jobs_named,
    lock_release,
    sweep,
    weight_set,
)
from coordinator.errors import StoreUnavailable
from tests.coordinator.core.store.stores import store_of
from tests.harness.functions import DECLARED
from tests.harness.hand_node import Puppet
from tests.harness.ports import free_port

ROOT = Path(__file__).parents[4]

BEGIN = """
from coordinator import Coordinator
from coordinator.core.store.step import many
from coordinator.core.store.steps import entry_resume, job_cancel, job_submit, jobs_named

store = Coordinator(url="redis://-").store
"""
RIGHT = """
before: int = entry_resume(store, "k", 2, "{}")
state: str = job_cancel(store, "j", "{}", unbegun=True)
known: list[str] = jobs_named(store, 5, "a", "b")
replies: list[int | Exception] = many(store, [entry_resume.of("k", 2, "{}")])
"""
WRONG = [
    'entry_resume(store, "k", 2)',
    'entry_resume(store, "k", 2, "{}", "more")',
    'entry_resume(store, "k", "2", "{}")',
    'entry_resume(store, "k", most=2, act="{}")',
    'entry_resume.of("k", "2", "{}")',
    'job_cancel(store, "j", "{}", "unbegun")',
    'job_cancel(store, "j", "{}").decode()',
    'jobs_named(store, "a", "b")',
    'job_submit(store, "j", "k", "queue", 0, 0)',
    'entry_resum(store, "k", 2, "{}")',
]


def test_a_type_checker_sees_a_wrong_call(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(BEGIN + RIGHT + "\n".join(WRONG) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(snippet)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    first = len((BEGIN + RIGHT).splitlines()) + 1
    found = {int(found[1]) for line in said if (found := re.search(r"snippet\.py:(\d+).* error: ", line))}
    assert found == set(range(first, first + len(WRONG))), "\n".join(said)


@pytest.mark.parametrize("name", ["job_cancel", "weight_set", "lock_take", "job_submit"])
def test_redis_refuses_a_wrong_number_of_arguments_and_says_what_the_step_takes(node: Puppet, name: str) -> None:
    declared = DECLARED[name]
    numbers = [declared.count - 1] if declared.rest else [declared.count - 1, declared.count + 1]
    for number in numbers:
        with pytest.raises(ResponseError) as refused:
            node.store.step(name, *["1"] * number)
        said = f"{declared.count}{' or more' * declared.rest} ({' '.join(declared.names)})"
        assert str(refused.value) == f"ARGS {name} takes {said}, not {number}"
    assert node.store.read("KEYS", node.store.key("job", "*")) == []


def test_a_flag_is_1_or_empty_and_none_is_empty() -> None:
    assert job_cancel.of("j", "a").args == ("j", "a", "")
    assert job_cancel.of("j", act="a", unbegun=True).args == ("j", "a", "1")
    assert job_move.of("j", None, "back", "a", "").args == ("j", "", "back", "a", "")
    assert job_move.of("j", 0, "back", "a", "").args == ("j", 0, "back", "a", "")
    assert sweep.of(1, 2).args == (1, 2, "")
    assert jobs_named.of(5, "a", "b").args == (5, "a", "b")


def test_a_reply_has_the_type_that_is_declared(node: Puppet) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    assert jobs_named(node.store, 1000, "j", "none") == ["j"]
    assert job_progress(node.store, "j", taken.token, "1/2") is True
    assert job_progress(node.store, "j", "another", "1/2") is False
    assert job_move(node.store, "j", None, "back", act_of(), "") == ("running", False)
    assert lock_release(node.store, "j", "another") == "lost"


def test_many_calls_of_a_step_are_one_round_trip_and_a_refused_one_is_its_error(node: Puppet) -> None:
    calls = [weight_set.of(group, "2", act) for group, act in (("a", act_of()), ("b", "no JSON"), ("c", act_of()))]
    first, refused, last = many(node.store, calls)
    assert (first, type(refused), last) == ("1", ResponseError, "1")
    assert many(node.store, calls[:0]) == []


def test_an_error_names_the_job_of_a_step_that_is_about_one() -> None:
    away_store, named = store_of(f"redis://127.0.0.1:{free_port()}/0"), list[str | None]()
    for call in (job_cancel.of("j", "{}"), lock_release.of("l", "t")):
        with pytest.raises(StoreUnavailable) as away:
            call.run(away_store)
        named.append(away.value.job_id)
    assert named == ["j", None]
