"""The coordinator's settings: one frozen, checked value.

Each comes from the constructor, else from `app.conf` (`coordinator_<name>`), else from the environment
(`COORDINATOR_<NAME>`), else from the default here. All times are seconds.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from coordinator.errors import SettingsError


class Settings(BaseModel):
    """`Settings.load(...)` reads the sources; `source(name)` says where a value came from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field("", description="Redis of the coordinator (redis:// rediss:// unix://)")
    prefix: str = Field("coord", pattern=r"^[^{}\s]{1,64}$", description="name of the installation in that Redis")
    labels: tuple[str, ...] = Field((), description="what this node has that jobs may need, e.g. gpu")
    timeout: float = Field(2.0, gt=0, le=60, description="longest wait for one answer of Redis")
    lock_ttl: float = Field(15.0, ge=0.2, description="life of a lease without renewal; renewed each third")
    node_ttl: float = Field(6.0, ge=0.2, description="when a node that says nothing counts as dead")
    heartbeat: float = Field(2.0, ge=0.05, description="how often a node says that it lives")
    sweep: float = Field(0.5, ge=0.02, description="how often the warden looks at what is due")
    slice: float = Field(5.0, gt=0, description="how long one doorbell's runner goes on")
    drain_timeout: float = Field(300.0, ge=0, description="how long jobs of a draining node may go on there")
    retry_delay: float = Field(1.0, ge=0, description="first wait between attempts, doubling, at most 300")
    max_losses: int = Field(3, ge=0, description="lost runs before a job ends as failed")
    max_lifetime: float = Field(86400.0, gt=0, description="from a job's first taking to its expiry")
    keep_success: float = Field(3600.0, gt=0, description="how long a succeeded job can be looked at")
    keep_failure: float = Field(14 * 86400.0, gt=0, description="how long any other finished job can be looked at")
    misfire_grace: float = Field(3600.0, ge=0, description="how late a tick that no beat fired may still be fired")
    long_run: float = Field(30.0, gt=0, description="age at which a running job is warned about, then doubling")
    replica_dir: Path = Field(
        default_factory=lambda: Path.home() / ".local" / "state" / "celery-coordinator",
        description="where nodes and beats keep their copies of documents",
    )
    max_payload: int = Field(1024 * 1024, ge=1024, description="bytes of a job's task, arguments and options")

    @field_validator("labels", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def load(cls, given: Mapping[str, Any], conf: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
        """Merge the three sources. Raises SettingsError, naming source and setting."""
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for label, found in (
            ("environment", _picked(environ, "COORDINATOR_", "environment variable", ignore=("COORDINATOR_APP",))),
            ("app.conf", _picked(conf, "coordinator_", "app.conf setting")),
            ("constructor", _picked(given, "", "argument")),
        ):
            for name, value in found.items():
                if value is not None:
                    values[name], sources[name] = value, label
        try:
            settings = cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            raise SettingsError(f"setting {name} ({sources.get(name, 'default')}): {first['msg']}") from error
        settings._sources.update(sources)
        for name in ("lock_ttl", "node_ttl"):
            if getattr(settings, name) < 2 * settings.sweep:
                least = f"at least two sweeps ({settings.sweep} s)"
                raise SettingsError(f"setting {name} ({settings.source(name)}): {least}")
        return settings

    @property
    def gap(self) -> float:
        """Seconds without a sweep after which nobody is declared lost for one lock_ttl: Redis was away."""
        return max(2.0, 4 * self.sweep)

    def source(self, name: str) -> str:
        return self._sources.get(name, "default")


def _picked(source: Mapping[str, Any], prefix: str, what: str, ignore: tuple[str, ...] = ()) -> dict[str, Any]:
    known = list(Settings.model_fields)
    found = {}
    for name, value in source.items():
        if not name.startswith(prefix) or name in ignore:
            continue
        field = name[len(prefix) :].lower()
        if field not in known:
            close = difflib.get_close_matches(field, known, 1)
            near = prefix + (close[0].upper() if prefix.isupper() else close[0]) if close else ""
            hint = f"; did you mean {near!r}?" if close else f"; known: {', '.join(known)}"
            raise SettingsError(f"unknown {what} {name!r}{hint}")
        found[field] = value
    return found
