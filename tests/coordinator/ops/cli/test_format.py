"""Tables are whole for programs and files, and fit into a terminal."""

from datetime import UTC, datetime

from coordinator.ops.cli.format import as_pairs, as_table

HEADS = ("id", "state", "keys", "attempt", "submitted")
ROWS = [("a" * 36, "succeeded", "order/" + "4" * 60, 2, "2026-11-22 21:10:11"), ("b", "waiting", "k", 1, "-")]


def test_pairs_leave_out_what_is_empty() -> None:
    assert as_pairs([("a", 0), ("bc", []), ("d", ()), ("e", None), ("f", ["x", "y"])]) == "a  0\nf  x, y"


def test_a_table_that_is_not_shown_on_a_terminal_is_whole() -> None:
    assert "4" * 60 in as_table(HEADS, ROWS)


def test_on_a_terminal_the_widest_column_is_cut_and_the_first_never() -> None:
    lines = as_table(HEADS, ROWS, most=100).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[1].startswith("a" * 36 + "  succeeded  order/4")
    assert "…  " in lines[1]
    assert lines[0].split() == ["ID", "STATE", "KEYS", "ATTEMPT", "SUBMITTED"]


def test_where_even_that_is_too_wide_the_other_columns_stand_below_the_first() -> None:
    lines = as_table(HEADS, ROWS, most=60).splitlines()
    assert max(map(len, lines)) <= 60
    assert [line.split() for line in lines[:2]] == [["ID"], ["STATE", "KEYS", "ATTEMPT", "SUBMITTED"]]
    assert lines[2] == "a" * 36
    assert lines[3].startswith("  succeeded  order/4")
    assert [line.split() for line in lines[4:]] == [["b"], ["waiting", "k", "1", "-"]]


def test_where_nothing_else_helps_the_last_columns_are_left_out_and_named() -> None:
    lines = as_table(HEADS, ROWS, most=24).splitlines()
    assert lines[:2] == ["ID", "  STATE      KEYS"]
    assert lines[2] == "a" * 36, "a name is whole"
    assert lines[-1] == "(no room for ATTEMPT, SUBMITTED: --json has all)"


def test_prose_in_the_last_column_wraps_and_a_name_is_cut() -> None:
    heads, rows = ("setting", "meaning"), [("timeout", "the longest wait for one answer"), ("url", "redis-" * 9)]
    assert as_table(heads, rows, most=26).splitlines() == [
        "SETTING  MEANING",
        "timeout  the longest wait",
        "         for one answer",
        "url      redis-redis-redi…",
    ]


def test_a_narrow_table_leaves_out_what_is_empty_first_and_cuts_no_instant() -> None:
    at = datetime(2026, 11, 22, 21, 10, 11, tzinfo=UTC)
    heads, rows = ("id", "progress", "keys", "submitted"), [("a" * 36, None, "k" * 60, at), ("b", None, "-", None)]
    assert "PROGRESS" in as_table(heads, rows)
    lines = as_table(heads, rows, most=70).splitlines()
    assert lines == [
        "ID".ljust(38) + "KEYS".ljust(12) + "SUBMITTED",
        f"{'a' * 36}  {'k' * 9}…  2026-11-22 21:10:11Z",
        "b".ljust(38) + "-".ljust(12) + "-",
    ]


def test_what_would_steer_the_terminal_is_written_out_and_a_cell_is_one_line() -> None:
    assert as_table(("why",), [("two\nlines, \x1b[2J",)]) == "WHY\ntwo lines, \\x1b[2J"
    assert as_pairs([("error", "two\nlines, \x9b2J")]) == "error  two\n       lines, \\x9b2J"


def test_a_text_that_would_alter_the_line_around_it_is_shown_escaped() -> None:
    assert as_pairs([("a", "x\u202ey\u2028z\x85\x1b[2J")]) == r"a  x\u202ey\u2028z\x85\x1b[2J"
    assert as_table(["a", "b"], [("x\u2029y", "b\u2066")]).splitlines()[1].split() == [r"x\u2029y", r"b\u2066"]
