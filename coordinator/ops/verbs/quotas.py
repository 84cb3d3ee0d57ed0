"""What code and operators do with quotas."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Unpack, cast

from coordinator.core.author import Acting
from coordinator.core.client.client import Client
from coordinator.core.jobs.validation import checks_arguments
from coordinator.core.verbs import GROUP, QUOTA, Answer, AnyCoordinator, Given, Option, verb

if TYPE_CHECKING:
    from coordinator.ops.verbs.plan import Plan

CONCURRENCY = Option(
    "concurrency", "Units in use at once. Empty: any number.", "Units at once", int, least=0, most=10**9
)
RATE = Option("rate", "Starts in a time, such as 100/m, 5/s or 1/10s. Empty: at any rate.")
BURST = Option("burst", "Starts at once, after a rest.", kind=int, default=1, least=1, most=10**9)
WEIGHT = Option(
    "weight", "Above 0 to 1000; 1 is usual.", kind=float, least=0.001, most=1000, argument=True, metavar="N"
)
UNTIL = Option("until", "Seconds from now, or an instant. Empty: it goes on now.")


def _declared(_: object, given: Given, new: bool) -> Answer:
    text = f"quota {given['name']} is declared" if new else f"quota {given['name']} was declared so before"
    return {**given, "changed": new}, text


def _planned(coordinator: AnyCoordinator, given: Given) -> Plan | list[str]:
    """Plan the declaration of a quota; a form is shown before it has bounds."""
    if given["concurrency"] is None and given["rate"] in (None, ""):
        return ["Say how many units may be in use at once, at which rate units may start, or both."]
    return cast("Plan", coordinator.plan.quota(**given))


def _dropped(_: object, given: Given, was: bool) -> Answer:
    text = f"quota {given['name']} is dropped" if was else f"nobody declared quota {given['name']}"
    return {**given, "dropped": was}, text


def _cooled(_: object, given: Given, changed: bool) -> Answer:
    name, until = given["name"], given["until"]
    if until in (None, ""):
        return {**given, "changed": changed}, f"quota {name} goes on" if changed else f"quota {name} was open"
    told = f"starts nothing until {until}" if changed else "cools down for as long already: end that first"
    return {**given, "changed": changed}, f"quota {name} {told}"


def _weighed(_: object, given: Given, before: float) -> Answer:
    group, weight = given["group"], given["weight"]
    return {**given, "before": before}, f"group {group} has weight {weight:g}, {before:g} before"


@checks_arguments
class QuotaVerbs(Client):
    @verb(QUOTA, CONCURRENCY, RATE, BURST, tell=_declared, title="Declare quota", plan=_planned)
    def quota(
        self, name: str, *, concurrency: int | None = None, rate: str | float | None = None, burst: int = 1,
        **acting: Unpack[Acting],
    ) -> bool:  # fmt: skip
        """Declare a quota: so many units in use at once, so many starts in a time, or both. A name that ends in /*, or
        * alone, is the default of all names that begin so and have none of their own.

        What runs goes on; what may start now does. False: it was declared so before, so a repeated call changes
        nothing. Raises InvalidJob.
        """
        return self._quotas.declare(name, concurrency, rate, burst, **acting)

    @verb(QUOTA, tell=_dropped, title="Drop quota", grave=True, plan=True)
    def drop_quota(self, name: str, **acting: Unpack[Acting]) -> bool:
        """Drop the declaration of a quota, or a default. A default that fits the name holds from then on; without one,
        nothing bounds what waits, and new submits that use it are refused. A cool-down goes on until it ends.

        False: there was none.
        """
        return self._quotas.drop(name, **acting)

    @verb(QUOTA, UNTIL, tell=_cooled, title="Cool down", plan=True)
    def cool_down(self, name: str, until: datetime | float | str | None = None, **acting: Unpack[Acting]) -> bool:
        """Start nothing that uses a quota for so many seconds, or until an instant. Running jobs go on. A cool-down can
        be made longer, not shorter: to shorten it, end it first.

        None, or "": it ends, and what waits goes on now. False: nothing changed, since it was so before, or cools down
        for longer already. Raises InvalidJob.
        """
        return self._quotas.cool_down(name, until, **acting)

    @verb(GROUP, WEIGHT, tell=_weighed)
    def weight(self, group: str, weight: float, **acting: Unpack[Acting]) -> float:
        """Set the weight of a group of keys: beside a group of weight 1, one of weight 3 gets three times the slot
        seconds, while both have ready jobs.

        Gives the weight before. Raises InvalidJob.
        """
        return self._quotas.weigh(group, weight, self._fair_by is None, **acting)
