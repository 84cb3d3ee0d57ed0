"""The errors of the LDAP store, in a module of their own that can be imported without python-ldap."""

from tasks.nodelist.stores import NodelistStoreAway, NodelistStoreRefused, Outdated


class LdapUnreachable(NodelistStoreAway):
    """The LDAP server is down, hangs, cannot be trusted or rejects the account. A write may have happened all the same.

    `way_out`: what to check or to set.
    """

    def __init__(self, url: str, cause: str, way_out: str) -> None:
        super().__init__(f"LDAP at {url}: {cause}; {way_out}")
        self.url, self.cause, self.way_out = url, cause, way_out


class LdapConflict(Outdated):
    """Others have changed, added or removed the entry since it was read, so it was not written: read it again."""

    def __init__(self, dn: str, cause: str) -> None:
        super().__init__(f"{dn} {cause}")
        self.dn = dn


class LdapRefused(NodelistStoreRefused):
    """The LDAP server refuses the operation, by its schema, access rules or limits, or as a read-only copy.

    A retry does not help. `attributes`: those of the operation; empty: not known.
    """

    def __init__(self, dn: str, attributes: tuple[str, ...], cause: str) -> None:
        of = f" ({', '.join(attributes)})" if attributes else ""
        super().__init__(f"{dn}{of}: {cause}")
        self.dn, self.attributes = dn, attributes


LdapError = LdapUnreachable | LdapConflict | LdapRefused
