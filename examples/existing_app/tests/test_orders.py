"""The project's own tests: tasks run at their call."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from shipping.app import app
from shipping.orders import place


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = False


def test_an_order_is_packed_and_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIPPING_LEDGER", str(tmp_path / "ledger.txt"))
    assert all(result.successful() for result in place(7))
    assert (tmp_path / "ledger.txt").read_text().splitlines() == [
        "order 7: pack begins",
        "order 7: pack ends",
        "order 7: ship begins",
        "order 7: ship ends",
    ]
