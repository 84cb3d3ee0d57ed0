"""The demo's table on terminals of usual widths."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from coordinator import Job
from examples.demo import federation

AT = datetime(2026, 11, 22, 21, 10, 11, tzinfo=UTC)


@pytest.mark.parametrize("width", [90, 100, 116, 130])
def test_states_instants_and_counts_are_whole(width: int) -> None:
    job = Job(
        id="j", keys=("k",), state="succeeded", task="t", args=(), kwargs={}, attempt=1, losses=0, node="cn1@host",
        fence=1795382282082001, submitted=AT, taken=AT, started=AT, ended=AT, result=None, error=None,
        progress=(1200, 1200),
    )  # fmt: skip
    out = io.StringIO()
    sights = [federation.Sight("urn:node:ALPHA", "succeeded", job, 1200, 3, AT, AT, "t")]
    Console(file=out, width=width).print(federation._table(sights, width))
    for part in ("ALPHA", "succeeded", "1200/1200", "1200 (3 failed)", "21:10:11", " now ", "cn1"):
        assert part in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= width
