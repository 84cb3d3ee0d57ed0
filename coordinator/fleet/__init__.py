"""The nodes that live, and what the processes of this machine do."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.fleet.board import Board
    from coordinator.fleet.nodes import Node, Nodes
else:
    __getattr__, __dir__ = handing_on(__name__, {"board": ("Board",), "nodes": ("Node", "Nodes")})

__all__ = ["Board", "Node", "Nodes"]
