"""The model's state and the one in Redis, each as the same plain dicts, to be compared."""

from collections import Counter, defaultdict
from json import loads
from typing import Any

from proof.model.operators import Model
from proof.model.raw import Dump
from proof.model.record import TERMINAL, Job

PAUSED, LIMIT = "\1paused", "\1limit"
_NUMBERS = ("attempt", "losses", "forgiven", "conflicts", "step", "fence")  # `back` begins with its number
_TEXTS = ("state", "token", "last", "phase", "stop", "condemned", "rollback", "handles")
_SETS = ("paused", "ready", "contended")
Records = dict[str, dict[str, str]]
_LISTED = ("scheduled", "collected", "retrying", "parked", "held")


def of_model(model: Model) -> dict[str, Any]:
    return {
        **_of_lines(model),
        **_of_jobs(model),
        "coalesced": dict(model.coalesced),
        "aliases": dict(model.alias),
        "ready": {kind: list(groups) for kind, groups in model.queues.items() if groups},
        "groups": {f"{group}\n{kind}": queue for kind in model.queues for group, queue in model.queues[kind].items()},
        "locks": {f"{slot}:{key}": f"{token} {till}" for (key, slot), (token, till) in model.locks.items()},
        "turns": {name: [str(fence)] for name, (fence, _) in model.turns.items()},
        "sets": _sets(model),
        "work": {node.name: _work(node.work) for node in model.nodes.values() if node.work},
        "classes": {node.name: node.classes for node in model.nodes.values() if node.classes},
        "owed": dict(model.owed),
        "looks": dict(model.looks),
        "alive": {node.name: node.alive for node in model.nodes.values() if node.alive},
        "lost nodes": {node.name: node.lost for node in model.nodes.values() if node.lost},
        "sorters": model.flushes(),
        **_of_sorters(model),
        "counts": {name: number for name, number in model.counts.items() if number},
    }


def _of_lines(model: Model) -> dict[str, Any]:
    """`places`: how many scores each job has in all its lines."""
    limits = {key: limit for key, limit in model.limits.items() if limit != 1}
    lines = {key: [LIMIT] for key in limits}
    lines |= {key: [*lines.get(key, []), PAUSED] for key in model.paused}
    for key in {key for job in model.jobs.values() for key in job.keys}:
        if names := [job.id for job in model.line(key)]:
            lines[key] = lines.get(key, []) + names
    places = {job.id: 1 for job in model.jobs.values() if job.lined}
    return {"lines": lines, "places": places, "lanes": dict.fromkeys(lines, 0), "limits": limits}


def _of_jobs(model: Model) -> dict[str, Any]:
    """`runs`: the lanes in whose runs those that are over are listed."""
    jobs = model.jobs.values()
    running = [job for job in jobs if job.state == "running"]
    due = [job for job in jobs if job.state in ("retrying", "scheduled")]
    expiring = [job for job in jobs if job.expiry is not None]
    return {
        "jobs": {job.id: _job(job) | _faded(model, job) for job in jobs},
        "fading": {job.id: job.over for job in jobs},
        "runs": {job.id: list(job.keys) for job in jobs if job.over and job.place},
        "equal": {job.id: job.coalesce for job in jobs if job.coalesce},
        "names": {name: {alias for alias, of in model.alias.items() if of == name} for name in model.alias.values()},
        "leases": {job.id: job.lease for job in running if not job.plain},
        "leases of locks": {job.id: job.lease for job in running if job.plain},
        "due": {job.id: job.due for job in due if not model.is_named(job)},
        "starts": {job.id: job.due for job in due if model.is_named(job)},
        "expiry": {job.id: job.expiry for job in expiring if not job.by_the_wall()},
        "latest": {job.id: job.expiry for job in expiring if job.by_the_wall()},
    }


