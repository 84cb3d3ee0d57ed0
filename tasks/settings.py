"""The service's settings, read from the environment (`TASKS_*`) and checked."""

import difflib
import ipaddress
import json
import os
import socket
import tomllib
from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Literal, Self
from zoneinfo import ZoneInfo

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from coordinator.extending import split_url

PREFIX = "TASKS_"
MIB = 1024 * 1024


Say = Literal[
    "name", "description", "base_url", "type", "state", "replicate", "synchronize", "services", "available", "schedule",
    "replication_policy", "subjects", "contact_subjects", "properties",
]  # fmt: skip
"""A field of the description that a member serves of itself; `available`: the flags `available` of its services."""


class Access(BaseModel):
    """One row of TASKS_ACCESS: the certificates and the proxy with which the service connects to a member."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ca_bundle: Path | None = Field(
        default=None, description="PEM file of the certificate authorities to trust for the member"
    )
    client_cert: Path | None = Field(default=None, description="PEM file of the client certificate")
    client_key: Path | None = Field(default=None, description="PEM file of that certificate's key")
    proxy: str | None = Field(default=None, description="address of the HTTP proxy for the member")


class Settings(BaseModel):
    """The service's settings; each is the environment variable TASKS_<NAME>. Durations in seconds, sizes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    data_dir: Path = Field(
        default_factory=lambda: Path.home() / ".local" / "share" / "celery-coordinator",
        description="folder of the catalog and the nodelist, unless they are named",
    )
    replica_dir: Path = Field(
        default_factory=lambda: Path.home() / ".local" / "state" / "celery-coordinator",
        description="folder in which nodes and beats keep their copies of the nodelist",
    )
    database_url: str = Field(
        "",
        description="SQLAlchemy address of the catalog; empty: SQLite below data_dir, for one host alone",
    )
    nodelist_path: Path | None = Field(
        None, description="file of the node-list document; empty: nodelist.xml below data_dir"
    )
    host: str = Field(
        default_factory=socket.gethostname, description="name of this machine, which a SQLite catalog checks"
    )
    node_id: str = Field("urn:node:CN", description="coordinating node that signs the error reports to members")
    components: str = Field("", description="module that declares the components of batch pipelines; empty: none")
    on_object: str = Field(
        "",
        pattern=r"^(\w+(\.\w+)+)?$",
        description="task that gets an event for each object that is new, changed, archived or gone, as its module and "
        "name: titles.on_object; nodes import the module; empty: none",
    )
    keep_events: float = Field(
        2592000, ge=0, description="time for which these events are kept, in seconds; longer until the task has them"
    )
    access: Mapping[str, Access] = Field(
        default_factory=dict, description="JSON or TOML file: how to reach a member, by its id, `*` for the others"
    )

    timezone: str = Field("UTC", description="time zone of the members' schedules, such as Europe/Berlin")
    overlap: float = Field(
        600, ge=0, description="how far before the last harvest a window begins, in seconds, for objects committed late"
    )
    margin: float = Field(10, ge=0, description="how far before now a window ends, in seconds")
    refresh_interval: float | None = Field(
        None,
        ge=1,
        description="time between two refreshes of the nodelist from and to its permanent store, in seconds; not set: "
        "as the entry `nodelist` of beat_schedule.py says",
    )
    complete_schedule: str | None = Field(
        None,
        description="Quartz expression, in UTC, of the complete pass over every member; not set: as "
        "the entry `complete-passes` of beat_schedule.py says",
    )
    page_size: int = Field(1000, ge=1, description="number of objects on one page of a member's listing")
    connections: int = Field(8, ge=1, le=100, description="number of connections to one member at most")

    connect_timeout: float = Field(
        5, gt=0, description="longest time to open a connection to a member, and to answer a ping, in seconds"
    )
    read_timeout: float = Field(30, gt=0, description="longest pause within an answer, in seconds")
    request_timeout: float = Field(120, gt=0, description="longest time for an answer as a whole, in seconds")
    retry_after_limit: float = Field(
        60,
        ge=0,
        description="longest Retry-After of a busy member (429, 503) for which its job waits, in no slot, in seconds; "
        "else the run fails, and the next one goes on",
    )
    redirects: int = Field(5, ge=0, description="number of redirects that one request follows")
    listing_limit: int = Field(64 * MIB, ge=1, description="largest page of a listing, in bytes")
    metadata_limit: int = Field(4 * MIB, ge=1, description="largest system metadata of one object, in bytes")

    tries: int = Field(
        3, ge=1, description="number of tries for a page of a listing, and for the metadata of an object, in one run"
    )
    try_pause: float = Field(0.5, ge=0, description="pause before the second try, in seconds; it doubles")
    failure_delay: float = Field(
        60, gt=0, description="time before a later run tries a failed object again, in seconds; it doubles"
    )
    failure_delay_max: float = Field(86400, gt=0, description="longest such time, in seconds")
    failure_time: float = Field(
        60, gt=0, description="longest time in which one run begins to fetch objects that failed before, in seconds"
    )
    report_limit: int = Field(100, ge=0, description="number of failures that one run reports to the member at most")
    give_up_after: int = Field(
        8,
        ge=1,
        description="number of failures in a row after which a run pings the member; so many time-outs end the run",
    )

    member_rate: int = Field(60, ge=1, description="number of HTTP requests that a member may make in a minute")
    member_may: tuple[Say, ...] = Field(
        ("state", "synchronize", "schedule", "available", "name", "description", "contact_subjects", "properties"),
        description="fields of its description that a member may change by itself, with commas between them; "
        "an operator accepts or refuses changes of the others",
    )
    oftenest: float = Field(
        300, ge=0, description="shortest pause in a schedule that a member may set by itself, in seconds"
    )

    ldap_url: str = Field(
        "", description="address of the one writable LDAP server, ldap://host or ldaps://host; empty: LDAP is not used"
    )
    ldap_base: str = Field("dc=dataone,dc=org", description="entry directly above the members")
    ldap_bind_dn: str = Field("", description="account that reads and writes the members; empty: anonymous")
    ldap_password_file: Path | None = Field(
        None, description="file of the password, read for each connection; a newline at its end does not count"
    )
    ldap_password: SecretStr = Field(SecretStr(""), description="password, where there is no file")
    ldap_starttls: bool = Field(False, description="TLS over ldap://; without it no password goes to another host")
    ldap_ca_bundle: Path | None = Field(
        None, description="PEM file of the certificate authorities to trust for the server; empty: those of the system"
    )
    ldap_timeout: float = Field(
        5, gt=0, description="longest wait for a connection as a whole, and for each answer, in seconds"
    )
    ldap_page: int = Field(500, ge=1, description="number of entries in one answer to a search")

    @field_validator("database_url")
    @classmethod
    def _check_database(cls, value: str) -> str:
        """Refuse an address with two @: SQLAlchemy would take a part of the password for the host, and show it."""
        if "@" in value.partition("@")[2].partition("?")[0] and not value.startswith("sqlite"):
            raise ValueError("the address has two @: write the one in the password as %40")
        return value

    @model_validator(mode="after")
    def _check_ldap(self) -> Self:
        if not self.ldap_url:
            return self
        parts = split_url(self.ldap_url)
        if parts.username is not None:
            raise ValueError("ldap_url names an account: that is for ldap_bind_dn, its password for ldap_password_file")
        if parts.scheme not in ("ldap", "ldaps") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError("ldap_url is not ldap://host[:port] or ldaps://host[:port]")
        if parts.scheme == "ldaps" and self.ldap_starttls:
            raise ValueError("ldap_starttls is for ldap:// only; ldaps:// uses TLS from its first byte")
        secret = bool(self.ldap_password_file or self.ldap_password.get_secret_value())
        if secret != bool(self.ldap_bind_dn):
            raise ValueError(
                "ldap_bind_dn needs a password (ldap_password_file or ldap_password), and a password needs ldap_bind_dn"
            )
        if secret and parts.scheme == "ldap" and not self.ldap_starttls and not _is_loopback(parts.hostname):
            raise ValueError(
                f"the password would reach {parts.hostname} unencrypted: use ldaps:// or set ldap_starttls"
            )
        return self

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, OSError, ValueError) as error:  # ZoneInfo raises any of these for an unknown name
            raise ValueError(f"there is no time zone {value!r}; write one like UTC or Europe/Berlin") from error
        return value

    @field_validator("member_may", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return value.replace(",", " ").split() if isinstance(value, str) else value

    @field_validator("access", mode="before")
    @classmethod
    def _load_access(cls, value: "Mapping[str, Access] | str | Path") -> "Mapping[str, Access | JsonValue]":
        if not isinstance(value, str | Path):
            return value
        path = Path(value)
        text = path.read_text(encoding="utf-8")
        loaded: dict[str, JsonValue] = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        return loaded

    @property
    def zone(self) -> tzinfo:
        return UTC if self.timezone == "UTC" else ZoneInfo(self.timezone)

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / 'catalog.sqlite'}"

    @property
    def nodelist(self) -> Path:
        return self.nodelist_path or self.data_dir / "nodelist.xml"

    def access_row(self, member: str) -> str | None:
        """The name of the row in TASKS_ACCESS for a member: the member's id, else `*`; None: there is neither row."""
        return next((row for row in (member, "*") if row in self.access), None)

    def access_to(self, member: str) -> Access:
        row = self.access_row(member)
        return Access() if row is None else self.access[row]

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, **overrides: str | Path) -> Self:
        """Read the settings from the variables TASKS_* of `environ`. `overrides`: settings that replace those.

        Raises ValueError, with a message of one line, for an unknown name or an invalid value.
        """
        values = {name[len(PREFIX) :].lower(): value for name, value in environ.items() if name.startswith(PREFIX)}
        for name in values.keys() - cls.model_fields.keys():
            near = difflib.get_close_matches(name, cls.model_fields, n=1)
            hint = f"; did you mean {PREFIX}{near[0].upper()}?" if near else ""
            raise ValueError(f"unknown setting {PREFIX}{name.upper()}{hint}")
        try:
            return cls.model_validate({**values, **overrides})
        except ValidationError as error:
            first = error.errors()[0]
            name = "".join(f"{PREFIX}{str(part).upper()}: " for part in first["loc"][:1])
            raise ValueError(f"{name}{first['msg'].removeprefix('Value error, ')}") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
