"""The whole checker of the nodelist with LDAP: `make soak`. A seed that fails is told and can be run again alone."""

import random

import pytest

from tests.consistency.author import STEPS
from tests.consistency.test_nodelist_checker import Made, trial
from tests.tasks.conftest import slapd

__all__ = ["slapd", "trial"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

BESIDE = ["refresher_dies", "refresher_pauses", "ldap_stops", "ldap_hangs", "cut", "die", "hang", "full", "restart"]


@pytest.mark.parametrize("seed", range(4))
def test_nodelist_and_ldap_end_equal_after_forty_mishaps(trial: Made, seed: int) -> None:
    mishaps = ["author_dies", "author_pauses"] * len(STEPS) + BESIDE * 3
    random.Random(seed).shuffle(mishaps)
    trial(seed=seed).run(mishaps, 1_000)
