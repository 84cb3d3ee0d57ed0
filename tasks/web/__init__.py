"""HTTP for members: the part of DataONE's REST API of a coordinating node that they need."""

from tasks.web.app import MembersApp
from tasks.web.caller import Callers

__all__ = ["Callers", "MembersApp"]
