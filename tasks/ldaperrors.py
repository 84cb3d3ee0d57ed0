"""What may go wrong with LDAP. For those that must act on it, without python-ldap."""


class LdapError(Exception):
    """Of every error of the directory."""


class Unreachable(LdapError):
    """The server is down, hangs, cannot be trusted or does not take our credentials. What was asked for may be done."""

    def __init__(self, url: str, cause: str, way_out: str) -> None:
        super().__init__(f"LDAP at {url}: {cause}; {way_out}")
        self.url, self.cause, self.way_out = url, cause, way_out


class Conflict(LdapError):
    """An entry is not as it was read: somebody else changed, added or removed it. It was not touched; read again."""

    def __init__(self, dn: str, cause: str) -> None:
        super().__init__(f"{dn} {cause}")
        self.dn = dn


class Refused(LdapError):
    """The server will not: schema, access rules, limits, or it is a read-only copy. Asking again does not help."""

    def __init__(self, dn: str, attributes: tuple[str, ...], cause: str) -> None:
        of = f" ({', '.join(attributes)})" if attributes else ""
        super().__init__(f"{dn}{of}: {cause}")
        self.dn, self.attributes = dn, attributes
