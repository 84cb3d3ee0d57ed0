"""The checker in a minute, and that it sees what it is for."""

from pathlib import Path

import pytest

from tasks.documents.library import text_of
from tests.consistency.checker import Trial
from tests.consistency.members import Members
from tests.consistency.observers import without_pointer
from tests.harness.long import long
from tests.harness.redis import RedisServer

HALF_ACKNOWLEDGED = ("versions", "if not acked[member] then return end", "")


@pytest.mark.timeout(long(120, 600))
def test_a_replica_set_goes_through_each_mishap(apart: Members, own_redis: RedisServer, tmp_path: Path) -> None:
    seen = Trial(apart, own_redis, tmp_path / "redis", seed=1).run(
        ["hang", "full", "die", "cut", "restart"] * long(1, 6), long(200, 1_000)
    )
    assert seen.marked < seen.reads


@pytest.mark.timeout(120)
def test_a_commit_that_not_all_acknowledged_is_seen(own_redis: RedisServer, tmp_path: Path) -> None:
    file, old, _ = HALF_ACKNOWLEDGED
    assert text_of(file).count(old) == 1
    with (
        Members(own_redis.url(0), "apart", tmp_path / "copies", HALF_ACKNOWLEDGED) as members,
        pytest.raises(AssertionError, match=r"has not the newest|older than what was known|is another on"),
    ):
        Trial(members, own_redis, tmp_path / "redis", seed=1, pace=0.01).run([], 4000)  # as many as it takes


@pytest.mark.timeout(120)
def test_a_read_that_skips_the_pointer_is_seen(apart: Members, own_redis: RedisServer, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="older than what was known"):
        Trial(apart, own_redis, tmp_path / "redis", seed=1).run(["hang"] * 3, 50, without_pointer)
