"""The model's state and the one in Redis, each as the same plain dicts, to be compared."""

from collections import Counter, defaultdict
from json import loads
from typing import Any

from proof.model.operators import Model
from proof.model.quotas import kind_of
from proof.model.raw import Dump
from proof.model.record import TERMINAL, Job

PAUSED = "\1paused"
_NUMBERS = ("attempt", "losses", "forgiven", "conflicts", "step", "fence")  # `back` begins with its number
_TEXTS = ("state", "token", "last", "phase", "stop", "condemned", "rollback", "handles")
_SETS = ("paused", "ready", "contended")
Records = dict[str, dict[str, str]]
_LISTED = ("scheduled", "collected", "collecting", "blocked", "retrying", "parked", "held")


def of_model(model: Model) -> dict[str, Any]:
    return {
        **_of_lines(model),
        **_of_jobs(model),
        "coalesced": dict(model.coalesced),
        "aliases": dict(model.alias),
        "ready": {kind: places for kind, places in model.ready.places.items() if places},
        "groups": {
            f"{group}\n{kind}": queue for kind in model.ready.lists for group, queue in model.ready.groups(kind).items()
        },
        "shares": {group: str(share) for group, share in model.ready.shares.items() if share},
        "usual": {task: str(ms) for task, ms in model.ready.usual.items()},
        "weights": model.ready.weights,
        "quotas": {name: _quota(model, name) for name in model.listed},
        "defaults": {
            prefix: tuple("" if one is None else str(one) for one in bounds)
            for prefix, bounds in model.defaults.items()
        },
        "quotas due": model.due,
        "locks": {key: f"{token} {till}" for key, (token, till) in model.locks.items()},
        "pauses": {key: till for key, till in model.paused.items() if till is not None},
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
        **_of_causes(model),
        "counts": {name: number for name, number in model.counts.items() if number},
    }


def _of_causes(model: Model) -> dict[str, Any]:
    jobs = model.jobs.values()
    return {
        "causes": {job.id: job.open for job in jobs if job.open},
        "dependants": {cause: {*waiting} for cause, waiting in model.dependants.items() if waiting},
        "held after": {cause: held for cause, held in model.held_after.items() if held},
        "ended causes": {f"{outcome}\n{cause}": "" for outcome, cause in model.ended},
        "events": {name: value for name, (value, _) in model.events.items()},
        "listed events": model.known_events,
        "timeouts": {job.id: job.timeout for job in jobs if job.event},
    }


def _of_lines(model: Model) -> dict[str, Any]:
    """`places`: how many scores each job has in all its lines."""
    lines = {key: [PAUSED] for key in model.paused}
    for key in {key for job in model.jobs.values() for key in job.keys or ("",)}:
        if names := [job.id for job in model.line(key)]:
            lines[key] = lines.get(key, []) + names
    places = {job.id: 1 for job in model.jobs.values() if job.lined}
    return {"lines": lines, "places": places, "lanes": dict.fromkeys(filter(None, lines), 0)}


