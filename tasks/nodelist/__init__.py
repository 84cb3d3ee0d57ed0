"""The nodelist, the list of all members: replicated to all nodes and beats, and written back to an XML file or LDAP."""
