"""A short append-only file of each server of this machine, of which the tests of this folder harm copies."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proof.power.cases import before
from proof.power.commands import programs
from proof.power.files import tail
from proof.power.load import Written, write
from proof.power.trial import Found, trial

PROGRAMS = programs()
SIZE = 12_000  # bytes

Harmed = Callable[..., Found]


@pytest.fixture(scope="session", params=list(PROGRAMS))
def program(request: pytest.FixtureRequest) -> str:
    return PROGRAMS[request.param]


@pytest.fixture(scope="session")
def written(program: str, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write(tmp_path_factory.mktemp("written"), program, SIZE)


@pytest.fixture
def harmed(written: Written, program: str, tmp_path: Path) -> Harmed:
    """Start the server on a copy whose file has this text; `at`: where the harm begins."""

    def start(text: bytes, at: int, **options: Any) -> Found:
        data = tmp_path / "data"
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(written.data, data, ignore=shutil.ignore_patterns("log", "socket"))
        tail(data).write_bytes(text)
        return trial(data, program, written.marks, before(written.marks, at), **options)

    return start
