"""Fixtures of the core's tests."""

import pytest

from coordinator import Coordinator
from tests.puppet import Puppet


@pytest.fixture
def node(coordinator: Coordinator) -> Puppet:
    """A registered node, played by hand."""
    puppet = Puppet(coordinator.store)
    puppet.up()
    return puppet
