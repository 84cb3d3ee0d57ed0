"""What a worker tells its clock: a line as a whole, or not at all."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.settings import Settings
from coordinator.warden.companion import Companion
from coordinator.worker import bootstep
from coordinator.worker.bootstep import Consumer, WardenStep
from tests.harness.waiting import wait_until

ECHO = "import sys; [print(line, end='', flush=True, file=open(sys.argv[1], 'a')) for line in sys.stdin]"


@pytest.fixture
def step(tmp_path: Path) -> Iterator[WardenStep]:
    """A worker's part, beside a process that says each line which it hears."""
    step = object.__new__(WardenStep)
    step._clock = Companion("the clock", ["-c", ECHO, str(tmp_path / "heard")], tmp_path / "clock", 10, 10)
    step._clock.look(lambda: {"first": 1})
    yield step
    step._clock.stop()


def heard(tmp_path: Path) -> list[object]:
    """All but the first line, once there are two."""
    there = tmp_path / "heard"
    wait_until(lambda: there.exists() and there.read_text().count("\n") > 1, 20)
    return [json.loads(line) for line in there.read_text().splitlines()][1:]


@pytest.mark.parametrize("no_id", ["x" * 200_000, "x" * 513, "lone\ud800", "", "a\nb", 5, None])
def test_a_revoke_of_what_no_job_can_be_named_is_not_told(step: WardenStep, no_id: object, tmp_path: Path) -> None:
    assert not step.cancel(no_id)  # type: ignore[arg-type]
    assert step.cancel("next")
    assert heard(tmp_path) == [{"cancel": "next"}]


def test_the_longest_id_that_a_job_can_have_is_told(step: WardenStep, tmp_path: Path) -> None:
    assert step.cancel("\u00e9" * 256)
    assert heard(tmp_path) == [{"cancel": "\u00e9" * 256}]


def test_a_line_that_a_pipe_might_cut_is_not_told(step: WardenStep, tmp_path: Path) -> None:
    assert not step.send({"why": "x" * 200_000})
    assert step.send({"ending": 1})
    assert heard(tmp_path) == [{"ending": 1}]


def test_a_clock_may_be_silent_for_longer_than_a_request_and_is_replaced_before_its_leases_end(
    step: WardenStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[object, ...]] = []

    def noted(*args: object) -> SimpleNamespace:
        made.append(args)
        return SimpleNamespace(look=lambda charge: None)

    monkeypatch.setattr(bootstep, "Companion", noted)
    settings = Settings.load({"url": "redis://-"}, {}, {})
    board = SimpleNamespace(folder=Path("/nowhere"), memory=-1, look=lambda stops: None)
    there = SimpleNamespace(coordinated=SimpleNamespace(coordinator=SimpleNamespace(settings=settings, _board=board)))
    there._clock, there.wakes = None, SimpleNamespace(clocks_end=-1)
    there._charge = step._charge
    WardenStep._look_after_clock(cast(WardenStep, there), cast(Consumer, None))
    patience = cast(float, made[0][3])
    assert 2 * settings.timeout < patience < settings.lock_ttl
