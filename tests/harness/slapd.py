"""An LDAP server of the tests: slapd with the schema, the configuration and the accounts of deploy/ldap."""

import io
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ldap
import trustme
from ldif import LDIFWriter

from tasks.member_node.member import Member
from tasks.nodelist.ldap.connection import dn_of
from tasks.nodelist.ldap.entries import entries_of
from tasks.nodelist.ldap.schema import rdn
from tasks.settings import Settings
from tests.harness.ports import free_port
from tests.harness.server import Server, program

DEPLOY = Path(__file__).parents[2] / "deploy" / "ldap"
BASE = "dc=dataone,dc=org"
PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/local/libexec")


def dn(node_id: str, *below: tuple[str, str]) -> str:
    return dn_of((rdn("cn", node_id), *(rdn(*pair) for pair in below)), BASE)


def ldif_of(members: Iterable[Member], approved: bool = True) -> str:
    written = io.StringIO()
    writer = LDIFWriter(written)
    for member in members:
        for path, entry in entries_of(member, approved=approved).items():
            values = {name: [value.encode() for value in given] for name, given in entry.items()}
            writer.unparse(dn_of((rdn("cn", member.identifier), *path), BASE), values)
    return written.getvalue()


class SlapdServer(Server):
    """One in its own directory, for ldap:// and ldaps:// on free loopback ports.

    `issuer`: who signs its certificate; `names`: for whom.
    """

    def __init__(
        self,
        directory: Path,
        *,
        issuer: trustme.CA | None = None,
        names: Iterable[str] = ("127.0.0.1", "localhost"),
        configuration: str = "slapd.conf",
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory / "log")
        self.directory = directory
        self.tls_port = free_port()
        self.ca_bundle = directory / "ca.pem"
        (directory / "db").mkdir(parents=True)
        issuer = issuer or trustme.CA()
        certificate = issuer.issue_cert(*names)
        issuer.cert_pem.write_to_path(self.ca_bundle)
        certificate.cert_chain_pems[0].write_to_path(directory / "server.pem")
        certificate.private_key_pem.write_to_path(directory / "server.key")
        self.configuration = directory / "slapd.conf"
        self.configuration.write_text(self._here((DEPLOY / configuration).read_text(), replaced or {}))

    def _here(self, text: str, replaced: Mapping[str, str]) -> str:
        moved = {
            "/etc/ldap/dataone": str(DEPLOY),
            "/var/lib/ldap/dataone": str(self.directory / "db"),
            "/etc/ldap/tls": str(self.directory),
            "/run/slapd": str(self.directory),
            **replaced,
        }
        for old, new in moved.items():
            assert old in text, old
            text = text.replace(old, new)
        return text

    @property
    def url(self) -> str:
        return f"ldap://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"ldaps://127.0.0.1:{self.tls_port}"

    @property
    def account(self) -> dict[str, Any]:
        """What a process must set to be the coordinators'."""
        named = f"cn=coordinator,{BASE}"
        return {"ldap_url": self.url, "ldap_bind_dn": named, "ldap_password": "coordinator"}

    def settings(self, **given: Any) -> Settings:
        """As the coordinators' account, without TLS."""
        return Settings(**(self.account | given))

    @property
    def environ(self) -> dict[str, str]:
        """The same account, as the environment names it."""
        return {
            "TASKS_LDAP_URL": self.url,
            "TASKS_LDAP_BIND_DN": f"cn=coordinator,{BASE}",
            "TASKS_LDAP_PASSWORD": "coordinator",
        }

    def load(self, *ldifs: str, checked: bool = True) -> None:
        """Into the stopped server's database, past the access rules; past the schema too where it is not `checked`."""
        argv = [_program("slapadd"), "-q", "-f", str(self.configuration), *([] if checked else ["-s"])]
        done = subprocess.run(argv, input="\n".join(ldifs), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr

    def prepare(self) -> None:
        self.load((DEPLOY / "base.ldif").read_text())

    def argv(self) -> list[str]:
        """In the foreground, each operation a line in the log."""
        listeners = f"{self.url}/ {self.tls_url}/"
        return [_program("slapd"), "-d", "stats", "-f", str(self.configuration), "-h", listeners]

    def operator(self) -> Any:
        """A connection of python-ldap that may do all: whoever changes LDAP beside us."""
        connection = ldap.initialize(self.url)
        connection.simple_bind_s(f"cn=admin,{BASE}", "admin")
        return connection

    def entry(self, dn: str, *attributes: str) -> dict[str, list[bytes]]:
        connection = self.operator()
        found: dict[str, list[bytes]] = connection.search_s(dn, ldap.SCOPE_BASE, "(objectClass=*)", attributes or None)[
            0
        ][1]
        connection.unbind_s()
        return found

    def replace(self, dn: str, **attributes: str) -> None:
        """As an operator's ldapmodify would."""
        connection = self.operator()
        connection.modify_s(dn, [(ldap.MOD_REPLACE, name, [value.encode()]) for name, value in attributes.items()])
        connection.unbind_s()

    def operations(self, since: int = 0) -> list[str]:
        """`SRCH`, `MOD attr=…`, `ADD dn=…`, `DEL dn=…`, in their order; what each asked for, not its answer."""
        lines = self.log.read_text(errors="replace")[since:].splitlines()
        found = (re.search(r" op=\d+ ((?:SRCH base|MOD attr|ADD dn|DEL dn)=.*)", line) for line in lines)
        return [match[1] for match in found if match]

    def mark(self) -> int:
        """Where the log is now."""
        return len(self.log.read_text(errors="replace"))

    def stop(self) -> None:
        """As its service would; waits for the end. Its exit status says nothing: 1 where it had only just started."""
        assert self.process
        begun = self.mark()
        self.process.terminate()
        self.process.wait(60)
        said = self.log.read_text(errors="replace")
        assert "slapd stopped." in said[begun:], said


def _program(name: str) -> str:
    return program(name, *PLACES)
