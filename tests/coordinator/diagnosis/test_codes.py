"""The codes of `why`: each has an anchor in the docs and a test that produces it, and no other has."""

import re
from pathlib import Path

import pytest

from coordinator.diagnosis.codes import CODES, cause
from tasks import members
from tasks.components import look

ROOT = Path(__file__).parents[3]
CODE = re.compile(r'"((?:waiting|rejected|running|later|parked|lane|node|entry)\.[a-z-]+|held|over|damaged)"')


def test_each_code_has_an_anchor_in_the_docs_and_each_anchor_a_code() -> None:
    anchors = re.findall(r'<a id="([^"]+)"></a>`([^`]+)`', (ROOT / "docs" / "why.md").read_text())
    assert [name for name, shown in anchors if name != shown] == []
    assert sorted(name for name, _ in anchors) == sorted([*CODES, *_of_the_service()])


def test_each_code_is_produced_by_a_test() -> None:
    tests = [path.read_text() for path in Path(__file__).parent.glob("test_*.py") if path.name != "test_codes.py"]
    produced = set(CODE.findall("\n".join(text for text in tests if ".codes" in text)))
    assert produced == set(CODES)
    assert [code for code in _of_the_service() if code not in _text("tests/tasks") + _text("tests/fleet/tasks")] == []


def _of_the_service() -> set[str]:
    return {*members.CODES, *look.CODES}


def _text(folder: str) -> str:
    return "\n".join(path.read_text() for path in (ROOT / folder).rglob("*.py"))


def test_the_text_is_made_of_the_facts_and_leaves_out_what_nobody_knows() -> None:
    one = cause("waiting.paused", "lane a b", key="a b", by="ann", why="")
    assert (one.text, one.frees) == ("lane a b is paused, by ann", "coordinator resume 'a b' --why …")
    with pytest.raises(KeyError):
        cause("waiting.sun", "job j")
