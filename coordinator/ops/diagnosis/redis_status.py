"""Reads how fast Redis answers and how full it is, and finds out whether the network or Redis itself is slow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, cast

from coordinator.core.finding import Finding
from coordinator.core.store.bundle import Bundle
from coordinator.core.store.client import Store
from coordinator.core.store.times import span_text
from coordinator.ops.diagnosis.snapshot import Snapshot

_SLOW = 0.02  # seconds of a round trip; a longer one is a finding
_BUSY = 0.8  # the share of the time for which Redis is at work, from which it is Redis that is slow
_LONG = 0.1  # seconds of a command, for which all others wait
_TOO_MUCH = 1.0  # seconds of such commands within _RECENT; less is no finding
_RECENT = 600.0  # seconds
_LOGGED = 128  # entries of Redis' slow log that are read
_SCRIPTS = ("cmdstat_fcall", "cmdstat_eval")


@dataclass(frozen=True, slots=True)
class RedisStatus:
    """How a Redis answers. `redis`: its address; `answers`: seconds of a round trip, the shortest of a few.
    `used_memory`, `maxmemory`: in bytes; None where Redis hides it, and `maxmemory` also where none is set.
    """

    redis: str
    version: str
    answers: float
    used_memory: int | None
    maxmemory: int | None

    def __str__(self) -> str:
        return f"Redis answers in {self.speed}" + (f", {self.memory}" if self.memory else "")

    @property
    def speed(self) -> str:
        ms = 1000 * self.answers
        return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"

    @property
    def memory(self) -> str:
        """Say how much of its memory Redis uses; "" where it hides that."""
        if self.used_memory is None:
            return ""
        if self.maxmemory is None:
            return f"{_megabytes(self.used_memory)} MB used, no maxmemory"
        share, most = self.used_memory / self.maxmemory, _megabytes(self.maxmemory)
        return f"{share:.0%} of maxmemory ({most} MB)".replace("%", " %", 1)


def redis_status(store: Store) -> RedisStatus:
    """Read how Redis answers, in three round trips."""
    bundle = Bundle(store)
    info = bundle.add(lambda own: [own.read("PING"), own.read("PING"), own.read("INFO")][-1])
    began = time.monotonic()
    bundle.run()
    return status_in(store, info.result(), bundle.shortest or (time.monotonic() - began) / 3)


def status_in(store: Store, info: Mapping[str, object], answers: float) -> RedisStatus:
    """Return the status of a Redis whose reply to INFO was `info`. `answers`: seconds of a round trip."""
    version = str(info.get("valkey_version") or info.get("redis_version", ""))
    used, most = (_number(info, name) for name in ("used_memory", "maxmemory"))
    return RedisStatus(store.where, version, answers, used, most or None)


def _number(info: Mapping[str, object], name: str) -> int | None:
    return int(str(info[name])) if name in info else None


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f}" if size >= 1e7 else f"{size / 1e6:.1f}"


def of_speed(snapshot: Snapshot) -> Iterator[Finding]:
    """Find a Redis that answers late, and whether Redis or the network takes that time; and long commands, for which
    all others wait. What Redis hides is not found.
    """
    store, where = snapshot.store, f"redis {snapshot.store.where}"
    before, began = _worked(store), time.monotonic()
    logged = _slow_log(store)
    answers = store.connections.shortest
    if answers is not None and answers > _SLOW:
        after, seconds = _worked(store), time.monotonic() - began
        share = None if before is None or after is None else (after - before) / seconds
        yield _late(store, where, answers, share)
    recent = [one for one in logged if one["start_time"] > snapshot.clock.wall / 1000 - _RECENT]
    long = [(one["duration"] / 1e6, one["command"]) for one in recent if one["duration"] >= 1e6 * _LONG]
    if sum(seconds for seconds, _ in long) >= _TOO_MUCH:
        seconds, text = max(long)
        name = b" ".join(text.split()[: 2 if text.startswith((b"FCALL", b"EVAL")) else 1]).decode(errors="replace")
        message = f"{len(long)} of its commands took {_LONG * 1000:.0f} ms or longer within {span_text(_RECENT)}"
        message += f", for which all others wait; the longest, {name:.60}, took {seconds:.1f} s"
        fix = f"{store.redis_cli} SLOWLOG GET 10  # says who sends them"
        yield Finding("warning", "redis.busy", where, message, fix)


def _late(store: Store, where: str, answers: float, share: float | None) -> Finding:
    message, fix = f"it answers in {1000 * answers:.0f} ms", f"{store.redis_cli} --latency  # from this host"
    works = f", and runs commands for {min(share or 0, 1):.0%} of the time".replace("%", " %")
    if share is None:
        message += "; it hides whether the network is slow, or Redis is busy"
    elif share < _BUSY:
        message += f"{works}: the network between here and it, or its host, is slow"
    else:
        message += f"{works}: Redis is busy, and calls wait for each other"
        fix = f"{store.redis_cli} INFO commandstats  # and SLOWLOG GET 10: which commands take the time"
    return Finding("warning", "redis.slow", where, message, fix)


def _worked(store: Store) -> float | None:
    """Return the seconds for which Redis has run commands; None where it hides that. A command that a script runs is
    counted twice, by itself and with the script: so this takes the greater part, scripts or other commands.
    """
    info: Mapping[str, Mapping[str, float]] = store.read("INFO", "commandstats")
    scripts, others = 0.0, 0.0
    for name, stats in info.items():
        if name.startswith(_SCRIPTS):
            scripts += stats["usec"]
        elif name.startswith("cmdstat_"):
            others += stats["usec"]
    return max(scripts, others) / 1e6 or None


class _Logged(TypedDict):
    """An entry of Redis' slow log: the second when it began, and its duration in microseconds."""

    start_time: int
    duration: int
    command: bytes


def _slow_log(store: Store) -> Sequence[_Logged]:
    """Read Redis' slow log; [] where this user may not, or a hosted Redis has none."""
    return cast("list[_Logged]", store.allowed("SLOWLOG GET", _LOGGED) or [])
