"""What one process of the service holds: settings, catalog, nodelist. After a fork, anew."""

import os
from dataclasses import dataclass
from functools import cache

from tasks.catalog import Catalog
from tasks.nodelist import Nodelist, XmlNodelist
from tasks.settings import Settings


@dataclass(frozen=True)
class Service:
    settings: Settings
    catalog: Catalog
    nodelist: Nodelist


@cache
def _of(pid: int) -> Service:
    settings = Settings.from_environment()
    catalog = Catalog(settings)
    return Service(settings, catalog, XmlNodelist(catalog.engine, settings.nodelist))


def service() -> Service:
    """This process's; opens the catalog at the first call. Raises ForeignHost for another machine's SQLite."""
    return _of(os.getpid())
