"""Opens the settings, catalog and nodelist of this process, and refuses those of another installation.

A forked process opens its own.
"""

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
    """Open settings, catalog and nodelist anew, for a thread that must not share them."""
    settings = Settings.from_environment()
    # A node has checked the database's version at its start. Its new processes accept a database upgraded since then.
    catalog = own_catalog(coordinator.store, settings, may_be_newer=bool(coordinator.node))
    who = coordinator.node or f"{getuser()}@{settings.host}"
    store = own_store(coordinator.store, settings)
    if not coordinator.node:  # a node has checked the store at its start, and no sync should wait for the store
        with suppress(NodelistStoreAway):
            store.check()
    nodelist = ReplicatedNodelist(documents[NODELIST], store, who)
    return Holdings(settings, catalog, nodelist)


def own_catalog(redis: Store, settings: Settings, *, may_be_newer: bool = False) -> Catalog:
    """Open the catalog. Raises UnusableDatabase for its database, and Elsewhere if another installation owns that.

    `may_be_newer`: accept a database that a newer version of this program has migrated.
    """
    catalog = Catalog(settings, may_be_newer=may_be_newer)
    whereabouts.check(redis, whereabouts.DATABASE, identity(catalog.engine), name_of(catalog.engine))
    return catalog


def own_store(redis: Store, settings: Settings) -> OwnStore:
    """The nodelist's permanent store: LDAP where TASKS_LDAP_URL is set, else an XML document.

    The methods of the store raise Elsewhere if this installation has noted another store in Redis.
    """
    check = partial(whereabouts.check, redis, whereabouts.NODELIST)
    if not settings.ldap_url:
        return OwnStore(XmlStore(settings.nodelist), check)
    from tasks.nodelist.ldap.store import LdapStore  # imported here, since python-ldap is optional

    return OwnStore(LdapStore(settings), check)


def refuse_others(redis: Store, settings: Settings) -> None:
    """Raise UnusableDatabase or Elsewhere if these settings name an unusable catalog, or another installation's.

    `redis` holds the installation's own database and permanent store (tasks/whereabouts.py). A database or store that
    cannot be reached now passes; it is checked at its first use.
    """
    with suppress(SQLAlchemyError, OSError):
        own_catalog(redis, settings).engine.dispose()  # closes the connections, since a fork must not inherit them
    with suppress(NodelistStoreAway):
        own_store(redis, settings).check()


@signals.celeryd_init.connect
@signals.beat_init.connect
def refuse_what_cannot_be_used(**_: object) -> None:
    """Refuse to start a worker or beat with another installation's catalog or permanent store.

    A node that started so would fail each job at once, seem the least busy, and get even more jobs. SystemExit is the
    only exception that Celery lets pass from a handler of its signals.
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
    """The settings, catalog and nodelist of this process. The first call opens them; may raise UnusableDatabase."""
    return _of(os.getpid())
