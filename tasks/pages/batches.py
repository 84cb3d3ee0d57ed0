"""The pages of a batch pipeline: items and their events as a grid, one item, the components."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from coordinator.extending import Page, Pages, Query, Tab, View
from tasks.batches import ItemConditions
from tasks.batches.items import newest
from tasks.components import look, readings
from tasks.components.registry import Registry

ROWS = 50
KINDS = 40  # columns of the grid


def pages(here: Registry) -> Pages:
    """The pages for the components of an app."""
    tabs = (Tab("Items", "/items", ("/item",)), Tab("Components", "/components", ("/component",)))
    views: dict[str, View] = {
        "/items": partial(_items, here),
        "/item": partial(_item, here),
        "/components": partial(_components, here),
        "/component": partial(_component, here),
    }
    templates = Path(__file__).parent / "templates"
    return Pages(tabs, views, templates, readings.bound_verbs(here), readings.bound_readings(here))


def _items(here: Registry, query: Query) -> Page:
    kinds = _in_order(here, here.items.kinds())[:KINDS]
    page = here.items.query(_wanted(query), query.text("after") or None, ROWS)
    profiles = here.items.profiles([item.id for item in page.items])
    values = {
        "rows": [(item, profiles[item.id].events) for item in page.items if item.id in profiles],
        "kinds": kinds,
        "outcomes": readings.OUTCOMES,
        "more": page.next,
        "broken": page.broken,
    }
    return Page("items.html", "Items", values)


def _wanted(query: Query) -> ItemConditions:
    return readings.wanted(query.text("event"), query.text("outcome"), query.text("type"))


def _in_order(here: Registry, kinds: set[str]) -> list[str]:
    """Types of events: each behind those that its component needs, then those that no component makes."""
    placed: list[str] = [*sorted(kinds - {component.event for component in here.all()})]
    left = {component.event: component for component in here.all() if component.event in kinds}
    while left:
        free = [kind for kind, component in left.items() if not component.depends_on & left.keys()] or [*left]
        placed += sorted(free)
        left = {kind: component for kind, component in left.items() if kind not in free}
    return placed


def _item(here: Registry, query: Query) -> Page:
    name = query.text("id")
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


def _components(here: Registry, _: Query) -> Page:
    return Page("components.html", "Components", {"rows": [look.condition(here, one) for one in here.all()]})


def _component(here: Registry, query: Query) -> Page:
    component = here[query.text("name")]
    values = {
        "component": component,
        "condition": look.condition(here, component),
        "working": look.working(here, component),
    }
    return Page("component.html", f"Component {component.name}", values)
