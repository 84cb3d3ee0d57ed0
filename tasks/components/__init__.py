"""Components: functions that work on the items of a pipeline. Each component polls the store for items with certain
events, and appends an event to each item that it has worked on.
"""

from tasks.components.components import Components
from tasks.components.declaration import Component, NotYet, Work
from tasks.components.registry import UnknownComponent

__all__ = ["Component", "Components", "NotYet", "UnknownComponent", "Work"]
