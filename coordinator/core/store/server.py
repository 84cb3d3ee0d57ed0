"""Checks the Redis server for dangers to jobs: no Functions, no persistence, eviction, a clock that was set back, no
replicas. Nodes and beats log the result when they start, and `doctor` shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from coordinator.core.finding import Finding
from coordinator.core.store.client import Store
from coordinator.core.store.steps import clock_read
from coordinator.core.store.times import ClockReading, instant
from coordinator.errors import SettingsError

_KEEP = "  # and write it into redis.conf"  # CONFIG REWRITE fails where Redis was started without a file
_DRIFT = 1.0  # seconds by which the server's clock may be behind the installation's clock without a finding
_SHORT = 60.0  # seconds that a restart may take; after a longer one, its finding is a warning


def server_findings(store: Store) -> list[Finding]:
    """Return findings about the Redis server that endanger jobs. Raises StoreUnavailable, StoreRefused, and
    SettingsError for a server without Redis Functions.
    """
    info: Mapping[str, object]
    silent = ("GET", store.key("silence"))
    info, reading, silence = store.read_many([("INFO",), clock_read.looking(store), silent])
    clock, where = ClockReading(*reading), f"redis {store.where}"
    found = [*disk_findings(store, info, where), *memory_findings(store, info, where), *_of_clock(clock, where)]
    found += _of_start(store, info, clock, silence, where)
    return [*found, *(failover_findings(store, info) if store.master else ())]


def log_server(store: Store, logger: logging.Logger) -> None:
    """Log the findings of `server_findings`. Raises nothing: if Redis does not answer, logs that instead."""
    try:
        found = server_findings(store)
    except Exception as error:
        level = logging.ERROR if isinstance(error, SettingsError) else logging.INFO
        logger.log(level, "cannot check the settings of the Redis server: %s", error)
        return
    for finding in found:
        logger.log(logging.getLevelNamesMapping()[finding.level.upper()], "%s; fix: %s", finding, finding.fix)


def disk_findings(store: Store, info: Mapping[str, object], where: str) -> Iterator[Finding]:
    """Yield a finding if the server writes no append-only file. A hosted server may hide its settings, and may store
    its data in another way: that finding is only an `info`.
    """
    if info.get("aof_enabled"):
        return
    save = store.setting("save")
    if save is None:
        said = "cannot tell whether the data survives a restart: the Redis service hides its settings"
        yield Finding("info", "redis.hidden", where, said, f"{store.redis_cli} INFO persistence  # and ask the service")
        return
    lost = "nothing on disk, so a restart loses all jobs"
    if save:
        lost = "no append-only file, so a crash may lose the last minutes"
    fix = f"{store.redis_cli} CONFIG SET appendonly yes{_KEEP}"
    yield Finding("warning", "redis.persistence", where, f"Redis keeps {lost}", fix)


def memory_findings(store: Store, info: Mapping[str, object], where: str) -> Iterator[Finding]:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        full = bool(info.get("maxmemory"))
        said = f"Redis {'may' if full else 'would, once it has a maxmemory,'} evict jobs and locks ({policy})"
        fix = f"{store.redis_cli} CONFIG SET maxmemory-policy noeviction{_KEEP}"
        yield Finding("error" if full else "warning", "redis.eviction", where, said, fix)


def _of_clock(clock: ClockReading, where: str) -> Iterator[Finding]:
    """Yield a finding if the server's clock is behind the installation's clock, which is not set back: the server's
    clock was set back, or a failover has led to a server whose clock is behind.
    """
    if (ahead := (clock.now - clock.wall) / 1000) >= _DRIFT:
        said = (
            f"the server's clock is {ahead:.0f} s behind the installation's: it was set back, or a failover led to a "
            "server whose clock is behind"
        )
        yield Finding(
            "info", "redis.clock", where, said, "timedatectl set-ntp true  # on each host that a Redis runs on"
        )


def _of_start(
    store: Store, info: Mapping[str, object], clock: ClockReading, silence: bytes | None, where: str
) -> Iterator[Finding]:  # fmt: skip
    """Yield a finding if the server was started again during the last time without calls: it may have loaded a copy of
    its data from before that time, and lost what was written since.
    """
    since, until = map(int, (silence or b"0 0").split())
    started = clock.wall - 1000 * int(str(info.get("uptime_in_seconds", 0)))
    if not since < started <= until + 1000:
        return
    lost = (until - since) / 1000
    said = (
        f"the server was restarted and has no data from the {lost:.0f} s before {instant(until):%F %T} UTC: "
        "if it loaded a copy of its data, what was written in that time is lost"
    )
    fix = f"{store.redis_cli} BGREWRITEAOF && {store.redis_cli} DEL '{store.key('silence')}'"
    yield Finding("info" if lost < _SHORT else "warning", "redis.restarted", where, said, fix)


def failover_findings(store: Store, info: Mapping[str, object]) -> Iterator[Finding]:
    """Yield findings for the reasons why a failover to a replica may lose jobs that were accepted."""
    master = f"master {store.master}"
    if not info.get("connected_slaves"):
        said = "the master has no replica: if the master dies, all jobs are lost, or wait until it is back"
        yield Finding("warning", "redis.replicas", master, said, "redis-server --replicaof HOST PORT  # of the master")
    if store.setting("min-replicas-to-write") == "0":
        said = "a master that has lost its replicas still accepts jobs, which are lost in a failover"
        way_out = (
            f"{store.redis_cli} CONFIG SET min-replicas-to-write 1 min-replicas-max-lag 10{_KEEP} of all its servers"
        )
        yield Finding("warning", "redis.failover", master, said, way_out)
