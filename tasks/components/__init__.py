"""Components: each polls for items by their events, works on them, and appends one event to each."""

from tasks.components.declaration import Component, NotYet, Work

__all__ = ["Component", "NotYet", "Work"]
