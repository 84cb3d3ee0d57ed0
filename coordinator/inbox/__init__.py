"""The inbox: requests from a queue of the broker."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.inbox.inbox import Inbox, register
else:
    __getattr__, __dir__ = handing_on(__name__, {"inbox": ("Inbox", "register")})

__all__ = ["Inbox", "register"]
