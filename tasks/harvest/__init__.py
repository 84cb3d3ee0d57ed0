"""Synchronize one member: list its objects, fetch their metadata, store them."""

from tasks.harvest.harvest import Outcome, harvest_member

__all__ = ["Outcome", "harvest_member"]
