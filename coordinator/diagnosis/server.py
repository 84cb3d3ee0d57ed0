"""What this Redis can do: functions, durability, eviction. Nodes and beats ask when they start."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from coordinator.diagnosis.finding import Finding
from coordinator.errors import SettingsError
from coordinator.store.client import Store
from coordinator.store.times import ClockReading, instant

_DRIFT = 1.0  # seconds
_SHORT = 60.0  # seconds that a restart may take


def server_findings(store: Store) -> list[Finding]:
    """What of this server endangers jobs.

    Raises StoreUnavailable, StoreRefused, and SettingsError for a server without functions.
    """
    info: Mapping[str, object] = store.read("INFO")
    clock, where = store.clock(), f"redis {store.where}"
    found = [*_of_disk(store, info, where), *_of_memory(store, info, where), *_of_clock(clock, where)]
    found += _of_start(store, info, clock, where)
    return [*found, *(_of_failovers(store, info) if store.master else ())]


def log_server(store: Store, logger: logging.Logger) -> None:
    """Log what endangers jobs. Redis may be away or refuse to answer; the caller goes on all the same."""
    try:
        found = server_findings(store)
    except Exception as error:
        level = logging.ERROR if isinstance(error, SettingsError) else logging.INFO
        logger.log(level, "cannot ask Redis how it keeps its data: %s", error)
        return
    for finding in found:
        logger.log(logging.getLevelNamesMapping()[finding.level.upper()], "%s; fix: %s", finding, finding.fix)


def _of_disk(store: Store, info: Mapping[str, object], where: str) -> Iterator[Finding]:
    """A hosted server may refuse to show its settings, and then may well be durable in a way of its own."""
    if info.get("aof_enabled"):
        return
    save = store.setting("save")
    if save is None:
        said = "durability cannot be read here: this service hides its settings"
        yield Finding("info", "redis.hidden", where, said, f"{store.redis_cli} INFO persistence  # and ask the service")
        return
    lost = "nothing on disk, so a restart loses all jobs"
    if save:
        lost = "no append-only file, so a crash may lose the last minutes"
    fix = f"{store.redis_cli} CONFIG SET appendonly yes"
    yield Finding("warning", "redis.persistence", where, f"Redis keeps {lost}", fix)


def _of_memory(store: Store, info: Mapping[str, object], where: str) -> Iterator[Finding]:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        full = bool(info.get("maxmemory"))
        said = f"Redis {'may' if full else 'would, once it has a maxmemory,'} evict jobs and locks ({policy})"
        fix = f"{store.redis_cli} CONFIG SET maxmemory-policy noeviction"
        yield Finding("error" if full else "warning", "redis.eviction", where, said, fix)


def _of_clock(clock: ClockReading, where: str) -> Iterator[Finding]:
    """The installation's clock never goes back, so it is ahead of a server's that was set back."""
    if (ahead := (clock.now - clock.wall) / 1000) >= _DRIFT:
        said = f"its clock is {ahead:.0f} s behind the one that spans go by: it was set back, or a failover led to it"
        yield Finding(
            "info", "redis.clock", where, said, "timedatectl set-ntp true  # on each host that a Redis runs on"
        )


def _of_start(store: Store, info: Mapping[str, object], clock: ClockReading, where: str) -> Iterator[Finding]:
    """A server that was started in the silence before its first step may come from a copy of the time before it."""
    since, until = map(int, (store.read("GET", store.key("silence")) or b"0 0").split())
    started = clock.wall - 1000 * int(str(info.get("uptime_in_seconds", 0)))
    if not since < started <= until + 1000:
        return
    lost = (until - since) / 1000
    said = (
        f"it was started again and knows nothing of the {lost:.0f} s before {instant(until):%F %T} UTC: "
        "if it comes from a copy, what was done in them is lost"
    )
    fix = f"{store.redis_cli} BGREWRITEAOF && {store.redis_cli} DEL '{store.key('silence')}'"
    yield Finding("info" if lost < _SHORT else "warning", "redis.restarted", where, said, fix)


def _of_failovers(store: Store, info: Mapping[str, object]) -> Iterator[Finding]:
    """The reasons why a failover through Sentinel may lose acknowledged jobs."""
    master = f"master {store.master}"
    if not info.get("connected_slaves"):
        said = "no replica follows the master: where it dies, all jobs are lost, or wait for its return"
        yield Finding("warning", "redis.replicas", master, said, "redis-server --replicaof HOST PORT  # of the master")
    if store.setting("min-replicas-to-write") == "0":
        said = "a master that is cut off goes on to accept jobs, which a failover loses"
        way_out = f"{store.redis_cli} CONFIG SET min-replicas-to-write 1 min-replicas-max-lag 10  # on all its servers"
        yield Finding("warning", "redis.failover", master, said, way_out)
