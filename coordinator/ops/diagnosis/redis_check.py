"""Tries whether a Redis will do for an installation, before a node is started, and what it costs.

    for line in check_redis(settings):
        print(line.verdict, line.check, line.text)

It runs real steps below a prefix of its own, `{<prefix>}:check-redis:<random>:`, so that a user of the installation has
the rights, and a cluster the slot. It removes its keys; those of a check that was killed end by themselves. The steps
are in a library of functions of its own, which disturbs no fleet: it is removed, or found and removed by the next
check of the same version.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coordinator.core.address import through
from coordinator.core.finding import Finding, Level
from coordinator.core.store import steps
from coordinator.core.store.client import Store
from coordinator.core.store.library import assemble, check_server, current
from coordinator.core.store.server import disk_findings, failover_findings, memory_findings
from coordinator.core.store.wire import Arg
from coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    from coordinator.core.settings import Settings

Verdict = Literal["ok", "warning", "refused"]
VERDICTS: tuple[Verdict, ...] = ("ok", "warning", "refused")

_KEEP = 60_000  # ms after which the keys of a check that was killed end
_STEPS, _LEAST, _SECONDS = 500, 20, 2.0  # steps are timed until so many, or for so long, but at least so many
_SLOW = 0.05  # seconds; a slower hundredth of the steps is a warning
_JOB = 600  # bytes of a job that waits (docs/capacity.md)
_KEYS = ("clock", "began", "fence", "lanes", "locks", "lock:a", "line:a")  # that a lock writes, and its own record
# What a node or an operator reads: the command, or the field of INFO, and what its lack costs.
_OPTIONAL: tuple[tuple[str, tuple[Arg, ...], str], ...] = (
    ("CONFIG GET", ("save",), "doctor cannot tell whether the data survives a restart"),
    ("FUNCTION LIST", (), "coordinator libraries does not work"),
    ("CLIENT SETNAME", ("coordinator:check-redis",), "CLIENT LIST does not tell the node and role of a connection"),
)
_FIELDS = {
    "redis_version": "whether the version will do is known by trying",
    "aof_enabled": "doctor cannot tell whether the data survives a restart",
    "maxmemory_policy": "doctor does not see an eviction policy, which may drop jobs: ask the service for noeviction",
    "role": "a step cannot see that its server became the master again: an old fence may be given twice",
    "used_memory": "nobody sees the memory fill up",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the check. `verdict`: `refused` where no node can work; `warning` where jobs are in danger, or
    something is missing; `text`: what was found and what it costs; `fix`: the command or setting that mends it.
    """

    check: str
    verdict: Verdict
    text: str
    fix: str = ""


def check_redis(settings: Settings) -> list[Line]:
    """Return all lines; the connection alone where there is none. Raises SettingsError for wrong settings."""
    check = _Check(settings)
    try:
        return list(check.lines())
    finally:
        check.clean_up()
        check.store.close()


