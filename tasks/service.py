"""What one process of the service holds: settings, catalog, nodelist. After a fork, anew."""

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from getpass import getuser
from importlib import import_module
from typing import Any

from celery import signals
from sqlalchemy.exc import SQLAlchemyError

from tasks.app import NODELIST, coordinator
from tasks.catalog import Catalog
from tasks.nodelist import XmlNodelist
from tasks.replicated import ReplicatedNodelist
from tasks.schema import ForeignHost
from tasks.settings import Settings
from tasks.sources import Source
from tasks.xmlsource import XmlSource


@dataclass(frozen=True)
class Service:
    settings: Settings
    catalog: Catalog
    nodelist: ReplicatedNodelist


@cache
def _of(pid: int) -> Service:
    settings = Settings.from_environment()
    catalog = Catalog(settings)
    who = coordinator.documents.node or f"{getuser()}@{settings.host}"
    return Service(
        settings, catalog, ReplicatedNodelist(coordinator.documents[NODELIST], _source(settings, catalog), who)
    )


def _source(settings: Settings, catalog: Catalog) -> Source:
    """LDAP where its address is set, else a document."""
    if not settings.ldap_url:
        return XmlSource(XmlNodelist(catalog.engine, settings.nodelist))
    source: Source = import_module("tasks.ldapsource").LdapSource(settings)  # python-ldap is needed only there
    return source


@signals.celeryd_init.connect
@signals.beat_init.connect
def refuse_another_host(**_: Any) -> None:
    """A node that can do nothing would be the least busy one: it does not start. Celery hears SystemExit alone."""
    with suppress(SQLAlchemyError, OSError):
        try:
            Catalog(Settings.from_environment()).engine.dispose()  # nothing of it goes through a fork
        except ForeignHost as error:
            raise SystemExit(str(error)) from error


def service() -> Service:
    """This process's; opens the catalog at the first call. Raises ForeignHost for another machine's SQLite."""
    return _of(os.getpid())
