"""Instances in memory: who works on each, or did, and how it ended. Nothing is forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator

Record = dict[str, str]

_TOLD = ("fence", "attempt", "about", "started", "ended", "value")


def told(state: str, grab: Record) -> list[bytes]:
    """An instance as a step tells it."""
    return [state.encode(), *(grab.get(name, "").encode() for name in _TOLD)]


def about(job_id: str, node: str, pid: int) -> str:
    """The winner, where a job has won."""
    host = node.rpartition("@")[2]
    return json.dumps({"identifier": job_id, "host": host, "pid": pid, "node": node})


class Instances:
    """By their lanes, the latest last. A job has no token here."""

    def __init__(self) -> None:
        self.kept: dict[str, Record] = {}

    def begin(self, lane: str, job_id: str, who: str, token: str = "", fence: str = "", now: str = "") -> None:
        before = self.kept.pop(lane, {})
        attempt = str(int(before.get("attempt", 0)) + 1)
        self.kept[lane] = {"state": "running", "job": job_id, "token": token, "fence": fence, "attempt": attempt}
        self.kept[lane] |= {"about": who, "started": now}

    def take(self, lane: str, job_id: str, who: str, fence: str, now: str) -> None:
        """A runner was given the job."""
        if self.kept.get(lane, {}).get("job") == job_id:
            self.kept[lane] |= {"fence": fence, "about": who, "started": now}

    def end(self, lane: str, job_id: str, state: str, value: str, now: str) -> None:
        if self.kept.get(lane, {}).get("job") == job_id:
            self.kept[lane] |= {"state": state, "ended": now, "value": value}

    def forget(self, most: int) -> None:
        """The oldest that have ended."""
        for lane in list(self.kept)[:-most]:
            if self.kept[lane]["state"] != "running":
                del self.kept[lane]

    def latest(self) -> Iterator[str]:
        return reversed(self.kept)
