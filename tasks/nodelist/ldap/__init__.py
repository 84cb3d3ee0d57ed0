"""The nodelist in LDAP. Only `store`, `directory` and `connection` need python-ldap; they are imported by name."""
