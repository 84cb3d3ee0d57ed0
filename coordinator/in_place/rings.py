"""Rings in memory: jobs that would wait for themselves, as the rules of the lanes find them (rules/rings.lua)."""

from __future__ import annotations

from typing import NamedTuple

from kombu.utils.json import loads

from coordinator.in_place.lines import Lines, Record, keys_of
from coordinator.jobs.record import TERMINAL


class Group(NamedTuple):
    """So many (`need`) of the members must end before a job goes on; `how`: a text with a place for the member."""

    how: str
    need: int
    members: list[str]


def ring(lines: Lines, origin: str, handles: str | None = None) -> tuple[str, list[str]] | None:
    """The ring in which `origin` waits for itself: as a sentence, and its members. `handles`: on which it will park."""
    groups = _explore(lines, origin, handles)
    stuck = _stuck(groups)
    if origin not in stuck:
        return None
    queue, via = [origin], dict[str, tuple[str, str]]()
    for job_id in queue:
        for group in groups[job_id]:
            for member in group.members:
                if member in stuck and member not in via:
                    via[member] = job_id, group.how
                    queue.append(member)
                if member == origin and origin in via:
                    return _told(via, origin)
    return None


def ring_of_code(lines: Lines, job_id: str, holders: list[tuple[str, str]]) -> str | None:
    """As a sentence, the ring that closes where the code that holds these waits for `job_id`."""
    waiting = [lines.records[one] for one, token in holders if lines.records.get(one, {}).get("token") == token]
    for record in waiting:
        record["awaits"] = job_id
    found = ring(lines, job_id)
    for record in waiting:
        del record["awaits"]
    return found and found[0]


def _told(via: dict[str, tuple[str, str]], origin: str) -> tuple[str, list[str]]:
    said: list[str] = []
    members: list[str] = []
    at = origin
    while not members or at != origin:
        before, how = via[at]
        said.insert(0, f"{before} {how.format(at)}")
        members.append(before)
        at = before
    return "; ".join(said), members


def _explore(lines: Lines, origin: str, handles: str | None) -> dict[str, list[Group]]:
    """All that the job waits for, and what these wait for."""
    found: dict[str, list[Group]] = {}
    queue = [origin]
    for job_id in queue:
        if job_id not in found:
            found[job_id] = _groups(lines, job_id, handles if job_id == origin else None)
            queue += [member for group in found[job_id] for member in group.members]
    return found


def _stuck(groups: dict[str, list[Group]]) -> set[str]:
    """Jobs that cannot go on, since too many of those that they wait for cannot."""
    stuck, before = set(groups), -1
    while before != len(stuck):
        before = len(stuck)
        stuck = {
            job_id
            for job_id in stuck
            if any(sum(member not in stuck for member in group.members) < group.need for group in groups[job_id])
        }
    return stuck


def _groups(lines: Lines, job_id: str, handles: str | None) -> list[Group]:
    record = lines.records.get(job_id, {})
    state = record.get("state")
    if handles or state == "parked":
        named = [one for one in loads(handles or record["handles"])["ids"] if one in lines.records]
        ids = [lines.records[one].get("alias", one) for one in named]
        open_ = [one for one in ids if lines.records[one]["state"] not in TERMINAL]
        return [Group("waits for its sub-result {}", 1, [one]) for one in open_]
    if state == "running" and "awaits" in record:
        return [Group("waits in its code for {}", 1, [record["awaits"]])]
    if state in ("waiting", "scheduled", "collected"):
        return [group for key in keys_of(record) for group in _before(lines, job_id, key, record)]
    return [Group("", 1, [])] if state == "held" else []


def _before(lines: Lines, job_id: str, key: str, record: Record) -> list[Group]:
    line, how = lines.line(key), f"waits behind {{}} in lane {key!r}"
    started = sum(lines.records[one]["state"] != "waiting" for one in line)
    place = line.index(job_id) if job_id in line else started
    limit, ahead = max(1, lines.limit(key)), line[:place]
    if not ahead:
        return []
    if limit == 1:
        front = line[: min(max(started, 1), place)]
        return [Group(how, 1, [one]) for one in (front if ahead[-1] in front else [*front, ahead[-1]])]
    need = place if "weight" in record else place - limit + 1
    alone = [] if "weight" in record else [one for one in ahead if "weight" in lines.records[one]]
    return [*([Group(how, need, ahead)] if need > 0 else []), *(Group(how, 1, [one]) for one in alone)]
