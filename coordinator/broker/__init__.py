"""The way over the app's broker: its connection options, and the doorbells that wake nodes."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.broker.doorbells import Doorbells
else:
    __getattr__, __dir__ = handing_on(__name__, {"doorbells": ("Doorbells",)})

__all__ = ["Doorbells"]