def _of_jobs(model: Model) -> dict[str, Any]:
    """`runs`: the lanes in whose runs those that are over are listed."""
    jobs = model.jobs.values()
    running = [job for job in jobs if job.state == "running"]
    due = [job for job in jobs if job.state in ("retrying", "scheduled", "collecting")]
    expiring = [job for job in jobs if job.expiry is not None]
    return {
        "jobs": {job.id: _job(job) | _faded(model, job) for job in jobs},
        "fading": {job.id: job.over for job in jobs},
        "runs": {job.id: list(job.keys) for job in jobs if job.over and job.place},
        "equal": {job.id: job.coalesce for job in jobs if job.coalesce},
        "calls": {job.id: list(job.calls[1:]) for job in jobs if job.coalesce and job.calls[1:]},
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
    found |= {"paused": set(model.paused), "ready": {kind for kind, groups in model.ready.lists.items() if groups}}
    crowds = {key for job in jobs for key in job.keys if len(model.line(key)) > 1}
    found |= {
        "ready-by-task": {_ready(job) for job in jobs if job.state == "ready" and not job.lack},
        "contended": crowds,
    }
    found["quotas"] = model.listed
    found |= {f"offers of {name}": _offered(model, name) for name in model.quotas}
    return {name: members for name, members in found.items() if members}


def _offered(model: Model, name: str) -> set[str]:
    return {f"{kind_of(job, name)}\n\n{job.id}" for job in model.jobs.values() if name in job.offered}


def _quota(model: Model, name: str) -> dict[str, Any]:
    """`used` beside its users, whose units it must be."""
    quota = model.quota(name)
    bounds = ("",) * 4 if quota.bounds is None else ("" if one is None else str(one) for one in quota.bounds)
    until = "" if quota.until is None else "+" * quota.until[0] + str(quota.until[1])
    return {
        "bounds": tuple(bounds), "used": quota.used, "users": quota.users, "tat": quota.tat, "until": until,
        "alone": quota.alone, "declared": quota.bounds is not None, "queue": [job.id for job in model.queue(name)],
    }  # fmt: skip


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
    found |= {"lack": job.lack, "apart": job.apart and not job.over, "lacked": 0 if job.over else job.lacked}
    found |= {"calls": job.calls_text(), "called": job.called}
    found |= {"given": sorted(job.given), "blocks": job.blocks, "event": job.event}
    return found


def _faded(model: Model, job: Job) -> dict[str, Any]:
    """A success keeps what tells about it, and a trace of its token."""
    if not model.faded(job):
        return {"faded": False}
    gone = {"forgiven": 0, "conflicts": 0, "stop": "", "condemned": "", "class": None, "faded": True,
            "given": [], "blocks": False}  # fmt: skip
    return gone | ({"token": job.token[:8] + job.token[-8:]} if len(job.token) > 16 else {})


def _work(work: dict[str, tuple[str, int, str]]) -> dict[str, str]:
    return {runner: " ".join(map(str, entry)) for runner, entry in work.items()}


def counted(dump: Dump) -> Counter[str]:
    """What was counted, of all tasks together."""
    found: Counter[str] = Counter()
    for name, number in dump.held.get("counts", {}).items():
        found[name.partition("\n")[0]] += int(number)
    return found


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
    return {name: len(found) for name, found in scores.items() if name != PAUSED}


def _flow_of_redis(dump: Dump) -> dict[str, Any]:
    """Quotas, and the shares of groups."""
    defaults, weights = dump.held.get("quota-defaults", {}), dump.held.get("weights", {})
    return {
        "shares": {group: share for group, share in dump.held.get("shares", {}).items() if share != "0"},
        "usual": dump.held.get("usual", {}),
        "weights": {group: float(text.partition(" ")[0]) for group, text in weights.items()},
        "quotas": _quotas(dump),
        "defaults": {prefix: tuple(text.split(" ")[:4]) for prefix, text in defaults.items()},
        "quotas due": dump.scores("quotas-due"),
    }


def _of_nodes(dump: Dump) -> dict[str, Any]:
    return {
        "work": dump.under("work"),
        "classes": dump.under("classes"),
        "alive": dump.scores("alive"),
        "lost nodes": {name: _lost(text) for name, text in dump.held.get("lost-nodes", {}).items()},
    }


def _causes_of_redis(dump: Dump) -> dict[str, Any]:
    return {
        "causes": {name: set(open_) for name, open_ in dump.under("causes").items()},
        "dependants": {cause: {name for name, _ in all_} for cause, all_ in dump.under("dependants").items()},
        "held after": {cause: {name for name, _ in all_} for cause, all_ in dump.under("held-after").items()},
        "ended causes": dict.fromkeys(dump.held.get("ended-causes", []), ""),
        "events": {name: event["value"] for name, event in dump.under("event").items()},
        "listed events": dump.scores("events"),
        "timeouts": dump.scores("timeouts"),
    }


def of_redis(dump: Dump, now: int) -> dict[str, Any]:
    """Redis may keep a lock longer than it counts."""
    records = dump.records()
    sets = [name for name in dump.held if name in _SETS or name.startswith("state:")]
    return _flow_of_redis(dump) | _of_nodes(dump) | _causes_of_redis(dump) | {
        "jobs": {name: _record(record) for name, record in records.items()},
        "coalesced": dump.scores("coalesced"),
        "aliases": {name: one["alias"] for name, one in dump.under("job").items() if "alias" in one},
        "lines": {key: [name for name, _ in line] for key, line in dump.under("line").items()},
        "ready": {kind: dict(places) for kind, places in dump.under("ready").items()},
        "groups": {name: [one for one, _ in queue] for name, queue in dump.under("group").items()},
        "locks": {name: value for name, value in dump.under("lock").items() if int(value.split()[-1]) > now},
        "turns": dump.under("turn"),
        "lanes": dump.scores("lanes"),
        "places": _places(dump),
        "pauses": dump.scores("pauses"),
        "sets": {name: set(dump.held[name]) for name in sets} | _ready_by_task(dump) | _of_flow(dump),
        "leases": dump.scores("leases"),
        "leases of locks": dump.scores("locks"),
        "fading": {name: f"job:{name}" in dump.fading for name in records},
        "runs": _runs(dump, records),
        "equal": {name: what.partition(":")[0] for what, name in dump.under("equal").items()},
        "names": {name: set(aliases) for name, aliases in dump.under("aliases").items()},
        "calls": dump.under("calls"),
        "expiry": _idle(dump.scores("expiry"), records),
        "latest": _idle(dump.scores("latest"), records),
        "due": dump.scores("due"),
        "starts": dump.scores("starts"),
        "owed": dump.scores("unsent:shop"),
        "looks": dump.scores("parked:shop"),
        "sorters": dump.scores("sorters"),
        "batch": {name: [one for one, _ in members] for name, members in dump.under("batch").items()},
        "collected": {name: [one for one, _ in members] for name, members in dump.under("collected").items()},
        "times": {name: (int(at["first"]), int(at["due"])) for name, at in dump.under("sorter").items()},
        "seen": dump.under("seen"),
        "counts": {name: number for name, number in counted(dump).items() if number},
    }  # fmt: skip


def _of_flow(dump: Dump) -> dict[str, set[str]]:
    offers = {f"offers of {name}": {one for one, _ in all_} for name, all_ in dump.under("quota-offers").items()}
    return {"quotas": {*dump.scores("quotas")}, **offers} if dump.scores("quotas") else offers


def _quotas(dump: Dump) -> dict[str, Any]:
    kinds = {name: dump.under(f"quota{name}") for name in ("", "-users")}
    queues = _queues(dump)
    found = {}
    for name in {*dump.scores("quotas"), *queues, *(name for kind in kinds.values() for name in kind)}:
        quota, users = (kind.get(name, {}) for kind in kinds.values())
        found[name] = {
            "bounds": tuple(quota.get(field, "") for field in ("limit", "count", "period", "burst")),
            "used": int(quota.get("used", 0)), "users": {user: int(units) for user, units in users.items()},
            "tat": int(quota.get("tat", "0").split()[0]), "until": quota.get("until", ""),
            "declared": "limit" in quota, "alone": quota.get("alone", ""),
            "queue": [one for _, one in sorted(queues.get(name, []))],
        }  # fmt: skip
    return found


def _queues(dump: Dump) -> dict[str, list[tuple[float, str]]]:
    """The places and ids of those that wait for each quota; each of their kinds has the place of its first job."""
    jobs, kinds = dump.under("quota-kind"), dump.under("quota-queue")
    found: dict[str, list[tuple[float, str]]] = {}
    for name, members in jobs.items():
        quota, _, kind = name.partition("\n")
        assert dict(kinds[quota])[kind] == members[0][1], f"{quota}: {kind!r} is not where its first job is"
        found.setdefault(quota, []).extend((place, one) for one, place in members)
    assert {quota: len(all_) for quota, all_ in kinds.items()} == Counter(name.partition("\n")[0] for name in jobs)
    return found


def _ready_by_task(dump: Dump) -> dict[str, set[str]]:
    found = dump.scores("ready-by-task")
    assert {*found.values()} <= {0.0}
    return {"ready-by-task": {*found}} if found else {}


def _record(record: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: int(record.get(name, 0)) for name in _NUMBERS}
    found |= {name: record.get(name, "") for name in _TEXTS}
    found |= {"back": int(record.get("back", "0 ").split()[0]), "stale": "stale" in record}
    over = found["state"] in TERMINAL
    found |= {"lack": record.get("lack", ""), "apart": "apart" in record and not over}
    found["lacked"] = 0 if over else int(record.get("lacked", 0))
    found["handles"] = "handles" if found["handles"] else ""
    found |= {"taken": int(record["taken"]) if "taken" in record else None, "coalesces": "equal" in record}
    found |= {"calls": record.get("calls", ""), "called": int(record.get("called", 1))}
    found["given"] = sorted({*loads(f"{{{record.get('given', '')}}}")})
    found |= {"faded": "faded" in record, "blocks": "blocks" in record, "event": record.get("event", "")}
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
