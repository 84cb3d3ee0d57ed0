"""Items, such as the batches of a digitisation, and the events that say what has happened to them."""

from tasks.batches.items import Items
from tasks.batches.query import Page, Wanted
from tasks.batches.values import Event, Failure, Item, ItemConflict, ItemLost, NewEvent, Report, UnknownItem

__all__ = [
    "Event",
    "Failure",
    "Item",
    "ItemConflict",
    "ItemLost",
    "Items",
    "NewEvent",
    "Page",
    "Report",
    "UnknownItem",
    "Wanted",
]
