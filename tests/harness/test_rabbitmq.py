"""A machine without RabbitMQ is told, and no test is skipped there."""

from pathlib import Path

import pytest

from tests.harness import rabbitmq
from tests.harness.rabbitmq import RabbitServer
from tests.harness.server import NoServer


def test_a_machine_without_rabbitmq_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rabbitmq, "PLACES", f"{tmp_path}/*/sbin")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoServer, match=r"no epmd: .*make system"), RabbitServer(tmp_path / "server"):
        raise AssertionError