def _sets(model: Model) -> dict[str, set[str]]:
    jobs = model.jobs.values()
    found = {f"state:{state}": {job.id for job in jobs if job.state == state} for state in _LISTED}
    found["state:rolling_back"] = {job.id for job in jobs if job.phase == "rollback"}
    found |= {"paused": set(model.paused), "ready": {kind for kind, groups in model.queues.items() if groups}}
    crowds = {key for job in jobs for key in job.keys if len(model.line(key)) > 1}
    found |= {"ready-by-task": {_ready(job) for job in jobs if job.state == "ready"}, "contended": crowds}
    return {name: members for name, members in found.items() if members}


def _ready(job: Job) -> str:
    assert job.place
    return f"{job.place.task}\n{job.place.kind}\n\n{job.id}"


def _of_sorters(model: Model) -> dict[str, Any]:
    names = sorted(model.flushes())
    batches = {name: _members(model.batch(name)) for name in names}
    collected = {name: _members(model.collected(name)) for name in names}
    return {
        "batch": {name: members for name, members in batches.items() if members},
        "collected": {name: members for name, members in collected.items() if members},
        "times": {name: model.times[name] for name in names if collected[name]},
        "seen": {name: files for name, files in model.seen.items() if files},
    }


def _members(jobs: list[Job]) -> list[str]:
    return [f"{job.sort_key}\0{job.id}" for job in jobs]


def _job(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(job, name) for name in (*_NUMBERS, *_TEXTS)}
    found |= {"back": job.back, "stale": job.stale}
    found |= {"taken": job.taken, "coalesces": bool(job.coalesce), "keys": "\n".join(job.keys)}
    found |= {"class": job.place.kind if job.place else None, "task": job.place.task if job.place else None}
    found["unite"] = None if job.unite is None else sorted(job.unite)
    return found


def _faded(model: Model, job: Job) -> dict[str, Any]:
    """A success keeps what tells about it, and a trace of its token."""
    if not model.faded(job):
        return {"faded": False}
    gone = {"forgiven": 0, "conflicts": 0, "stop": "", "condemned": "", "class": None, "faded": True}
    return gone | ({"token": job.token[:8] + job.token[-8:]} if len(job.token) > 16 else {})


def _work(work: dict[str, tuple[str, int, str]]) -> dict[str, str]:
    return {runner: " ".join(map(str, entry)) for runner, entry in work.items()}


def counted(dump: Dump) -> Counter[str]:
    """What was counted, of all tasks together."""
    found: Counter[str] = Counter()
    for name, number in dump.held.get("counts", {}).items():
        found[name.partition("\n")[0]] += int(number)
    return found


def _locks(dump: Dump) -> dict[str, str]:
    return {f"1:{key}": value for key, value in dump.under("lock").items()} | dump.under("slot")


def _lost(text: str) -> tuple[int, str, list[str]]:
    at, incarnation, about = text.split(" ", 2)
    jobs = [name for name in loads(about)["jobs"].split("\n") if name]
    assert loads(about)["count"] == len(jobs), "more than the first 20 are not named"
    return int(at), incarnation, jobs


def _runs(dump: Dump, records: Records) -> dict[str, list[str]]:
    """The jobs that are listed by their ends, and the lanes in whose runs each of them is."""
    found, runs = {}, dump.scores("lane-runs")
    for state in TERMINAL:
        for name, at in dump.scores(f"ended:{state}").items():
            record = records.get(name, {})
            if (record.get("state"), record.get("ended")) == (state, f"{at:.0f}"):
                found[name] = [key for key in record["keys"].split("\n") if f"{key}\0{at:.0f}\0{name}" in runs]
    return found


def _idle(times: dict[str, float], records: Records) -> dict[str, float]:
    """The end of a job that is at work is of no account."""
    return {name: at for name, at in times.items() if records.get(name, {}).get("state") != "running"}


def _places(dump: Dump) -> dict[str, int]:
    """How many scores each job has in its lines."""
    scores: dict[str, set[float]] = defaultdict(set)
    for line in dump.under("line").values():
        for name, score in line:
            scores[name].add(score)
    return {name: len(found) for name, found in scores.items() if name not in (PAUSED, LIMIT)}


