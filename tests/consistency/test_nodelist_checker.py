"""The checker over the nodelist in half a minute, and that it sees what it is for."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.consistency.author import FORGETS, FORGOTTEN, SKIPS, STEPS
from tests.consistency.members import Members
from tests.consistency.nodelist import NodelistTrial, listed
from tests.harness.long import long
from tests.harness.redis import RedisServer
from tests.harness.slapd import SlapdServer, ldif_of
from tests.tasks.conftest import RIVER, slapd

__all__ = ["slapd"]
pytestmark = pytest.mark.timeout(long(120, 600))
BESIDE = ["refresher_dies", "refresher_pauses", "ldap_stops", "ldap_hangs", "cut", "die", "hang", "full", "restart"]
Made = Callable[..., NodelistTrial]


@pytest.fixture
def trial(
    apart: Members, own_redis: RedisServer, slapd: SlapdServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Made:
    """Over two dozen members in LDAP, or so many."""
    members = listed(RIVER, getattr(request, "param", 24))
    slapd.stop()
    slapd.load(ldif_of(members))
    slapd.start()
    names = [member.identifier for member in members]
    return partial(NodelistTrial, apart, own_redis, tmp_path / "redis", slapd=slapd, names=names)


def test_nodelist_and_ldap_end_equal_though_writers_die_and_pause_at_their_steps(trial: Made) -> None:
    """At some of them, or at each."""
    few = ["author_dies", "author_pauses", "author_dies", "ldap_stops", "refresher_dies", "die"]
    mishaps, updates = long((few, 60), (["author_dies", "author_pauses"] * len(STEPS) + BESIDE * 3, 1_000))
    trial(seed=1).run(random.Random(1).sample(mishaps, len(mishaps)), updates)


def test_a_write_to_ldap_that_is_left_out_is_seen(trial: Made) -> None:
    with pytest.raises(AssertionError, match=r"nobody made|half an update| became |LDAP is not equal"):
        trial(seed=1, defect=SKIPS).run([], 50)


@pytest.mark.parametrize("trial", [300], indirect=True, ids=["of 300"])  # lest later updates of the same member hide it
def test_an_update_that_is_taken_off_the_pending_before_ldap_has_it_is_seen(trial: Made) -> None:
    with pytest.raises(AssertionError, match="LDAP is not equal"):
        trial(seed=1, defect=FORGETS, fatal=[FORGOTTEN]).run(["author_dies"] * 3, 20)
