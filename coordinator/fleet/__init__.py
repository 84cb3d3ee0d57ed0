"""The nodes that live, and the doorbells that wake them."""

from coordinator.fleet.doorbells import Doorbells
from coordinator.fleet.nodes import Node, Nodes

__all__ = ["Doorbells", "Node", "Nodes"]
