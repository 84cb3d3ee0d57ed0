"""Looks for faults and dangers of an installation. Nothing here writes, and nothing reads all records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from coordinator.diagnosis.entries import of_beats
from coordinator.diagnosis.finding import Finding, sorted_findings
from coordinator.diagnosis.fleet import of_fleet
from coordinator.diagnosis.lost import of_lost
from coordinator.diagnosis.server import server_findings
from coordinator.diagnosis.snapshot import Reasons, Snapshot
from coordinator.diagnosis.unowned import of_owners
from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.fleet.nodes import Nodes
from coordinator.lanes.client import LaneClient
from coordinator.store.client import Store

_BETWEEN = 0.1  # seconds between two looks at what changes all the time


def examine(
    store: Store, needed: Mapping[str, Reasons] = MappingProxyType({}), more: Iterable[Finding] = ()
) -> list[Finding]:
    """All findings, errors first. `needed`: labels that jobs need; `more`: findings of others, read last."""
    where = f"redis {store.where}"
    try:
        found, look = server_findings(store), Snapshot(LaneClient(store), needed)
        found += [*of_fleet(look), *of_lost(look), *of_beats(store), *_confirmed(look), *more]
    except SettingsError as error:
        found = [Finding("error", "redis.functions", where, str(error), "upgrade it, or name another: COORDINATOR_URL")]
    except StoreUnavailable as error:
        hint = "look at it" if error.answered else "start it"
        found = [Finding("error", "redis.away", where, str(error), f"{hint}, or name another: COORDINATOR_URL")]
    except StoreRefused as error:
        found = [Finding("error", "redis.refuses", where, str(error), "give it memory, or its user the rights")]
    return sorted_findings(found)


def _confirmed(look: Snapshot) -> list[Finding]:
    """Reads twice, and keeps the findings present both times: steps go on between two reads of one snapshot."""
    store = look.store
    found = list(of_owners(store, look.nodes))
    if any(finding.level != "info" for finding in found):
        store.pause(_BETWEEN)
        again = {str(finding) for finding in of_owners(store, Nodes(store).all())}
        found = [finding for finding in found if str(finding) in again or finding.level == "info"]
    return found
