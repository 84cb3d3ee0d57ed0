"""The pages of a batch pipeline: items and their events as a grid, one item, the components."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

from coordinator import InvalidJob
from coordinator.extending import Act, Asked, Field, Page, Pages, Reading, Tab, View
from tasks.batches import Item, ItemConditions, ItemEvent
from tasks.batches.items import newest
from tasks.components import look
from tasks.components.registry import Registry

ROWS = 50
KINDS = 40  # columns of the grid
OUTCOMES = ("succeeded", "failed", "none")
PRIORITY = Field("priority", "Priority", hint="1 goes first, 9 last; empty = none")
_FILTER = ("event", "outcome", "type")


def pages(here: Registry) -> Pages:
    """The pages for the components of an app."""
    tabs = (Tab("Items", "/items", ("/item",)), Tab("Components", "/components", ("/component",)))
    views: dict[str, View] = {
        "/items": partial(_items, here),
        "/item": partial(_item, here),
        "/components": partial(_components, here),
        "/component": partial(_component, here),
    }
    readings = {
        "items": Reading(list[Item], partial(_found, here), (*_FILTER, "after")),
        "item": Reading(Item, lambda asked: here.items.item(asked.text("id")), ("id",)),
        "events": Reading(list[ItemEvent], lambda asked: here.items.events(asked.text("id")), ("id",)),
        "components": Reading(
            list[look.ComponentCondition], lambda _: [look.condition(here, component) for component in here.all()]
        ),
    }
    return Pages(tabs, views, _acts(here), Path(__file__).parent / "templates", readings)


def _found(here: Registry, asked: Asked) -> object:
    return here.items.query(_wanted(asked), asked.text("after") or None, ROWS).items


def _items(here: Registry, asked: Asked) -> Page:
    kinds = _in_order(here, here.items.kinds())[:KINDS]
    page = here.items.query(_wanted(asked), asked.text("after") or None, ROWS)
    profiles = here.items.profiles([item.id for item in page.items])
    values = {
        "rows": [(item, profiles[item.id].events) for item in page.items if item.id in profiles],
        "kinds": kinds,
        "outcomes": OUTCOMES,
        "more": page.next,
        "broken": page.broken,
    }
    return Page("items.html", "Items", values)


def _wanted(asked: Asked) -> ItemConditions:
    """The filter: an event, and what became of it; a type of items."""
    kind, outcome, type_ = asked.text("event"), asked.text("outcome") or OUTCOMES[0], asked.text("type")
    if outcome not in OUTCOMES:
        raise InvalidJob(f"outcome is one of {', '.join(OUTCOMES)}, not {outcome:.40}")
    types = [type_] if type_ else []
    if not kind:
        return ItemConditions(types=types)
    return ItemConditions(
        past=[kind] * (outcome == "succeeded"),
        past_failed=[kind] * (outcome == "failed"),
        future=[kind] * (outcome == "none"),
        types=types,
    )


def _in_order(here: Registry, kinds: set[str]) -> list[str]:
    """Types of events: each behind those that its component needs, then those that no component makes."""
    placed: list[str] = [*sorted(kinds - {component.event for component in here.all()})]
    left = {component.event: component for component in here.all() if component.event in kinds}
    while left:
        free = [kind for kind, component in left.items() if not component.depends_on & left.keys()] or [*left]
        placed += sorted(free)
        left = {kind: component for kind, component in left.items() if kind not in free}
    return placed


def _item(here: Registry, asked: Asked) -> Page:
    name = asked.text("id")
    item, events = here.items.item(name), here.items.events(name, history=True)
    values = {
        "item": item,
        "events": events[::-1],
        "counts": {event.id for event in newest(events).values()},
        "trips": [trip.id for trip in here.items.round_trips(item.batch) if trip.id != name],
        "orphans": here.items.orphans(name),
        "made": set(here.depends_on()),
        "failures": look.repair(here).failures(name),
        "why": look.why(here, name),
    }
    return Page("item.html", f"Item {name}", values)


def _components(here: Registry, _: Asked) -> Page:
    return Page("components.html", "Components", {"rows": [look.condition(here, one) for one in here.all()]})


def _component(here: Registry, asked: Asked) -> Page:
    component = here[asked.text("name")]
    values = {
        "component": component,
        "condition": look.condition(here, component),
        "working": look.working(here, component),
    }
    return Page("component.html", f"Component {component.name}", values)


def _acts(here: Registry) -> dict[str, Act]:
    def act(title: str, words: str, do: Callable[[Registry, Asked], str], **more: Unpack[_More]) -> Act:
        return Act(title, ("id", "event"), f"{{id}} {words}", partial(do, here), "/item", **more)

    restarts = "begins again at its first failure, or at the event that you name: these events are removed"
    return {
        "item-restart": act("Restart", restarts, _restart, plan=partial(_plan, here), grave=True),
        "item-stop": act("Stop", "is stopped: no component begins work on it", _stop),
        "item-priority": act("Priority", "and its waiting jobs get another place", _prioritise, fields=(PRIORITY,)),
    }


class _More(TypedDict, total=False):
    plan: Callable[[Asked], list[str]]
    fields: tuple[Field, ...]
    grave: bool


def _restart(here: Registry, asked: Asked) -> str:
    removed = look.restart(here, asked.text("id"), asked.text("event") or None, **asked.acting())
    return f"{', '.join(event.type for event in removed)} removed: the components work again."


def _plan(here: Registry, asked: Asked) -> list[str]:
    hit = look.restart(here, asked.text("id"), asked.text("event") or None, dry_run=True)
    removed = [f"{event.type} of {event.agent} is removed, and made again" for event in hit]
    return [*removed, look.starts(here, asked.text("id"), hit)]


def _stop(here: Registry, asked: Asked) -> str:
    cancelled = look.stop(here, asked.text("id"), **asked.acting())
    return f"{asked.text('id')} is stopped; {cancelled} waiting jobs were cancelled."


def _prioritise(here: Registry, asked: Asked) -> str:
    priority = asked.number("priority", 0, 1, 9) if asked.text("priority") else None
    moved = look.prioritise(here, asked.text("id"), priority, **asked.acting())
    return f"The priority is {priority or 'none'}; {moved} waiting jobs were moved."
