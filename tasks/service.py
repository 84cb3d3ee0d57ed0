"""The settings, catalog and nodelist of this process. A forked process opens its own."""

import os
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, partial
from getpass import getuser

from celery import signals
from sqlalchemy.exc import SQLAlchemyError

from coordinator import SettingsError
from coordinator.extending import Store
from tasks import whereabouts
from tasks.app import NODELIST, coordinator, documents
from tasks.catalog.catalog import Catalog
from tasks.database import UnusableDatabase, identity, name_of
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.stores import NodelistStoreAway, OwnStore
from tasks.nodelist.xml_store import XmlStore
from tasks.settings import Settings
from tasks.whereabouts import Elsewhere


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
    catalog = own_catalog(coordinator.store, settings, may_be_newer=bool(coordinator.node))
    who = coordinator.node or f"{getuser()}@{settings.host}"
    store = own_store(coordinator.store, settings)
    if not coordinator.node:  # a node was checked when it started, and none of its syncs waits for the store
        with suppress(NodelistStoreAway):
            store.check()
    nodelist = ReplicatedNodelist(documents[NODELIST], store, who)
    return Holdings(settings, catalog, nodelist)


def own_catalog(redis: Store, settings: Settings, *, may_be_newer: bool = False) -> Catalog:
    """The installation's catalog. Raises UnusableDatabase, Elsewhere."""
    catalog = Catalog(settings, may_be_newer=may_be_newer)
    whereabouts.check(redis, whereabouts.DATABASE, identity(catalog.engine), name_of(catalog.engine))
    return catalog


def own_store(redis: Store, settings: Settings) -> OwnStore:
    """The permanent store: LDAP where the settings name its address, else an XML document. Its use raises Elsewhere."""
    check = partial(whereabouts.check, redis, whereabouts.NODELIST)
    if not settings.ldap_url:
        return OwnStore(XmlStore(settings.nodelist), check)
    from tasks.nodelist.ldap.store import LdapStore  # only LDAP needs python-ldap

    return OwnStore(LdapStore(settings), check)


def refuse_others(redis: Store, settings: Settings) -> None:
    """Raise UnusableDatabase or Elsewhere where a process with these settings could not do the service's work.

    What is away now is checked once it is used.
    """
    with suppress(SQLAlchemyError, OSError):
        own_catalog(redis, settings).engine.dispose()  # a fork must not inherit connections
    with suppress(NodelistStoreAway):
        own_store(redis, settings).check()


@signals.celeryd_init.connect
@signals.beat_init.connect
def refuse_what_cannot_be_used(**_: object) -> None:
    """Refuse to start where the catalog or the permanent store is another's: such a node would look least busy.

    Celery lets only SystemExit through.
    """
    with suppress(SettingsError), closing(coordinator.store) as redis:
        try:
            refuse_others(redis, Settings.from_environment())
        except (UnusableDatabase, Elsewhere) as error:
            raise SystemExit(str(error)) from error


@signals.beat_init.connect
def keep_documents(**_: object) -> None:
    documents.serve()


def service() -> Holdings:
    """This process's service. The first call opens the catalog. Raises UnusableDatabase."""
    return _of(os.getpid())
