"""The HTTP API for members: the part of a DataONE coordinating node's REST API that member nodes need."""

from tasks.web.app import MembersApp
from tasks.web.caller import Callers

__all__ = ["Callers", "MembersApp"]
