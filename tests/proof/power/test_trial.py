"""What a real server keeps of a file that a power cut tore, and what it refuses."""

import shutil
from pathlib import Path

import pytest

from proof.power.cases import copy, last_word
from proof.power.files import FOLDER, MANIFEST, records, tail
from proof.power.harms import FLIP, HOLE, ZEROS, Harm
from proof.power.load import Mark, Written
from proof.power.server import Server
from proof.power.states import Key
from proof.power.trial import stays_after_a_step, trial, which
from tests.proof.power.conftest import Harmed

MULTI = b"*1\r\n$5\r\nMULTI\r\n"


def text_of(written: Written) -> bytes:
    return tail(written.data).read_bytes()


def in_a_step(written: Written) -> int:
    """A byte within a record within a transaction, two thirds through the file."""
    text = text_of(written)
    open_ = False
    for end, (name, *_) in records(text):
        open_ = name == b"MULTI" or (open_ and name != b"EXEC")
        if open_ and name != b"MULTI" and end > len(text) * 2 / 3:
            return end - 5
    raise AssertionError("no step has several records")


def test_a_whole_file_gives_what_the_last_step_left(written: Written, harmed: Harmed) -> None:
    found = harmed(text_of(written), len(text_of(written)))
    assert (found.started, found.kept, found.stays) == (True, len(written.marks) - 1, True)


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_torn_end_is_cut_off_and_all_before_it_is_kept(written: Written, harmed: Harmed, share: float) -> None:
    text = text_of(written)
    at = int(len(text) * share)
    found = harmed(text[:at], at)
    assert found.started
    assert found.kept == max(number for number, mark in enumerate(written.marks) if mark.end <= at)


def test_a_file_that_is_written_anew_after_the_start_keeps_no_half_of_a_step(written: Written, harmed: Harmed) -> None:
    at = in_a_step(written)
    found = harmed(text_of(written)[:at], at, rewritten=True)
    assert (found.started, found.stays) == (True, True)
    assert found.kept >= 0


def test_half_a_step_is_seen(written: Written, harmed: Harmed) -> None:
    """One without its transaction, as no server leaves it."""
    text, at = text_of(written), in_a_step(written)
    begun = max(end for end, (name, *_) in records(text[:at]) if name == b"MULTI")
    torn = text[: begun - len(MULTI)] + text[begun:at]
    last = max(end for end, _ in records(torn))
    assert harmed(torn[:last], at).kept == -1


def test_half_a_step_that_the_next_start_applies_is_seen(written: Written, program: str, tmp_path: Path) -> None:
    """As Redis 7.0 leaves one in its file, before what it appends."""
    shutil.copytree(written.data, tmp_path / "data", ignore=shutil.ignore_patterns("log", "socket"))
    server = Server(tmp_path / "data", program)
    try:
        assert server.starts()
        assert stays_after_a_step(server)
        with tail(tmp_path / "data").open("ab") as file:
            file.write(MULTI + b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$1\r\n1\r\n")
        assert not stays_after_a_step(server, "much later")
    finally:
        server.kill()


@pytest.mark.parametrize("kind", [ZEROS, HOLE])
def test_zeros_are_refused_and_the_check_tool_cuts_them_off(written: Written, harmed: Harmed, kind: str) -> None:
    at = written.marks[len(written.marks) // 2].end
    found = harmed(Harm(kind, at).on(text_of(written)), at)
    assert not found.started
    assert "Bad file format reading the append only file" in found.said
    assert found.mended
    assert (found.kept, found.stays) == (len(written.marks) // 2, True)


def test_a_flipped_value_is_loaded_without_a_word(written: Written, harmed: Harmed) -> None:
    text = text_of(written)
    at = text.rindex(b"shop.work")
    found = harmed(Harm(FLIP, at, 1).on(text), at)
    assert (found.started, found.kept, last_word(found.said)) == (True, -1, "")


def test_a_flipped_name_of_a_command_is_refused_for_good(written: Written, harmed: Harmed) -> None:
    text = text_of(written)
    at = text.rindex(b"HSET")
    found = harmed(Harm(FLIP, at, 1).on(text), at)
    assert (found.started, found.mended) == (False, "")
    assert "unknown command" in found.said.lower()


def test_a_manifest_that_is_written_anew_gives_all_back(written: Written, program: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    copy(written.data, data)
    (data / FOLDER / MANIFEST).write_text("file append")
    found = trial(data, program, written.marks, len(written.marks) - 1)
    assert (found.started, found.mended, found.kept) == (False, "a new manifest", len(written.marks) - 1)


def test_of_several_steps_that_left_the_same_the_nearest_counts() -> None:
    one, other = {"a": Key(-1, "1")}, {"a": Key(-1, "2")}
    marks = [Mark("step", 0, 0.0, state) for state in (one, other, one, other, one)]
    assert [which(marks, one, number) for number in range(5)] == [0, 2, 2, 4, 4]
    assert which(marks, {}, 2) == -1
