"""What a worker tells its supervisor: a line as a whole, or not at all."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.core.fleet.companion import Companion
from coordinator.core.settings import Settings
from coordinator.core.worker import bootstep
from coordinator.core.worker.bootstep import Consumer, SupervisorStep
from tests.harness.waiting import wait_until

ECHO = "import sys; [print(line, end='', flush=True, file=open(sys.argv[1], 'a')) for line in sys.stdin]"


@pytest.fixture
def step(tmp_path: Path) -> Iterator[SupervisorStep]:
    """A worker's part, beside a process that says each line which it hears."""
    step = object.__new__(SupervisorStep)
    step._supervisor = Companion(
        "the supervisor", ["-c", ECHO, str(tmp_path / "heard")], tmp_path / "supervisor", 10, 10
    )
    step._supervisor.look(lambda: {"first": 1})
    yield step
    step._supervisor.stop()


def heard(tmp_path: Path) -> list[object]:
    """All but the first line, once there are two."""
    there = tmp_path / "heard"
    wait_until(lambda: there.exists() and there.read_text().count("\n") > 1)
    return [json.loads(line) for line in there.read_text().splitlines()][1:]


@pytest.mark.parametrize("no_id", ["x" * 200_000, "x" * 513, "lone\ud800", "", "a\nb", 5, None])
def test_a_revoke_of_what_no_job_can_be_named_is_not_told(step: SupervisorStep, no_id: object, tmp_path: Path) -> None:
    assert not step.cancel(no_id)  # type: ignore[arg-type]
    assert step.cancel("next")
    assert heard(tmp_path) == [{"cancel": "next"}]


def test_the_longest_id_that_a_job_can_have_is_told(step: SupervisorStep, tmp_path: Path) -> None:
    assert step.cancel("\u00e9" * 256)
    assert heard(tmp_path) == [{"cancel": "\u00e9" * 256}]


def test_a_line_that_a_pipe_might_cut_is_not_told(step: SupervisorStep, tmp_path: Path) -> None:
    assert not step.send({"why": "x" * 200_000})
    assert step.send({"ending": 1})
    assert heard(tmp_path) == [{"ending": 1}]


def test_a_supervisor_may_be_silent_for_longer_than_a_request_and_is_replaced_before_its_leases_end(
    step: SupervisorStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[object, ...]] = []

    def noted(*args: object) -> SimpleNamespace:
        made.append(args)
        return SimpleNamespace(look=lambda first_line: None)

    monkeypatch.setattr(bootstep, "Companion", noted)
    settings = Settings.load({"url": "redis://-"}, {}, {})
    status_file = SimpleNamespace(folder=Path("/nowhere"), fd=-1, look=lambda stops: None)
    there = SimpleNamespace(
        coordinated=SimpleNamespace(coordinator=SimpleNamespace(settings=settings, _status_file=status_file))
    )
    there._supervisor, there.wakes = None, SimpleNamespace(supervisor_end=-1)
    there._supervisor_config = step._supervisor_config
    SupervisorStep._look_after_supervisor(cast(SupervisorStep, there), cast(Consumer, None))
    patience = cast(float, made[0][3])
    assert 2 * settings.timeout < patience < settings.lock_ttl
