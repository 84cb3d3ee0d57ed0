"""The list of seeds: whatever was red is kept and explained."""

from proof.checkers import NOTHING
from proof.history import History
from proof.seeds import RED, listed


def test_each_red_seed_of_the_list_is_explained_and_its_history_is_kept() -> None:
    for one in listed():
        if one.verdict != NOTHING:
            assert one.why, f"seed {one.seed} is red: mend what it shows, or say behind a # which limit it is"
            assert History.load(RED / f"{one.seed}.json.xz").checksum == one.checksum


def test_the_seeds_of_the_list_follow_each_other() -> None:
    assert [one.seed for one in listed()] == [*range(1, len(listed()) + 1)]
