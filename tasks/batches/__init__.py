"""The store of items, such as the batches of a digitisation, and of the events that record the work on each item."""

from tasks.batches.items import Items
from tasks.batches.query import ItemConditions, ItemPage
from tasks.batches.values import Failure, Item, ItemConflict, ItemEvent, ItemLost, NewEvent, Report, UnknownItem

__all__ = [
    "Failure",
    "Item",
    "ItemConditions",
    "ItemConflict",
    "ItemEvent",
    "ItemLost",
    "ItemPage",
    "Items",
    "NewEvent",
    "Report",
    "UnknownItem",
]
