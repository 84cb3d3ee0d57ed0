"""Items, such as the batches of a digitisation, and the events that say what has happened to them."""

from tasks.batches.items import Items
from tasks.batches.query import Page, Wanted
from tasks.batches.values import Conflict, Event, Failure, Item, NewEvent, Report, StaleFence, UnknownItem

__all__ = [
    "Conflict",
    "Event",
    "Failure",
    "Item",
    "Items",
    "NewEvent",
    "Page",
    "Report",
    "StaleFence",
    "UnknownItem",
    "Wanted",
]
