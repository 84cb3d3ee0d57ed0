"""Readings of items and components for programs, and functions that bind these readings and the verbs on items to the
components of one app.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType

from coordinator import InvalidJob
from coordinator.extending import (
    AFTER,
    NOTHING,
    Answer,
    Given,
    Option,
    Reading,
    Verb,
    reading,
    readings_in,
    verbs_in,
)  # fmt: skip
from tasks.batches import Item, ItemConditions, ItemEvent
from tasks.components import look
from tasks.components.look import ITEM
from tasks.components.registry import Registry

OUTCOMES = ("succeeded", "failed", "none")
FILTER = tuple(Option(name, default="") for name in ("event", "outcome", "type"))
ROWS = 50


def bound_verbs(registry: Registry) -> list[Verb]:
    """Return the verbs on items that look.py declares, each with `registry` as the first argument of its function."""
    return [_bound_verb(one, registry) for one in verbs_in(look).values()]


def _bound_verb(declared: Verb, registry: Registry) -> Verb:
    def tell(coordinator: object, given: Given, answer: object) -> Answer:
        return declared.tell(coordinator, {**given, "registry": registry}, answer)

    def plan(coordinator: object, given: Given) -> object:
        return declared.plan and declared.plan(coordinator, {**given, "registry": registry})

    return replace(declared, host=_host(look, registry), tell=tell, plan=plan if declared.plan else None)


def bound_readings(registry: Registry) -> list[Reading]:
    """Return the readings that this module declares, each with `registry` as the first argument of its function."""
    own = sys.modules[__name__]
    return [replace(one, host=_host(own, registry)) for one in readings_in(own).values()]


def _host(module: ModuleType, registry: Registry) -> Callable[[object, Given], object]:
    def host(_: object, given: Given) -> object:
        given["registry"] = registry
        return module

    return host


def wanted(event: str = "", outcome: str = "", type: str = "") -> ItemConditions:
    """Make the conditions for a filter of items; "" filters nothing.

    `event`: a type of event. `outcome`: `succeeded` (the default), `failed`, or `none` for items without such an event.
    `type`: a type of items. Raises InvalidJob for another outcome.
    """
    outcome = outcome or OUTCOMES[0]
    if outcome not in OUTCOMES:
        raise InvalidJob(f"outcome is one of {', '.join(OUTCOMES)}, not {outcome:.40}")
    types = [type] if type else []
    if not event:
        return ItemConditions(types=types)
    return ItemConditions(
        past=[event] * (outcome == "succeeded"),
        past_failed=[event] * (outcome == "failed"),
        future=[event] * (outcome == "none"),
        types=types,
    )


@reading(NOTHING, *FILTER, AFTER)
def items(registry: Registry, *, after: str = "", **filters: str) -> Sequence[Item]:
    """Read the first items that match a filter, by priority, then age."""
    return registry.items.query(wanted(**filters), after or None, ROWS).items


@reading(ITEM)
def item(registry: Registry, item: str) -> Item:
    """Read an item. Raises UnknownItem."""
    return registry.items.item(item)


@reading(ITEM)
def events(registry: Registry, item: str) -> list[ItemEvent]:
    """Read the events of an item."""
    return registry.items.events(item)


@reading()
def components(registry: Registry) -> list[look.ComponentCondition]:
    """Read the condition of each component."""
    return [look.condition(registry, component) for component in registry.all()]
