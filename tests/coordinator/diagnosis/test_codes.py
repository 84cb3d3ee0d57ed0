"""The codes of `why`: each has an anchor in the docs. That tests produce each: tests/harness/produced.py."""

import re
from pathlib import Path

import pytest

from coordinator.diagnosis.codes import cause
from tests.harness.produced import causes

ROOT = Path(__file__).parents[3]


def test_each_code_has_an_anchor_in_the_docs_and_each_anchor_a_code() -> None:
    anchors = re.findall(r'<a id="([^"]+)"></a>`([^`]+)`', (ROOT / "docs" / "why.md").read_text())
    assert [name for name, shown in anchors if name != shown] == []
    assert sorted(name for name, _ in anchors) == sorted(causes())


def test_the_text_is_made_of_the_facts_and_leaves_out_what_nobody_knows() -> None:
    one = cause("waiting.paused", "lane a b", key="a b", by="ann", why="")
    assert (one.text, one.frees) == ("lane a b is paused, by ann", "coordinator resume 'a b' --why …")
    for key, written in (("-x", "--why … -- -x"), ("a/'b", "'a/'\"'\"'b' --why …")):
        assert cause("waiting.paused", f"lane {key}", key=key).frees == f"coordinator resume {written}"
    assert cause("held", "job j", id="j", error="ValueError: two\nlines").text.endswith(": ValueError: two lines")
    with pytest.raises(KeyError):
        cause("waiting.sun", "job j")