class _Check:
    def __init__(self, settings: Settings) -> None:
        # Another text than the fleet's library has another digest, and so other names of its functions.
        self.store = Store(settings, library=assemble(before="-- of check-redis\n", prefix="coordinator_check_"))
        self.loaded = False  # True: this check removes its library
        self.store.prefix += f"check-redis:{uuid.uuid4().hex[:12]}:"
        self.info: Mapping[str, object] = {}
        self.rounds = 0
        self.spare = f"{self.store.prefix}try"  # a key that no step has

    def lines(self) -> Iterator[Line]:
        if why := self.store.refusal(lambda: self.store.read("PING")):
            yield Line("connection", "refused", why)
            return
        master = f", whose master or primary is {self.store.master}" if self.store.master else ""
        yield Line("connection", "ok", f"{self.store.where} answers{master}")
        self.store.refusal(self._read_info)
        written = self._of_writes()
        yield from (self._of_version(), written)
        works = written.verdict == "ok"
        if works:
            functions = self._of_functions()
            works = functions.verdict != "refused"
            yield functions
        yield self._of_slot(written)
        yield from self._of_commands()
        yield from self._of_server()
        if works:
            yield self._of_latency()
        yield from self._of_hidden()

    def clean_up(self) -> None:
        """Remove all that the check wrote, where Redis still answers."""
        keys = map(self.store.key, (*_KEYS, *(f"job:{number}" for number in range(1, self.rounds + 1))))
        self.store.refusal(lambda: self.store.read("DEL", self.spare, *keys))
        if self.loaded:
            self.store.refusal(lambda: self.store.remove_library(self.store.library.name))

    def _read_info(self) -> None:
        self.info = self.store.read("INFO")

    def _of_version(self) -> Line:
        info = self.info
        if "redis_version" not in info:
            return Line("version", "warning", "hidden")
        if why := self.store.refusal(lambda: check_server(info, self.store.where)):
            return Line("version", "refused", why)
        valkey = f"Valkey {info['valkey_version']}, as " if "valkey_version" in info else ""
        return Line("version", "ok", f"{valkey}Redis {info['redis_version']}; it takes 7.0, or Valkey 7.2")

    def _of_writes(self) -> Line:
        if why := self.store.refusal(lambda: self.store.read("SET", self.spare, "", "PX", _KEEP)):
            return Line("write", "refused", f"nothing can be written: {why}")
        return Line("write", "ok", f"keys below {self.store.prefix}, which this check removes")

    def _of_functions(self) -> Line:
        library, lesser = self.store.library, ""
        why = self.store.refusal(lambda: self.store.read("FUNCTION LOAD", library.text))
        self.loaded = not why or "already exists" in why
        if not self.loaded and "forbids that to this user" not in why:
            return Line("functions", "refused", f"the steps cannot be loaded: {why}")
        if not self.loaded:
            self.store.library, lesser = current(), why
        if why := self.store.refusal(self._round):
            said = f"this user may not load functions, and no node of this version has: {lesser}" if lesser else why
            return Line("functions", "refused", f"the steps do not run: {said}")
        if lesser:
            said = "this user may not load functions: it is one for clients, and needs a node of the same version"
            return Line("functions", "warning", f"{said} that may ({lesser})")
        return Line(
            "functions", "ok", f"loaded ({len(library.text) // 1000} kB) and called; steps derive the names of keys"
        )

    def _round(self) -> list[float]:
        """Take a lock and give it back. Returns the seconds of both steps. Each is in a transaction that has its keys
        end, so that nothing stays where this process is killed.
        """
        self.rounds += 1
        name, seconds = str(self.rounds), list[float]()
        take = steps.lock_take.of(name, "a", "queue", name, _KEEP, _KEEP, "")
        for call in (take, steps.lock_release.of(name, name)):
            keys = map(self.store.key, (*_KEYS, f"job:{name}"))
            commands = [self.store.looking(call.step.name, *call.args), *(("PEXPIRE", key, _KEEP) for key in keys)]
            began = time.perf_counter()
            [reply, *_] = self.store.read_many(commands, atomic=True)
            seconds.append(time.perf_counter() - began)
            if reply != b"released" and reply[:1] != [b"started"]:
                raise CoordinatorError(f"a step answered {reply!r}")
        return seconds

    def _of_slot(self, written: Line) -> Line:
        clustered = bool(self.info.get("cluster_enabled"))
        parts = through(self.store.settings.url)
        by_cluster = parts is not None and not parts.master
        slot = f"all keys are in slot {self.store.connections.server.slot}"
        if by_cluster:
            return Line("slot", "ok", f"{slot}, which {self.store.master} has; all work is at this node of the cluster")
        if not clustered:
            return Line("slot", "ok", "one server has all keys")
        verdict: Verdict = "refused" if "slot" in written.text and written.verdict == "refused" else "warning"
        said = "the URL names one node of a cluster, and calls fail where another one has the slot, as after a failover"
        return Line("slot", verdict, f"{slot}: {said}", "name some of its nodes: redis+cluster://HOST:PORT,HOST:PORT")

    def _of_commands(self) -> Iterator[Line]:
        """Try what processes call beside the steps."""
        key, refused = self.spare, []
        for asked in (("BLPOP", f"{key}s", "0.01"), ("PUBLISH", key, ""), ("HGETALL", f"{key}s"), ("ZCARD", f"{key}s")):
            if why := self.store.refusal(lambda asked=asked: self.store.read(*asked)):  # type: ignore[misc]
                refused.append(why)
        with self.store.listening(key) as listen:
            if why := self.store.refusal(lambda: listen(0.0)):
                refused.append(why)
        if refused:
            yield Line("commands", "refused", f"what wakes a node, or a lock that waits, is refused: {refused[0]}")

    def _of_server(self) -> Iterator[Line]:
        store, info, where = self.store, self.info, f"redis {self.store.where}"
        if "aof_enabled" in info:
            yield from _lines(disk_findings(store, info, where), self._disk())
        if "maxmemory_policy" in info:
            well = Line("eviction", "ok", "noeviction: no key is dropped")
            yield from _lines(memory_findings(store, info, where), well)
        if "role" in info:
            replicas = info.get("connected_slaves", 0)
            alone = "" if replicas else "; while it is away, all work waits"
            well = Line("replication", "ok", f"{info['role']} with {replicas} replicas{alone}")
            yield from _lines(failover_findings(store, info) if store.master else (), well)
        if "used_memory" in info:
            yield self._memory()

    def _disk(self) -> Line:
        """The line where there is an append-only file."""
        lost = {"always": "nothing that was answered", "everysec": "the last second", "no": "the last half minute"}
        fsync = self.store.setting("appendfsync") or "unknown"
        said = f"append-only file, fsync {fsync}: a crash of its host loses {lost.get(fsync, 'a second or more')}"
        return Line("persistence", "warning" if fsync == "no" else "ok", said)

    def _memory(self) -> Line:
        used, most = int(str(self.info["used_memory"])), int(str(self.info.get("maxmemory", 0)))
        if not most:
            said = "no maxmemory: the host's memory is the bound, and the system may end Redis there"
            return Line("memory", "ok", f"{used // 1_000_000} MB used, {said}")
        room = f"{used // 1_000_000} of {most // 1_000_000} MB used: room for some {max(most - used, 0) // _JOB} jobs"
        full = "; a full Redis refuses submits"
        return Line("memory", "ok" if used < 0.8 * most else "warning", f"{room} that wait, of {_JOB} bytes{full}")

    def _of_latency(self) -> Line:
        seconds, until = list[float](), time.monotonic() + _SECONDS
        while len(seconds) < _LEAST or (len(seconds) < _STEPS and time.monotonic() < until):
            if why := self.store.refusal(lambda: seconds.extend(self._round())):
                return Line("latency", "refused", f"after {len(seconds)} steps: {why}")
        seconds.sort()
        half, most = seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]
        said = f"{len(seconds)} steps: p50 {1000 * half:.2f} ms, p99 {1000 * most:.2f} ms"
        cost = f"a submit takes one, and so does each job that a slot starts: at most {1 / half:.0f} a second"
        return Line("latency", "warning" if most > _SLOW else "ok", f"{said}; {cost}")

    def _of_hidden(self) -> Iterator[Line]:
        hidden = [f"INFO has no {field}: {cost}" for field, cost in _FIELDS.items() if field not in self.info]
        for command, args, cost in _OPTIONAL:
            if self.store.refusal(lambda command=command, args=args: self.store.read(command, *args)):  # type: ignore[misc]
                hidden.append(f"{command} is refused: {cost}")
        yield from (Line("hidden", "warning", text) for text in hidden)
        if not hidden:
            yield Line("hidden", "ok", "nothing that a node or doctor reads")


def _lines(findings: Iterable[Finding], well: Line) -> list[Line]:
    """Return the lines for what `doctor` would find, or `well` where it finds nothing."""
    verdicts: dict[Level, Verdict] = {"error": "refused", "warning": "warning", "info": "warning"}
    return [Line(well.check, verdicts[one.level], one.message, one.fix) for one in findings] or [well]
