"""Every order that the steps of a refresh and of a sync can have."""

from collections.abc import Callable

import pytest

from tests.tasks.conftest import catalog, lists, settings, slapd
from tests.tasks.nodelist.lists import Lists
from tests.tasks.test_nodelist_refresh_beside import both_are_kept, reset_arrives, sync_is_kept

__all__ = ["catalog", "lists", "settings", "slapd"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.mark.parametrize("claim", [sync_is_kept, both_are_kept, reset_arrives])
def test_in_every_order_of_their_steps(lists: Lists, claim: Callable[[Lists, int], None]) -> None:
    claim(lists, 1)
