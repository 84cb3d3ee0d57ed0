"""The options of a submit are typed: mypy sees a wrong one. And a submit takes few moves from file to file."""

import re
import subprocess
import sys
from inspect import isfunction
from pathlib import Path

import pytest
from celery import Celery

from bench.moves import moves_of
from coordinator import Coordinator, Settings
from coordinator.core.settings import GivenSettings
from tests.harness.redis import RedisServer

ROOT = Path(__file__).parents[4]
MOST_MOVES = 16

BEGIN = """
# pyright: reportUnnecessaryComparison=error
from datetime import datetime
from coordinator import Backoff, Coordinator, KeyedTaskOptions, Use

coordinator = Coordinator(url="redis://-")
sorter = coordinator.sorter("s")
signature = {"task": "shop.ship", "args": [1]}
"""
RIGHT = """
coordinator.submit("k", signature)
coordinator.submit(["k", "l"], signature, when_busy="skip", job_id="j", priority=3, uses="q", exclusive=True)
coordinator.submit([], signature, uses={"q": 2, "r": Use("all", "end")})
coordinator.submit("k", signature, uses=["q", "r"])
coordinator.submit("k", signature, retry_delay=[1, 2.5], retry_on=[OSError], rollback=signature, on_failure="hold")
coordinator.submit("k", signature, retry_delay=Backoff(cap=9), not_before=datetime.now())
coordinator.submit("k", signature, collect={"how": "list", "idle": 1, "max_wait": None, "most": 5, "most_bytes": 99})
coordinator.collect("k", signature, how="merge", idle=1.5, max_wait=5, most=5, needs=["gpu"])
coordinator.submit_many([("k", signature), (("k", "l"), signature, {"needs": {"gpu"}, "time_limit": 2.5})])
sorter.add("1", "k", signature, priority=3)
sorter.watch("d", key="k", signature=lambda path: signature, max_losses=1)
coordinator.submit(None, signature)
Coordinator(prefix="p", labels=["gpu"], timeout=3, keep_most=5, fair_by=lambda key: key[:2])
coordinator.retry("j", to="front"), coordinator.move("j", to="back", priority=2), coordinator.lanes(state="empty")
coordinator.sorter("s", order="natural")
keyed = KeyedTaskOptions(key="order/{order_id}", when_busy="skip", on_skip="raise", max_attempts=2)
using = KeyedTaskOptions(uses={"api/{tenant}": 1}, max_waiting=5)
several: KeyedTaskOptions = {"key": ["stock/{sku}", lambda sku, order_id: [f"order/{order_id}"]], "retry_delay": [1, 5]}
if coordinator.job("j").state == "held" or coordinator.submit("k", signature).outcome == "skipped":
    coordinator.cancel("j")
"""
WRONG = [
    'coordinator.submit("k", signature, prioritty=3)',
    'coordinator.submit("k", signature, priority="high")',
    'coordinator.submit("k", signature, when_busy="sometimes")',
    'coordinator.submit("k", signature, time_limit="2 s")',
    'coordinator.submit("k", signature, retry_on=[int])',
    'coordinator.submit(5, signature)',
    'coordinator.submit("k", "shop.ship")',
    'coordinator.submit_many([("k", signature, {"prioritty": 3})])',
    'coordinator.submit_many([("k", signature, {"priority": "high"})])',
    'sorter.add("1", "k", signature, when_busy="skip")',
    'sorter.add("1", "k", signature, prioritty=3)',
    'sorter.watch("d", key="k", signature=signature, priority="high")',
    'from coordinator import Coordinater',
    'Coordinator(prefx="p")',
    'Coordinator(timeout="3 s")',
    'coordinator.retry("j", to="top")',
    'coordinator.lanes(state="wating")',
    'coordinator.sorter("s", order="numeric")',
    'KeyedTaskOptions(uses=5)',
    'coordinator.submit("k", signature, uses={"q": Use(until="never")})',
    'KeyedTaskOptions(key="k", when_bussy="skip")',
    'KeyedTaskOptions(key="k", on_skip="ignore")',
    'KeyedTaskOptions(key=5)',
    'KeyedTaskOptions(key="k", job_id="j")',
    'coordinator.job("j").state == "hold"',
    'coordinator.submit("k", signature).outcome == "skiped"',
]  # fmt: skip


MYPY = ["mypy", "--strict", "--no-error-summary", "--hide-error-context"]
PYRIGHT = ["basedpyright", "--level", "error"]


@pytest.mark.parametrize("checker", [MYPY, PYRIGHT], ids=["mypy", "pyright"])
def test_checkers_take_what_is_right_and_see_what_is_wrong(tmp_path: Path, checker: list[str]) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(BEGIN + RIGHT + "\n".join(WRONG) + "\n")
    command = [sys.executable, "-m", *checker, str(snippet)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    first = len((BEGIN + RIGHT).splitlines()) + 1
    found = {int(found[1]) for line in said if (found := re.search(r"snippet\.py:(\d+).* error: ", line))}
    assert found == set(range(first, first + len(WRONG))), "\n".join(said)


def test_the_settings_of_a_coordinator_are_typed_as_they_are_checked() -> None:
    assert list(GivenSettings.__annotations__) == list(Settings.model_fields)


def ship() -> None:
    """Never run here."""


def test_a_submit_goes_through_few_hands(redis_server: RedisServer, prefix: str) -> None:
    app = Celery("moves", broker=redis_server.url(1), set_as_current=False)
    coordinator = Coordinator(app, url=redis_server.url(0), prefix=prefix)
    task = app.task(ship, name="moves.ship")
    coordinator.submit("k", task.s())
    moves = moves_of(lambda: coordinator.submit("k", task.s()))
    coordinator.store.close()
    assert 0 < len(moves) <= MOST_MOVES, moves


def test_every_call_of_the_public_face_says_what_it_does() -> None:
    calls = {name: one for name, one in vars(Coordinator).items() if isfunction(one) and name[0] != "_"}
    assert [name for name, one in calls.items() if not one.__doc__] == []
