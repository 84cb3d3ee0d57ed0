"""Finds why jobs wait, as codes: for a search, which reads many records and needs no sentence about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from coordinator.core.fleet.nodes import Node, Nodes
from coordinator.core.jobs.record import fields_of_many
from coordinator.core.quotas.client import QuotaClient
from coordinator.core.store.client import Store
from coordinator.core.store.steps import quota_queue
from coordinator.ops.search.fit import fit
from coordinator.ops.search.quotas import code_of, places_in, units_in

OF_STATE = {
    "scheduled": "later.scheduled",
    "collected": "later.sorter",
    "collecting": "later.collects",
    "blocked": "blocked",
    "retrying": "later.retry",
    "parked": "parked.results",
    "held": "held",
}
"""State of jobs that wait neither in line nor for a node -> the code of why."""
_IN_LINE = ("waiting.lane", "waiting.paused", "waiting.quota", "waiting.rate", "waiting.cooldown", "waiting.ready")
_READY = ("waiting.fleet", "waiting.node", "waiting.slot", "waiting.claim")
STATES_OF = {
    **{code: (state,) for state, code in OF_STATE.items()},
    **dict.fromkeys(_IN_LINE, ("waiting",)),
    **dict.fromkeys(_READY, ("ready",)),
}
"""Code of a reason -> the states of the jobs that wait for it."""
FIELDS = ("class", "task", "lack", "keys")
"""The fields of records that `Reasons.codes` needs."""


class Reasons:
    """The reasons of jobs, by what one search reads of the installation: its living nodes and quotas, once each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ready: dict[tuple[str, str], str] = {}  # code of the ready jobs of a routing class and a task
        self._lacking: dict[str, str] = {}  # code of the jobs in a quota's queue

    def codes(self, jobs: Sequence[tuple[str, Mapping[str, str]]]) -> list[str]:
        """Return the code of each job, given as its state and its fields; "" for one that waits for nothing."""
        self._read_quotas({fields["lack"] for state, fields in jobs if state == "waiting" and fields.get("lack")})
        paused = self._paused(jobs)
        return [self._code(state, fields, paused) for state, fields in jobs]

    def _code(self, state: str, fields: Mapping[str, str], paused: set[str]) -> str:
        if state == "ready":
            return self._of_ready(fields.get("class", ""), fields.get("task", ""))
        if state != "waiting":
            return OF_STATE.get(state, "")
        if lack := fields.get("lack"):
            return self._lacking[lack]
        return "waiting.lane" if paused.isdisjoint(fields.get("keys", "").split("\n")) else "waiting.paused"

    def _of_ready(self, kind: str, task: str) -> str:
        if (kind, task) not in self._ready:
            self._ready[kind, task] = fit(self._living, kind.split("\n"), task).code
        return self._ready[kind, task]

    @cached_property
    def _living(self) -> list[Node]:
        return [node for node in Nodes(self._store).all() if node.alive]

    def _paused(self, jobs: Sequence[tuple[str, Mapping[str, str]]]) -> set[str]:
        """Return those lanes of the waiting jobs that operators paused."""
        keys = [*{key for state, one in jobs if state == "waiting" for key in one.get("keys", "").split("\n")}]
        if not keys:
            return set()
        marks = self._store.read("HMGET", self._store.key("paused"), *keys)
        return {key for key, mark in zip(keys, marks, strict=True) if mark is not None}

    def _read_quotas(self, names: set[str]) -> None:
        """Find why the head of each quota's queue waits: those behind it wait for the same."""
        unread = sorted(names - self._lacking.keys())
        if not unread:
            return
        quotas = QuotaClient(self._store).read_many(unread)
        queues = self._store.read_many([quota_queue.looking(self._store, name, 1) for name in unread])
        first = {name: places_in(reply)[0][1] for name, reply in zip(unread, queues, strict=True) if reply}
        uses = dict(zip(first, fields_of_many(self._store, [*first.values()], "uses"), strict=True))
        for quota in quotas:
            wants = units_in(uses[quota.name][0], quota.name) if quota.name in uses else 1
            self._lacking[quota.name] = code_of(quota, wants)
