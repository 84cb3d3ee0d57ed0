"""Redis keeps which database and which permanent store an installation has. Whoever has another is refused, by name.

The first process of an installation notes both, each by an identity of its own: the same thing may be reached under
several addresses, and another one under the same. An operator names another one by `move`, while no node lives.
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
    """This process has another database or permanent store than its installation."""


def check(store: Store, what: str, identity: str, name: str) -> None:
    """Note what this process has, unless another is noted: then raise Elsewhere. `name`: its address, for people.

    While Redis is away nobody knows, and nothing can be changed either.
    """
    mine, key = json.dumps({"id": identity, "name": name}), store.key("whereabouts")
    with suppress(StoreUnavailable, StoreRefused):  # a Redis that is full takes no first note
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
    """Name another database or permanent store, and give Redis these commands, too, in one step.

    Returns the former one's name. Raises CoordinatorError.
    """
    store, key = coordinator.store, coordinator.store.key("whereabouts")
    if living := [node.name for node in coordinator.nodes()]:
        raise CoordinatorError(f"nodes live, with the {what} as it was: {', '.join(living)}. End nodes and beats first")
    noted: Mapping[str, str] = json.loads(store.read("HGET", key, what) or '{"id": "", "name": "none"}')
    coordinator.acted("move", what, name, id=uuid.uuid4().hex, before=noted["name"], after=name, **acting)
    changes = also if noted["id"] != identity else ()
    store.read_many([("HSET", key, what, json.dumps({"id": identity, "name": name})), *changes], atomic=True)
    return noted["name"]
