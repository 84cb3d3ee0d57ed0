"""Finds faults and dangers of an installation.

    for finding in coordinator.doctor():
        print(finding, finding.fix)

It writes nothing, and never reads the records of all jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from coordinator.core.finding import Finding, sorted_findings
from coordinator.core.fleet.nodes import Node, Nodes
from coordinator.core.lanes.client import LaneClient
from coordinator.core.store.bundle import side_by_side
from coordinator.core.store.client import Store
from coordinator.core.store.server import server_findings
from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.ops.diagnosis.entries import of_beats
from coordinator.ops.diagnosis.fleet import of_fleet
from coordinator.ops.diagnosis.lost import of_lost
from coordinator.ops.diagnosis.on_call import of_faults, of_held, of_paused
from coordinator.ops.diagnosis.quota_faults import of_quotas
from coordinator.ops.diagnosis.redis_status import of_speed
from coordinator.ops.diagnosis.snapshot import Reasons, Snapshot
from coordinator.ops.diagnosis.unowned import of_owners

_BETWEEN = 0.1  # seconds between the two scans for keys without an owner


def examine(
    store: Store, needed: Mapping[str, Reasons] = MappingProxyType({}), more: Iterable[Finding] = ()
) -> list[Finding]:
    """Return all findings, errors first. `needed`: label that jobs need -> function that says which nodes lost it.

    `more`: findings of the app's extensions, which are read last.
    """
    return sorted_findings(found(store, needed, more))


def found(
    store: Store, needed: Mapping[str, Reasons] = MappingProxyType({}), more: Iterable[Finding] = (),
    snapshot: Snapshot | None = None,
) -> list[Finding]:  # fmt: skip
    """Return all findings, in no order, as `examine` does. `snapshot`: one that was read just now."""
    where = f"redis {store.where}"
    try:
        known = snapshot or Snapshot(LaneClient(store), needed).read()
        return [*_examined(store, known), *more]
    except SettingsError as error:
        fix = f"upgrade it, or name another: {store.named_by}"
        return [Finding("error", "redis.functions", where, str(error), fix)]
    except StoreUnavailable as error:
        hint = "mend the login, or read its log" if error.answered else "start it"
        return [Finding("error", "redis.away", where, str(error), f"{hint}, or name another: {store.named_by}")]
    except StoreRefused as error:
        return [Finding("error", "redis.refuses", where, str(error), "give it memory, or its user the rights")]


def _examined(store: Store, known: Snapshot) -> list[Finding]:
    """Run all checks side by side: each of them asks Redis a few times, one request behind the other."""

    def of(check: Callable[[Snapshot], Iterable[Finding]]) -> Callable[[Store], Iterable[Finding]]:
        return lambda own: check(known.within(own))

    checks = (of_fleet, of_lost, of_held, of_paused, of_faults, of_speed, _confirmed)
    return side_by_side(store, [server_findings, *map(of, checks), of_beats])


def _confirmed(snapshot: Snapshot) -> list[Finding]:
    """Scan twice for keys without an owner and quotas that stand still, and keep what both scans found: a single scan
    may read some keys before a change, and others after the change.
    """
    store = snapshot.store
    findings = _scan(store, snapshot.nodes)
    if any(finding.level != "info" for finding in findings):
        store.pause(_BETWEEN)
        again = {str(finding) for finding in _scan(store, Nodes(store).all())}
        findings = [finding for finding in findings if str(finding) in again or finding.level == "info"]
    return findings


def _scan(store: Store, nodes: Sequence[Node]) -> list[Finding]:
    return side_by_side(store, [lambda own: of_owners(own, nodes), of_quotas])
