"""One member node: its description, its objects, and the client of its REST API."""

from tasks.member_node.client import MemberNode, MemberNodeError
from tasks.member_node.member import Member, Schedule
from tasks.member_node.objects import ListedObject, Listing, SystemMetadata

__all__ = ["ListedObject", "Listing", "Member", "MemberNode", "MemberNodeError", "Schedule", "SystemMetadata"]
