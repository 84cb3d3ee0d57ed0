"""`coordinator demo --batches`, as a program."""

import re
from pathlib import Path

import pytest

from examples.batches.deliver import items
from tests.harness.command import Command, called, refused

DEMO = ("demo", "--batches", "--no-flower")
BATCHES = items(20)


def test_all_batches_arrive_once_two_are_mended_and_ctrl_c_ends_it_with_the_grid(tmp_path: Path) -> None:
    with Command(tmp_path, *DEMO, env={"COLUMNS": "140"}) as demo:
        for item, why in ((BATCHES[2], "another checksum"), (BATCHES[6], "not there")):
            demo.says(f"{item} failed in Structure_Checked (", 90)
            mended = demo.out.index(f"{item} failed in Structure_Checked (")
            assert why in demo.out[mended:].splitlines()[0]
        for item in (BATCHES[2], BATCHES[6]):
            demo.says(f"{item}  Metadata_checked ✓", 60)
        demo.says("20 of 20 batches have Manual_QA_Flagged; 0 failed", 60)
        assert demo.end() == 0, demo.err
        assert demo.family() == []
    for item in BATCHES:
        assert re.search(rf"^{item}( +✓){{9}}", demo.out, re.MULTILINE), demo.out
    data = re.search(r"^data +(\S+)", demo.out, re.MULTILINE)
    assert data
    assert not Path(data[1]).exists()


def test_it_fails_where_no_batch_has_arrived_in_its_time(tmp_path: Path) -> None:
    with Command(tmp_path, *DEMO, "--for", "1") as demo:
        assert demo.process.wait(60) == 1
    assert "0 of 0 batches have Manual_QA_Flagged" in demo.out


def test_it_shares_no_redis_with_an_installation(tmp_path: Path) -> None:
    named = {"COORDINATOR_URL": "redis://127.0.0.1:1"}
    assert "has a Redis of its own: unset COORDINATOR_URL" in refused(called(tmp_path, named, *DEMO))


@pytest.mark.parametrize(
    ("missing", "way_out"),
    [
        ("jpylyzer", "pip install 'celery-coordinator[batches]'"),
        ("examples", "the demo of batches runs from a checkout"),
    ],
)
def test_without_its_libraries_or_its_example_it_says_so(tmp_path: Path, missing: str, way_out: str) -> None:
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError('as if it were away', name='{missing}')")
    said = refused(called(tmp_path, {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"}, *DEMO))
    assert way_out in said
