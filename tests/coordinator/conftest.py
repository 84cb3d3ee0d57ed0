"""Fixtures of the core's tests."""

import pytest

from coordinator import Coordinator, Sorter
from coordinator.store import Store
from tests.puppet import Puppet


@pytest.fixture
def node(coordinator: Coordinator) -> Puppet:
    """A registered node, played by hand."""
    puppet = Puppet(coordinator.store)
    puppet.up()
    return puppet


@pytest.fixture
def store(coordinator: Coordinator) -> Store:
    return coordinator.store


@pytest.fixture
def orders(coordinator: Coordinator) -> Sorter:
    return coordinator.sorter("orders")
