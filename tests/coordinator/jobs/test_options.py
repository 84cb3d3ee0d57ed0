"""The options of a submit are typed: mypy sees a wrong one. And a submit takes few moves from file to file."""

import subprocess
import sys
from inspect import isfunction
from pathlib import Path

import pytest
from celery import Celery

from bench.moves import moves_of
from coordinator import Coordinator
from tests.harness.redis import RedisServer

ROOT = Path(__file__).parents[3]
MOST_MOVES = 12

BEGIN = """
from datetime import datetime
from coordinator import Backoff, Coordinator

coordinator = Coordinator(url="redis://-")
sorter = coordinator.sorter("s")
signature = {"task": "shop.ship", "args": [1]}
"""
RIGHT = """
coordinator.submit("k", signature)
coordinator.submit(["k", "l"], signature, when_busy="skip", job_id="j", priority=3, max_attempts=2, weight="all")
coordinator.submit("k", signature, retry_delay=[1, 2.5], retry_on=[OSError], rollback=signature, on_failure="hold")
coordinator.submit("k", signature, retry_delay=Backoff(cap=9), not_before=datetime.now(), unite={"x": None})
coordinator.submit_many([("k", signature), (("k", "l"), signature, {"needs": {"gpu"}, "time_limit": 2.5})])
sorter.add("1", "k", signature, priority=3)
sorter.watch("d", key="k", signature=lambda path: signature, max_losses=1)
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
]  # fmt: skip


def test_mypy_takes_what_is_right_and_sees_what_is_wrong(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(BEGIN + RIGHT + "\n".join(WRONG) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(snippet)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    first = len((BEGIN + RIGHT).splitlines()) + 1
    found = {int(line.split(":")[1]) for line in said if ": error: " in line}
    assert found == set(range(first, first + len(WRONG))), "\n".join(said)


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


@pytest.mark.parametrize(
    "name", sorted(name for name, one in vars(Coordinator).items() if isfunction(one) and name[0] != "_")
)
def test_every_call_of_the_public_face_says_what_it_does(name: str) -> None:
    assert getattr(Coordinator, name).__doc__, name
