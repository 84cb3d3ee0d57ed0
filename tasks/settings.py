"""What an operator can set, once, in the environment (`TASKS_*`): one frozen, checked value."""

import difflib
import ipaddress
import json
import os
import socket
import tomllib
from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

PREFIX = "TASKS_"
MIB = 1024 * 1024


class Access(BaseModel):
    """How to reach one member where the public way does not do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ca_bundle: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    proxy: str | None = None


class Settings(BaseModel):
    """Durations in seconds, sizes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data_dir: Path = Field(default_factory=lambda: Path.home() / ".local" / "share" / "celery-coordinator")
    """Where the catalog and the nodelist lie unless they are named."""
    database_url: str = ""
    """SQLAlchemy's address of the catalog. Empty: SQLite below data_dir, which one host alone may use."""
    nodelist_path: Path | None = None
    """The DataONE node-list document. None: nodelist.xml below data_dir."""
    host: str = Field(default_factory=socket.gethostname)
    """The name of this machine, by which a SQLite catalog knows its own."""
    node_id: str = "urn:node:CN"
    """The coordinating node that signs the error reports sent to members."""
    access: Mapping[str, Access] = Field(default_factory=dict)
    """By member id, `*` for the others. In the environment: the path of a JSON or TOML file."""

    timezone: str = "UTC"
    """In which the members' schedules are meant, as in Europe/Berlin."""
    overlap: float = Field(default=600, ge=0)
    """How far before the last harvest a window begins, for objects that a member committed late."""
    margin: float = Field(default=10, ge=0)
    """How far before now a window ends."""
    refresh_interval: float = Field(default=15, ge=1)
    """How often the nodelist's permanent store is looked at for what others changed, and given what it lacks."""
    complete_schedule: str = "0 0 3 ? * SUN *"
    """Quartz expression of the complete pass, which finds what the others missed."""
    page_size: int = Field(default=1000, ge=1)
    connections: int = Field(default=8, ge=1, le=100)
    """At most so many connections to one member."""

    connect_timeout: float = Field(default=5, gt=0)
    read_timeout: float = Field(default=30, gt=0)
    """The longest silence within an answer."""
    request_timeout: float = Field(default=120, gt=0)
    """The longest an answer may take as a whole."""
    retry_after_limit: float = Field(default=60, ge=0)
    """A busy member that asks for a longer pause than this is left for the next run."""
    redirects: int = Field(default=5, ge=0)
    listing_limit: int = Field(default=64 * MIB, ge=1)
    metadata_limit: int = Field(default=4 * MIB, ge=1)

    tries: int = Field(default=3, ge=1)
    """For the metadata of one object, within one run."""
    try_pause: float = Field(default=0.5, ge=0)
    """Before the second try; doubles."""
    failure_delay: float = Field(default=60, gt=0)
    """Before a later run tries a failed object again; doubles, up to failure_delay_max."""
    failure_delay_max: float = Field(default=86400, gt=0)
    report_limit: int = Field(default=100, ge=0)
    """At most so many failures of one run are reported to the member."""
    give_up_after: int = Field(default=8, ge=1)
    """After so many failures in a row the member is asked whether it lives at all; that took too long, the run ends."""

    ldap_url: str = ""
    """The one writable LDAP server: ldap://host or ldaps://host. Empty: LDAP is not used."""
    ldap_base: str = "dc=dataone,dc=org"
    """The members' entries stand directly below it."""
    ldap_bind_dn: str = ""
    """Empty: anonymous."""
    ldap_password_file: Path | None = None
    """Read anew for each connection; a newline at its end is no part of the password."""
    ldap_password: SecretStr = SecretStr("")
    """Where there is no file."""
    ldap_starttls: bool = False
    ldap_ca_bundle: Path | None = None
    """PEM of those who may vouch for the server's certificate. None: whom the system trusts."""
    ldap_timeout: float = Field(default=5, gt=0)
    """The longest wait for a connection, or for one answer."""
    ldap_page: int = Field(default=500, ge=1)
    """Entries that one answer of a search holds at most."""

    @model_validator(mode="after")
    def _check_ldap(self) -> Self:
        if not self.ldap_url:
            return self
        parts = urlsplit(self.ldap_url)
        if parts.scheme not in ("ldap", "ldaps") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(f"ldap_url {self.ldap_url!r} is no ldap://host[:port] or ldaps://host[:port]")
        if parts.scheme == "ldaps" and self.ldap_starttls:
            raise ValueError("ldap_starttls is for ldap://; ldaps:// is TLS from its first byte")
        secret = bool(self.ldap_password_file or self.ldap_password.get_secret_value())
        if secret != bool(self.ldap_bind_dn):
            raise ValueError(
                "ldap_bind_dn goes with a password (ldap_password_file or ldap_password), and it with a name"
            )
        if secret and parts.scheme == "ldap" and not self.ldap_starttls and not _is_loopback(parts.hostname):
            raise ValueError(f"a password would go to {parts.hostname} in the clear: use ldaps:// or set ldap_starttls")
        return self

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, OSError, ValueError) as error:  # whatever it is that is no zone
            raise ValueError(f"there is no time zone {value!r}; write one like UTC or Europe/Berlin") from error
        return value

    @field_validator("access", mode="before")
    @classmethod
    def _load_access(cls, value: Any) -> Any:
        if not isinstance(value, str | Path):
            return value
        path = Path(value)
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)

    @property
    def zone(self) -> tzinfo:
        return UTC if self.timezone == "UTC" else ZoneInfo(self.timezone)

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / 'catalog.sqlite'}"

    @property
    def nodelist(self) -> Path:
        return self.nodelist_path or self.data_dir / "nodelist.xml"

    def access_to(self, member: str) -> Access:
        return self.access.get(member) or self.access.get("*") or Access()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, **given: Any) -> Self:
        """`given` goes before the environment. Raises ValueError, one line: an unknown name, or a value that is bad."""
        found = {name[len(PREFIX) :].lower(): value for name, value in environ.items() if name.startswith(PREFIX)}
        for name in found.keys() - cls.model_fields.keys():
            near = difflib.get_close_matches(name, cls.model_fields, n=1)
            hint = f"; did you mean {PREFIX}{near[0].upper()}?" if near else ""
            raise ValueError(f"unknown setting {PREFIX}{name.upper()}{hint}")
        try:
            return cls(**{**found, **given})
        except ValidationError as error:
            first = error.errors()[0]
            name = "".join(f"{PREFIX}{str(part).upper()}: " for part in first["loc"][:1])
            raise ValueError(f"{name}{first['msg'].removeprefix('Value error, ')}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
