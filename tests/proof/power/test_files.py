"""The records of an append-only file, read from a real one."""

from proof.power.files import borders, parts, records, tail
from proof.power.load import Written


def test_each_step_ends_where_a_record_ends(written: Written) -> None:
    ends = {0, *borders(tail(written.data).read_bytes())}
    assert {mark.end for mark in written.marks} <= ends


def test_a_step_of_several_commands_is_one_transaction(written: Written) -> None:
    text, open_ = tail(written.data).read_bytes(), False
    ends = {mark.end for mark in written.marks}
    for end, (name, *_) in records(text):
        open_ = name == b"MULTI" or (open_ and name != b"EXEC")
        assert not (open_ and end in ends), f"{name!r} at {end} is in the middle of a step"


def test_a_record_that_is_cut_off_is_none() -> None:
    whole = b"*1\r\n$4\r\nPING\r\n"
    assert [words for _, words in records(whole + whole[:-1])] == [[b"PING"]]
    assert borders(whole * 2) == [14, 28]


def test_the_manifest_lists_one_base_and_what_came_since(written: Written) -> None:
    (base,), (since,) = parts(written.data, "b"), parts(written.data, "i")
    assert (base.name.split(".")[-1], since.name.split(".")[-1]) == ("rdb", "aof")