def of_redis(dump: Dump, now: int) -> dict[str, Any]:
    """Redis may keep a lock longer than it counts."""
    records = dump.records()
    sets = [name for name in dump.held if name in _SETS or name.startswith("state:")]
    return {
        "jobs": {name: _record(record) for name, record in records.items()},
        "coalesced": dump.scores("coalesced"),
        "aliases": {name: one["alias"] for name, one in dump.under("job").items() if "alias" in one},
        "lines": {key: [name for name, _ in line] for key, line in dump.under("line").items()},
        "ready": dump.under("ready"),
        "groups": {name: [one for one, _ in queue] for name, queue in dump.under("group").items()},
        "locks": {name: value for name, value in _locks(dump).items() if int(value.split()[-1]) > now},
        "turns": dump.under("turn"),
        "lanes": dump.scores("lanes"),
        "places": _places(dump),
        "limits": {key: int(text.partition("{")[0]) for key, text in dump.held.get("limits", {}).items()},
        "sets": {name: set(dump.held[name]) for name in sets} | _ready_by_task(dump),
        "leases": dump.scores("leases"),
        "leases of locks": dump.scores("locks"),
        "fading": {name: f"job:{name}" in dump.fading for name in records},
        "runs": _runs(dump, records),
        "equal": {name: what.partition(":")[0] for what, name in dump.under("equal").items()},
        "names": {name: set(aliases) for name, aliases in dump.under("aliases").items()},
        "expiry": _idle(dump.scores("expiry"), records),
        "latest": _idle(dump.scores("latest"), records),
        "due": dump.scores("due"),
        "starts": dump.scores("starts"),
        "work": dump.under("work"),
        "classes": dump.under("classes"),
        "owed": dump.scores("unsent:shop"),
        "looks": dump.scores("parked:shop"),
        "alive": dump.scores("alive"),
        "lost nodes": {name: _lost(text) for name, text in dump.held.get("lost-nodes", {}).items()},
        "sorters": dump.scores("sorters"),
        "batch": {name: [one for one, _ in members] for name, members in dump.under("batch").items()},
        "collected": {name: [one for one, _ in members] for name, members in dump.under("collected").items()},
        "times": {name: (int(at["first"]), int(at["due"])) for name, at in dump.under("sorter").items()},
        "seen": dump.under("seen"),
        "counts": {name: number for name, number in counted(dump).items() if number},
    }


def _ready_by_task(dump: Dump) -> dict[str, set[str]]:
    found = dump.scores("ready-by-task")
    assert {*found.values()} <= {0.0}
    return {"ready-by-task": {*found}} if found else {}


def _record(record: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: int(record.get(name, 0)) for name in _NUMBERS}
    found |= {name: record.get(name, "") for name in _TEXTS}
    found |= {"back": int(record.get("back", "0 ").split()[0]), "stale": "stale" in record}
    found["handles"] = "handles" if found["handles"] else ""
    found |= {"taken": int(record["taken"]) if "taken" in record else None, "coalesces": "equal" in record}
    found["unite"] = loads(record.get("merge_args", '{"what": []}'))["what"]
    found["unite"] = sorted(found["unite"]) if found["unite"] is not None else None
    found["faded"] = "faded" in record
    return found | {"keys": record["keys"], "class": record.get("class"), "task": record.get("task")}


def differences(model: Model, dump: Dump) -> list[str]:
    ours, theirs = of_model(model), of_redis(dump, model.now)
    found = []
    for part in ours:
        for name in sorted({*ours[part], *theirs[part]}):
            want, got = ours[part].get(name), theirs[part].get(name)
            if want != got:
                if isinstance(want, dict) and isinstance(got, dict):
                    want = {field: value for field, value in want.items() if value != got.get(field)}
                    got = {field: got.get(field) for field in want}
                found.append(f"{part} {name}: should be {want}, is {got}")
    return found
