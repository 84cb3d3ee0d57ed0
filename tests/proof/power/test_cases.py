"""What a harm came to, in words."""

import pytest

from proof.power.cases import came_to, last_word
from proof.power.trial import Found


@pytest.mark.parametrize(
    ("found", "came"),
    [
        (Found(True, "", 3, True, ""), "starts: all before it"),
        (Found(True, "", 9, True, ""), "starts: all"),
        (Found(True, "", 2, True, ""), "starts: less"),
        (Found(True, "", -1, True, ""), "starts: a state that no step left"),
        (Found(True, "", 3, False, ""), "starts: all before it, and half a step more at the next start"),
        (Found(False, "redis-check-aof", 3, True, ""), "refused, mended by redis-check-aof: all before it"),
        (Found(False, "", -1, False, ""), "refused, and not mended"),
    ],
)
def test_each_end_has_its_words(found: Found, came: str) -> None:
    assert came_to(found, 3, 9) == came


def test_the_last_word_is_about_the_file() -> None:
    said = "Server initialized\nBad file format reading the append only file appendonly.aof.2.incr.aof\nbye"
    assert last_word(said) == "Bad file format reading the append only file appendonly.aof.N.incr.aof"
    assert last_word("Server initialized") == ""
