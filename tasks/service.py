"""The settings, catalog and nodelist of this process. A forked process opens its own."""

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from getpass import getuser

from celery import signals
from sqlalchemy.exc import SQLAlchemyError

from tasks.app import NODELIST, coordinator, documents
from tasks.catalog.catalog import Catalog
from tasks.database import UnusableDatabase
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.stores import NodelistStore
from tasks.nodelist.xml_store import XmlStore
from tasks.settings import Settings


@dataclass(frozen=True)
class Holdings:
    settings: Settings
    catalog: Catalog
    nodelist: ReplicatedNodelist


@cache
def _of(pid: int) -> Holdings:
    return fresh()


def fresh() -> Holdings:
    """A new Holdings, for a thread that shares nothing with others."""
    settings = Settings.from_environment()
    # A node checks the database when it starts; an upgrade since then does not stop its new processes.
    catalog = Catalog(settings, may_be_newer=bool(coordinator.node))
    who = coordinator.node or f"{getuser()}@{settings.host}"
    nodelist = ReplicatedNodelist(documents[NODELIST], _store(settings), who)
    return Holdings(settings, catalog, nodelist)


def _store(settings: Settings) -> NodelistStore:
    """LDAP where the settings name its address, else an XML document."""
    if not settings.ldap_url:
        return XmlStore(settings.nodelist)
    from tasks.nodelist.ldap.store import LdapStore  # only LDAP needs python-ldap

    return LdapStore(settings)


@signals.celeryd_init.connect
@signals.beat_init.connect
def refuse_what_cannot_be_used(**_: object) -> None:
    """Refuse to start where the catalog belongs to another machine or version: such a node would look least busy.

    Celery lets only SystemExit through.
    """
    with suppress(SQLAlchemyError, OSError):
        try:
            Catalog(Settings.from_environment()).engine.dispose()  # a fork must not inherit connections
        except UnusableDatabase as error:
            raise SystemExit(str(error)) from error


@signals.beat_init.connect
def keep_documents(**_: object) -> None:
    documents.serve()


def service() -> Holdings:
    """This process's service. The first call opens the catalog. Raises UnusableDatabase."""
    return _of(os.getpid())
