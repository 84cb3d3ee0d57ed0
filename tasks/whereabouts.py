"""Notes in Redis which database and which permanent store an installation uses, and refuses processes that use others.

The first process of an installation makes the note. The note holds an id that the database or store itself has: one
database may have several addresses, and another database may get the same address later. An operator changes the note
with `move`, while no node lives.
"""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Unpack

from coordinator import Coordinator, CoordinatorError, StoreRefused, StoreUnavailable
from coordinator.extending import Acting, Arg, Store, refuses_viewers

DATABASE, NODELIST = "database", "nodelist"
_NAMED_BY = {DATABASE: "TASKS_DATABASE_URL", NODELIST: "TASKS_LDAP_URL, else TASKS_NODELIST_PATH"}
_MOVED = {DATABASE: "items moved", NODELIST: "nodelist moved"}


class Elsewhere(CoordinatorError):
    """The settings of this process name another database or permanent store than its installation uses."""


def check(store: Store, what: str, identity: str, name: str) -> None:
    """Raise Elsewhere if Redis has noted another database or permanent store; if none is noted, note this one.

    `what`: DATABASE or NODELIST. `identity`: the id stored in it. `name`: its address. While Redis is away, the check
    passes: nothing can be changed then.
    """
    mine, key = json.dumps({"id": identity, "name": name}), store.key("whereabouts")
    with suppress(StoreUnavailable, StoreRefused):  # StoreRefused: Redis has no memory left for the first note
        text = store.read("HGET", key, what)
        if text is None:
            _, text = store.read_many([("HSETNX", key, what, mine), ("HGET", key, what)])
        noted: Mapping[str, str] = json.loads(text)
        if noted["id"] != identity:
            other = "another one of that name" if noted["name"] == name else name
            raise Elsewhere(
                f"the installation {store.settings.prefix} on {store.where} has its {what} in {noted['name']}, and "
                f"this process has {other}. Name the installation's own ({_NAMED_BY[what]}, else TASKS_DATA_DIR; "
                f"beside `coordinator up`: . DIR/environment). Has the {what} moved? Then, with the settings of the "
                f"new place: coordinator {_MOVED[what]} --why TEXT"
            )


@refuses_viewers
def move(
    coordinator: Coordinator, what: str, identity: str, name: str, also: Iterable[Sequence[Arg]] = (),
    **acting: Unpack[Acting],
) -> str:  # fmt: skip
    """Note in Redis that the installation now uses another database or permanent store; returns the former's address.

    `what`, `identity`, `name`: as in `check`. `also`: Redis commands to run in the same transaction, if the identity
    changes. Raises CoordinatorError while a node lives.
    """
    store, key = coordinator.store, coordinator.store.key("whereabouts")
    if living := [node.name for node in coordinator.nodes()]:
        raise CoordinatorError(f"nodes that use the former {what} run: {', '.join(living)}. Stop nodes and beats first")
    noted: Mapping[str, str] = json.loads(store.read("HGET", key, what) or '{"id": "", "name": "none"}')
    coordinator.acted("move", what, name, id=uuid.uuid4().hex, before=noted["name"], after=name, **acting)
    changes = also if noted["id"] != identity else ()
    store.read_many([("HSET", key, what, json.dumps({"id": identity, "name": name})), *changes], atomic=True)
    return noted["name"]
