"""The plain model: jobs that would wait for themselves."""

from typing import NamedTuple

from proof.model.lanes import Lanes
from proof.model.quotas import Bounds
from proof.model.record import Job


class Wait(NamedTuple):
    """So many of these must end before the job goes on."""

    need: int
    ids: list[str]


def ring(lanes: Lanes, origin: str, about_to: tuple[str, ...] = ()) -> list[str]:
    """The members of the shortest ring through this job, itself last; none: it can go on. `about_to`: park on these."""
    waits: dict[str, list[Wait]] = {}
    queue = [origin]
    for name in queue:
        if name not in waits:
            parking = lanes.jobs[origin] if about_to else None
            waits[name] = _waits(lanes, lanes.jobs[name], about_to if name == origin else (), parking)
            queue += [other for wait in waits[name] for other in wait.ids]
    stuck = set(waits)
    while free := [name for name in stuck if all(_met(wait, stuck) for wait in waits[name])]:
        stuck.difference_update(free)
    before: dict[str, str] = {}
    queue = [origin] if origin in stuck else []
    for name in queue:
        for other in [other for wait in waits[name] for other in wait.ids if other in stuck]:
            if other not in before:
                before[other] = name
                queue.append(other)
    found: list[str] = []
    while origin in before and found[-1:] != [origin]:
        found.append(before[found[-1] if found else origin])
    return found


def _met(wait: Wait, stuck: set[str]) -> bool:
    return sum(one not in stuck for one in wait.ids) >= wait.need


def _waits(lanes: Lanes, job: Job, about_to: tuple[str, ...], parking: Job | None) -> list[Wait]:
    if job.state == "parked" and job.event:
        return []
    if about_to or job.state == "parked":
        names = [lanes.alias.get(name, name) for name in about_to or job.waits_for]
        return [Wait(1, [name]) for name in names if name in lanes.jobs and not lanes.jobs[name].over]
    if job.state == "running" and job.awaits[0] and job.awaits[0] == job.token:
        return [Wait(1, [job.awaits[1]])] if job.awaits[1] in lanes.jobs else []
    if job.state == "held":
        return [Wait(1, [])]
    if job.state not in ("waiting", "scheduled", "collected", "collecting", "blocked") and not job.lack:
        return []
    lined = job.keys if job.state != "ready" else ()
    causes = [Wait(1, [name]) for name in job.open if name in lanes.jobs] if job.state == "blocked" else []
    return [*causes, *(wait for key in lined for wait in _before(lanes, job, key)), *_units(lanes, job, parking)]


def _units(lanes: Lanes, job: Job, parking: Job | None) -> list[Wait]:
    """Who holds it up; else as many users as have what it misses, if they have the most. `parking`: a job that is about
    to park, and gives back what it does not keep until its end.
    """
    if not job.lack:
        return []
    quota = lanes.quota(job.lack)
    if head := lanes.ahead(job, job.lack):
        return [Wait(1, [head.id])]
    (use,) = [use for use in job.uses if use.name == job.lack]
    bounds = lanes.bounds(job.lack) or Bounds()
    kept = {use.name for use in parking.uses if use.stays} if parking else set()
    stay = {user: units for user, units in quota.users.items()
            if not parking or user != parking.id or job.lack in kept}  # fmt: skip
    used, alone = sum(stay.values()), quota.alone in stay
    missing: float = used if use.all else used + use.units - bounds.most
    missing, need = max(alone, missing), 0
    for units in sorted(stay.values(), reverse=True):
        if missing > 0:
            missing, need = missing - units, need + 1
    return [Wait(need, list(stay))] if need else []


def _before(lanes: Lanes, job: Job, key: str) -> list[Wait]:
    line = lanes.line(key)
    started = [other.id for other in line if other.state != "waiting"]
    ahead = [other.id for other in line[: line.index(job)]] if job in line else started
    front = ahead[: max(1, len(started))]
    return [Wait(1, [name]) for name in [*front, *ahead[len(front) :][-1:]]]
