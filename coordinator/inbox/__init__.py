"""The inbox: requests from a queue of the broker."""

from coordinator.inbox.inbox import Inbox, register

__all__ = ["Inbox", "register"]
