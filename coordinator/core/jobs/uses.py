"""What a job uses of quotas: reads the option `uses`, and writes it as the record of a job keeps it.

submit(key, sig, uses="api/acme")                        # one unit
submit(key, sig, uses={"licence": 2, "api/acme": 1})     # all at one instant, or none
submit(key, sig, uses={"items": Use(until="end")})       # kept while the job is parked, held or retried, too
In JSON: {"items": {"units": 1, "until": "end"}}.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from coordinator.core.jobs.options import Use
from coordinator.core.jobs.validation import count, one_of, printable, shown
from coordinator.errors import InvalidJob

MOST = 16
_UNTIL = ("attempt", "end")
_FIELDS = {"units", "until"}
_LONGEST = 512  # bytes


def check_quota(name: object) -> str:
    """Return the name of a quota: 1 to 512 bytes of text without control characters. Raises InvalidJob."""
    if not isinstance(name, str) or not printable(name):
        raise InvalidJob(f"a quota is named by text that is not empty, without control characters, not {shown(name)}")
    if name.endswith("*"):
        raise InvalidJob(f"quota {name!r} names all that begin so: a job uses one, such as {name[:-1] + 'acme'!r}")
    if len(name.encode()) > _LONGEST:
        raise InvalidJob(f"quota {name[:40]!r}… has {len(name.encode())} bytes; at most {_LONGEST}")
    return name


def read_uses(option: object) -> dict[str, Use]:
    """Read the option `uses`, in the order of names. Raises InvalidJob."""
    if isinstance(option, str):
        pairs: Iterable[tuple[object, object]] = [(option, 1)]
    elif isinstance(option, Mapping):
        pairs = option.items()
    elif isinstance(option, Collection) and not isinstance(option, bytes):
        pairs = [(name, 1) for name in option]
    else:
        raise InvalidJob(f"uses names a quota, several, or {{quota: units}}, not {shown(option)}")
    uses = {check_quota(name): _use(str(name), value) for name, value in pairs}
    if len(uses) > MOST:
        raise InvalidJob(f"a job uses at most {MOST} quotas, not {len(uses)}")
    return dict(sorted(uses.items(), key=lambda pair: pair[0].encode()))


def _use(name: str, value: object) -> Use:
    if isinstance(value, Mapping):  # as JSON has it
        if wrong := sorted(map(str, value.keys() - _FIELDS)):
            raise InvalidJob(f"the use of quota {name!r} has units and until, and no {', '.join(wrong)}")
        value = Use(**value)
    use = value if isinstance(value, Use) else Use(value)  # type: ignore[arg-type]  # checked here
    one_of(f"until of quota {name!r}", use.until, _UNTIL)
    if use.units != "all":
        count(f"the number of units of quota {name!r}", use.units, 1)
    return use


def text_of_uses(uses: Mapping[str, Use], exclusive: bool = False, open_: bool = False, rate: str = "") -> str:
    """Write uses as a record keeps them (functions/rules/quotas.lua).

    `exclusive`: the job uses all of each. `open_`: a quota that nobody declared has no bounds, and is not refused.
    `rate`: `<units>/<ms>` declares it, unless somebody did.
    """
    lines = []
    for name, use in uses.items():
        flags = "e" * (use.until == "end") + "o" * open_ + rate
        units = "*" if exclusive or use.units == "all" else use.units
        lines.append(f"{units} {flags or '-'} {name}")
    return "\n".join(lines)


def uses_in(text: str) -> dict[str, Use]:
    """Read uses from a record."""
    uses = {}
    for line in text.split("\n") if text else ():
        units, flags, name = line.split(" ", 2)
        uses[name] = Use("all" if units == "*" else int(units), "end" if "e" in flags else "attempt")
    return uses


def rate_quota(task: str) -> str:
    """The quota that has a task's `rate_limit` of Celery: a rate over the fleet, which submits declare."""
    return f"rate_limit/{task}"
