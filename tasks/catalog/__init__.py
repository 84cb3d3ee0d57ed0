"""The harvested objects and the failures, in SQL."""

from tasks.catalog.catalog import Catalog, Cursor, Failed, Failure, Fetched, Summary, Superseded, Wanted

__all__ = [
    "Catalog",
    "Cursor",
    "Failed",
    "Failure",
    "Fetched",
    "Summary",
    "Superseded",
    "Wanted",
]
