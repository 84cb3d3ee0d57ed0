"""The codes of `why`: each has an anchor in the docs. That tests produce each: tests/harness/produced.py."""

import re
from pathlib import Path

import pytest

from coordinator.ops.diagnosis.codes import CODES, cause, nth
from tests.harness.produced import causes

ROOT = Path(__file__).parents[4]


def test_each_code_has_an_anchor_in_the_docs_and_each_anchor_a_code() -> None:
    anchors = re.findall(r'<a id="([^"]+)"></a>`([^`]+)`', (ROOT / "docs" / "why.md").read_text())
    assert [name for name, shown in anchors if name != shown] == []
    assert sorted(name for name, _ in anchors) == sorted(causes())


def test_the_text_is_made_of_the_facts_and_leaves_out_what_nobody_knows() -> None:
    one = cause("waiting.paused", "lane a b", key="a b", by="ann", why="")
    assert (one.text, one.frees) == ("Lane a b is paused by ann", "coordinator resume 'a b' --why …")
    for key, written in (("-x", "--why … -- -x"), ("a/'b", "'a/'\"'\"'b' --why …")):
        assert cause("waiting.paused", f"lane {key}", key=key).frees == f"coordinator resume {written}"
    assert cause("held", "job j", id="j", error="ValueError: two\nlines").text == (
        "j failed (ValueError: two lines) and waits for you to retry or cancel it"
    )
    with pytest.raises(KeyError):
        cause("waiting.sun", "job j")


def test_a_job_whose_id_is_random_is_called_by_its_task_with_the_id_behind_it() -> None:
    job_id = "0f8fad5b-d9cb-469f-a165-70867728950e"
    assert cause("held", f"job {job_id}", id=job_id, task="shop.pack").text.startswith(f"shop.pack ({job_id}) failed")
    assert cause("held", "job order-1", id="order-1", task="shop.pack").text.startswith("order-1 failed")


@pytest.mark.parametrize(
    ("place", "word"),
    [(1, "first"), (10, "tenth"), (11, "11th"), (12, "12th"), (21, "21st"), (102, "102nd"), (113, "113th")],
)
def test_a_place_in_a_line_is_said_in_words(place: int, word: str) -> None:
    assert nth(place) == word


def test_no_sentence_says_root_and_a_slot_is_never_a_lanes() -> None:
    said = " ".join(sentence for sentence, *_ in CODES.values())
    assert "root" not in said
    assert not [code for code, (sentence, *_) in CODES.items() if "slot" in sentence and code.startswith("lane.")]
    assert [code for code, (_, frees, *_) in CODES.items() if frees.startswith("cancel")] == [], "no advice"
