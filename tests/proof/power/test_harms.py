"""Each harm leaves what lies before it as it is."""

from random import Random

import pytest

from proof.power.harms import BORDER, CUT, FLIP, HOLE, LAST, PAGE, SHORT, ZEROS, Harm, drawn, pages

TEXT = bytes(range(1, 251)) * 40  # 10,000 bytes, none of them zero
RECORD = b"*1\r\n$4\r\nPING\r\n"


@pytest.mark.parametrize("kind", [BORDER, CUT, SHORT])
def test_a_cut_takes_all_that_lies_behind(kind: str) -> None:
    assert Harm(kind, 5000).on(TEXT) == TEXT[:5000]


def test_a_flip_changes_one_bit() -> None:
    (changed,) = [(at, one ^ other) for at, (one, other) in enumerate(zip(TEXT, Harm(FLIP, 7, 3).on(TEXT), strict=True))
                  if one != other]  # fmt: skip
    assert changed == (7, 8)


def test_zeros_reach_to_the_end_or_over_one_page() -> None:
    to_end, page = Harm(ZEROS, PAGE).on(TEXT), Harm(HOLE, PAGE).on(TEXT)
    assert to_end == TEXT[:PAGE] + bytes(len(TEXT) - PAGE)
    assert page == TEXT[:PAGE] + bytes(PAGE) + TEXT[2 * PAGE :]


def test_what_is_drawn_lies_in_the_last_64_kib_and_is_the_same_for_a_seed() -> None:
    text = RECORD * 10_000
    found = drawn(text, 50, Random(1))
    assert found == drawn(text, 50, Random(1))
    assert len(found) == 150
    assert min(one.at for one in found) >= len(text) - LAST
    assert not {one.at % len(RECORD) for one in found if one.kind == BORDER} - {0}


def test_so_many_of_each_kind_of_page_at_most() -> None:
    assert len(list(pages(TEXT, 1, Random(1)))) == 3
    assert {one.at for one in pages(TEXT, 100, Random(1))} == {0, PAGE, 2 * PAGE}
