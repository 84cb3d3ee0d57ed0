"""Components of batch pipelines: each polls for items by their events, works on them, and adds an event to each."""

from tasks.components.components import Components
from tasks.components.declaration import Component, NotYet, Work
from tasks.components.registry import UnknownComponent

__all__ = ["Component", "Components", "NotYet", "UnknownComponent", "Work"]
