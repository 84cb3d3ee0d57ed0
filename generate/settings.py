"""docs/settings.md, from the fields of both settings."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from coordinator import Settings
from tasks.settings import Access
from tasks.settings import Settings as ServiceSettings

# Defaults that a machine makes.
MADE = {
    "replica_dir": "`~/.local/state/celery-coordinator`",
    "data_dir": "`~/.local/share/celery-coordinator`",
    "host": "the machine's own name",
}
LONG = (("day", 86400), ("hour", 3600), ("minute", 60))
BIG = (("MiB", 1024 * 1024), ("KiB", 1024))

HEAD = """\
# Settings

`make generated` writes this page from the fields of `coordinator/core/settings.py` and `tasks/settings.py`.
All times are seconds, all sizes are bytes. The [glossary](glossary.md) explains the words.

## The library

Each setting has three sources. The first that names it wins:

1. the constructor: `Coordinator(app, lock_ttl=30)`;
2. the app's configuration: `app.conf.coordinator_lock_ttl = 30`, or `CELERY_COORDINATOR_LOCK_TTL = 30` in the settings
   of a Django project, whose app has `config_from_object("django.conf:settings", namespace="CELERY")`;
3. the environment: `COORDINATOR_LOCK_TTL=30`.

The library refuses an unknown name and says which known name is nearest (`did you mean …?`): an argument at once, and
others when all sources are read, at the start of a worker or a beat and at the first call of other programs. `lock_ttl`
and `node_ttl` last for two sweeps at least. `coordinator settings` prints each value and its source, which is
`broker_url` for a `url` that is made of it. `COORDINATOR_APP` is no setting: it names the app of the command line.

"""

SERVICE = """
## The service

The service reads its settings from the environment alone, as `TASKS_` and the name in capitals: `TASKS_OVERLAP=600`. It
refuses an unknown name as the library does. Of the library's settings its app sets `quota_unknown` to `open`: the quota
of a member has no bounds, unless an operator declares some.

"""

ACCESS = """
### How to reach one member

The file that `TASKS_ACCESS` names has one table for each member's id, and one named `*` for all others. A table may
have these names; [operations.md](operations.md#how-does-a-node-reach-a-member) shows an example.

"""


def page() -> str:
    """The whole page."""
    parts = (HEAD, table(Settings), SERVICE, table(ServiceSettings), ACCESS, table(Access))
    return "".join(parts)


def table(settings: type[BaseModel]) -> str:
    rows = ["| name | default | allowed | meaning |", "|---|---|---|---|"]
    for name, field in settings.model_fields.items():
        meaning = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{name}` | {default(name, field)} | {allowed(field)} | {meaning} |")
    return "\n".join(rows) + "\n"


def default(name: str, field: FieldInfo) -> str:
    if name in MADE:
        return MADE[name]
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return number(value, field.description or "")
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, tuple):
        value = ",".join(value)
    return f"`{value}`" if value else "empty"


def number(value: Any, meaning: str) -> str:
    """The plain number, and beside a large one the size that people say."""
    units: tuple[tuple[str, int], ...] = ()
    if "in seconds" in meaning:
        units = LONG
    elif "in bytes" in meaning:
        units = BIG
    for unit, size in units:
        if value >= 2 * 60 and value % size == 0 and value >= size:
            count = int(value // size)
            many = f"{unit}s" if units is LONG and count > 1 else unit
            return f"{value:.0f} ({count} {many})"
    return f"{value:g}"


def allowed(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(field.annotation))
    said = []
    for bound in field.metadata:
        if isinstance(bound, Gt):
            said.append(f"above {bound.gt:g}")
        elif isinstance(bound, Ge):
            said.append(f"from {bound.ge:g}")
        elif isinstance(bound, Le):
            said.append(f"to {bound.le:g}")
        elif pattern := getattr(bound, "pattern", None):
            said.append(f"`{pattern}`")
    return ", ".join(said) or "any"
