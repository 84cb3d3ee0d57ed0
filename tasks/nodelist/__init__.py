"""The list of members: replicated on all nodes, and kept permanently in XML or LDAP."""

from tasks.nodelist.protocol import WRITTEN, Dates, Nodelist
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.stores import Listed, NodelistStore, NodelistStoreAway
from tasks.nodelist.xml_store import XmlStore

__all__ = [
    "WRITTEN",
    "Dates",
    "Listed",
    "Nodelist",
    "NodelistStore",
    "NodelistStoreAway",
    "ReplicatedNodelist",
    "XmlStore",
]
