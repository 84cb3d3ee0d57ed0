"""The nodelist in LDAP. Only `store`, `directory` and `connection` need python-ldap; they are imported by name."""

from tasks.nodelist.ldap.errors import LdapConflict, LdapError, LdapRefused, LdapUnreachable

__all__ = ["LdapConflict", "LdapError", "LdapRefused", "LdapUnreachable"]
