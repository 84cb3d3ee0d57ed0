"""The list of seeds: whatever was red is kept and explained."""

import re

from proof.checkers import NOTHING
from proof.history import History
from proof.sceptic import so_far
from proof.seeds import RED, listed


def test_each_red_seed_of_the_list_is_explained_and_its_history_is_kept() -> None:
    for one in listed():
        if one.verdict != NOTHING:
            assert one.why, f"seed {one.seed} is red: mend what it shows, or say behind a # which limit it is"
            assert History.load(RED / f"{one.seed}.json.xz").checksum == one.checksum


def test_each_seed_is_in_the_list_once_in_order_and_the_page_names_those_that_were_left_out() -> None:
    seeds = [one.seed for one in listed()]
    assert seeds == sorted(set(seeds))
    named = re.search(r"Not played yet: ([\d, ]+)\.", so_far())
    left = [int(number) for number in named[1].split(", ")] if named else []
    assert sorted([*seeds, *left]) == [*range(1, seeds[-1] + 1)]
