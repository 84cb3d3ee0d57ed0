"""The list of members: replicated on all nodes, and kept permanently in XML or LDAP."""
