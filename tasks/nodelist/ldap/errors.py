"""The errors of LDAP, which a program can import without python-ldap."""

from tasks.nodelist.stores import NodelistStoreAway, NodelistStoreRefused, Outdated


class LdapUnreachable(NodelistStoreAway):
    """The server is down, hangs, cannot be trusted or rejects our credentials. The operation may have happened."""

    def __init__(self, url: str, cause: str, way_out: str) -> None:
        super().__init__(f"LDAP at {url}: {cause}; {way_out}")
        self.url, self.cause, self.way_out = url, cause, way_out


class LdapConflict(Outdated):
    """Somebody else changed, added or removed this entry since it was read. It was not touched: read it again."""

    def __init__(self, dn: str, cause: str) -> None:
        super().__init__(f"{dn} {cause}")
        self.dn = dn


class LdapRefused(NodelistStoreRefused):
    """The server refuses, by its schema, access rules or limits, or as a read-only copy. Asking again does not help."""

    def __init__(self, dn: str, attributes: tuple[str, ...], cause: str) -> None:
        of = f" ({', '.join(attributes)})" if attributes else ""
        super().__init__(f"{dn}{of}: {cause}")
        self.dn, self.attributes = dn, attributes


LdapError = LdapUnreachable | LdapConflict | LdapRefused
