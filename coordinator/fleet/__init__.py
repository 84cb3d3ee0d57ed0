"""The nodes that live, and what the processes of this machine do."""

from coordinator.fleet.board import Board
from coordinator.fleet.nodes import Node, Nodes

__all__ = ["Board", "Node", "Nodes"]
