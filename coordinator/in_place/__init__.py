"""Jobs in place: at submit, in the process that submits them, without Redis."""

from coordinator.in_place.grabs import GrabberInPlace
from coordinator.in_place.in_place import InPlace

__all__ = ["GrabberInPlace", "InPlace"]
