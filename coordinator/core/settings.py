"""The settings of a coordinator, read from three sources and validated.

    Coordinator(app, lock_ttl=30)         # the constructor, else
    app.conf.coordinator_lock_ttl = 30    # app.conf, else
    COORDINATOR_LOCK_TTL=30               # the environment, else the default in `Settings`

All times are in seconds. An unknown name or an invalid value raises SettingsError.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from coordinator.core.address import checked
from coordinator.core.texts import check_name
from coordinator.errors import SettingsError

_OF_COMMANDS = ("COORDINATOR_APP", "COORDINATOR_DASHBOARD_TOKEN")  # variables that commands read; no settings
_OF_DJANGO = ("COORDINATOR_DASHBOARD_URL",)  # settings of Django that its app reads, which an app.conf made of them has


class GivenSettings(TypedDict, total=False):
    """Names and types of the settings that `Coordinator(…)` takes as keyword arguments. `Settings` describes each."""

    url: str
    password_file: str
    credential_provider: str
    prefix: str
    labels: str | Sequence[str]
    timeout: float
    lock_ttl: float
    node_ttl: float
    heartbeat: float
    sweep: float
    slice: float
    drain_timeout: float
    must_coordinate: bool
    retry_delay: float
    max_losses: int
    max_lifetime: float
    keep_success: float
    keep_failure: float
    keep_most: int
    misfire_grace: float
    long_run: float
    long_wait: float
    max_payload: int
    hidden: str | Sequence[str]
    operators: str | Sequence[str]
    quota_unknown: Literal["refuse", "open"]


class Settings(BaseModel):
    """The values of all settings; they cannot be changed. `load` creates them from their sources, and `source(name)`
    tells which source a value comes from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str = Field(
        "",
        description="Redis of the coordinator (redis:// rediss:// unix://, or redis+ or rediss+ before sentinel:// or "
        "cluster://); empty: a Redis broker, also through Sentinel",
    )
    password_file: str = Field(
        "", description="file with the password of that Redis, read for each connection; the URL names the user"
    )
    credential_provider: str = Field(
        "",
        description="dotted name of a callable that makes redis-py's CredentialProvider, which is asked for user and "
        "password for each connection",
    )
    prefix: str = Field("coord", pattern=r"^[^{}\s]{1,64}$", description="name of the installation in that Redis")
    labels: tuple[str, ...] = Field(
        (), description="labels that this node has and jobs may need, such as gpu; commas part them in the environment"
    )
    timeout: float = Field(2.0, gt=0, le=60, description="longest wait for one answer of Redis, in seconds")
    lock_ttl: float = Field(
        15.0, ge=0.2, description="life of a lease without renewal, in seconds; the supervisor renews it each third"
    )
    node_ttl: float = Field(6.0, ge=0.2, description="silence after which a node counts as dead, in seconds")
    heartbeat: float = Field(2.0, ge=0.05, description="time between two measurements of a node's load, in seconds")
    sweep: float = Field(
        0.5,
        ge=0.02,
        description="time between two looks of the supervisor, in seconds; each look says that its node lives",
    )
    slice: float = Field(5.0, gt=0, description="time for which the runner of one wake-up goes on, in seconds")
    drain_timeout: float = Field(
        300.0, ge=0, description="time for which jobs go on at a draining node before they are handed over, in seconds"
    )
    must_coordinate: bool = Field(
        False, description="a worker that can run no jobs (no Redis is named, its app cannot be found) does not start"
    )
    retry_delay: float = Field(
        1.0, ge=0, description="first wait between attempts, in seconds; it doubles up to 300, with full jitter"
    )
    max_losses: int = Field(3, ge=0, description="number of runs that may be lost; one more ends the job as failed")
    max_lifetime: float = Field(86400.0, gt=0, description="time from a job's first claim to its expiry, in seconds")
    keep_success: float = Field(3600.0, gt=0, description="time for which a succeeded job stays visible, in seconds")
    keep_failure: float = Field(
        14 * 86400.0, gt=0, description="time for which any other finished job stays visible, in seconds"
    )
    keep_most: int = Field(
        0, ge=0, description="number of succeeded jobs that stay visible at most; 0: all, for their time"
    )
    misfire_grace: float = Field(
        3600.0, ge=0, description="how late a beat may still send a tick that no beat sent, in seconds"
    )
    long_run: float = Field(
        30.0,
        gt=0,
        description="age at which the supervisor warns of a running job, in seconds; again each time it doubles",
    )
    long_wait: float = Field(
        900.0, gt=0, description="wait for a lane or a slot that raises an alert (`alert_raised`), in seconds"
    )
    max_payload: int = Field(
        1024 * 1024, ge=1024, description="largest task, arguments and options of one job, and largest result, in bytes"
    )
    hidden: tuple[str, ...] = Field(
        ("password", "passwd", "secret", "token", "credential", "api_key", "authorization"),
        description="arguments and fields of results whose names have one of these in them have no value on the "
        "dashboard, which finds none by them, and in what Flower and inspect are told of jobs; * hides all of them",
    )
    operators: tuple[str, ...] = Field(
        (), description="names of those who may act on the dashboard inside Flower; empty: all who log in there"
    )

    quota_unknown: Literal["refuse", "open"] = Field(
        "refuse",
        description="a submit that uses a quota which nobody declared: refuse it, or run it without bounds (`open`)",
    )

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        return checked(value) if value else value

    @field_validator("labels", "hidden", "operators", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("labels")
    @classmethod
    def _named(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_name("label", label) for label in value)

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def load(
        cls, arguments: Mapping[str, object], conf: Mapping[str, object], environ: Mapping[str, str],
        namespace: str = "celery", broker: tuple[str, Mapping[str, str]] = ("", MappingProxyType({})),
    ) -> Settings:  # fmt: skip
        """Read the settings from three sources: the `arguments` of `Coordinator` override the app's configuration
        `conf`, which overrides the environment. Raises SettingsError, which names the setting and its source.

        `namespace`: the prefix that Celery's settings may have in `conf`. `broker`: name of Celery's setting of the
        broker, and the settings that it gives where no source sets them.
        """
        of_conf = rf"(?i)(?:{re.escape(namespace.rstrip('_'))}_)?coordinator_"
        # A setting may be spelt in several ways in `conf`: `conf.get` below returns the value that Celery would use.
        configured = _picked(conf, of_conf, "app.conf setting", ignore=_OF_DJANGO)
        values: dict[str, object] = {}
        sources: dict[str, str] = {}
        picked: Mapping[str, object]
        for label, picked in (
            broker,
            ("environment", _picked(environ, "COORDINATOR_", "environment variable", ignore=_OF_COMMANDS)),
            ("app.conf", {name: conf.get(f"coordinator_{name}", value) for name, value in configured.items()}),
            ("constructor", _picked(arguments, "", "argument")),
        ):
            for name, value in picked.items():
                if value is not None:
                    values[name], sources[name] = value, label
        try:
            settings = cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            reason = first["msg"].removeprefix("Value error, ")
            given = f", not {values[name]!r:.80}" if name in values and name not in ("url", "password_file") else ""
            raise SettingsError(f"setting {name} ({sources.get(name, 'default')}): {reason}{given}") from None
        settings._sources.update(sources)
        for name in ("lock_ttl", "node_ttl"):
            if getattr(settings, name) < 2 * settings.sweep:
                least = f"give at least two sweeps; a sweep is {settings.sweep} s"
                raise SettingsError(f"setting {name} ({settings.source(name)}): {least}")
        return settings

    @property
    def gap(self) -> float:
        """Seconds without any call of any node after which Redis is taken to have been unreachable. Leases do not run
        out during such a time.
        """
        return max(2.0, 4 * self.sweep)

    def source(self, name: str) -> str:
        """Return where the value of the setting `name` comes from: constructor, app.conf, environment, default, or the
        name of Celery's setting of the broker.
        """
        return self._sources.get(name, "default")


def _picked(source: Mapping[str, object], begin: str, label: str, ignore: tuple[str, ...] = ()) -> dict[str, object]:
    """Return the coordinator's settings in `source`, where their names have a prefix that matches the regular
    expression `begin`. `ignore`: names that are no settings. `label`: what the source calls a setting, for errors.

    Raises SettingsError for an unknown name with that prefix, and suggests the closest known one.
    """
    known = list(Settings.model_fields)
    picked = {}
    for name in source:
        if not (begun := re.match(begin, name)) or name in ignore:
            continue
        prefix = begun[0]
        field = name[len(prefix) :].lower()
        if field not in known:
            close = difflib.get_close_matches(field, known, 1)
            near = prefix + (close[0].upper() if prefix.isupper() else close[0]) if close else ""
            hint = f"; did you mean {near!r}?" if close else f"; known: {', '.join(known)}"
            raise SettingsError(f"unknown {label} {name!r}{hint}")
        picked[field] = source[name]
    return picked
