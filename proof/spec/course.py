"""Courses of the real functions, on a real Redis, held against the specification: each of their steps is one of it."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from kombu.utils.json import dumps

from proof.model.clock import Clocked
from proof.model.mutant import Mutant
from proof.model.raw import Dump
from proof.spec.check import HERE, LATE, World, tlc
from tests.harness.hand_node import Puppet, Taken

WORLD = World(
    "courses", "", {**LATE, "MaxClaims = 4": "MaxClaims = 12", "SPECIFICATION Spec": "SPECIFICATION WholeCourse"}
)
KEYS = {"a": ["k"], "b": ["k", "l"], "c": ["l"], "d": ["l"]}  # as Late in MC.tla; b is urgent, a waits for c
CHILD = {"a": "c"}
STEPS = 40
Seen = dict[str, dict[str, Any]]


def drawn(url: str, number: int, mutant: Mutant | None = None) -> list[Seen]:
    """What was seen of the store in a course of that number: of clients, and of two processes that may be late."""
    chance = Random(number)
    with closing(Clocked(url, mutant)) as store:
        node = Puppet(store)
        node.up()
        seen, held = [_seen(node)], dict[str, Taken]()
        for _ in range(STEPS):
            _step(node, chance, seen[-1]["state"], held)
            if (now := _seen(node)) != seen[-1]:
                seen.append(now)
        return seen


def _step(node: Puppet, chance: Random, states: dict[str, str], held: dict[str, Taken]) -> None:
    """`states`: of the jobs. `held`: what the processes took last; a process that is late may still report."""
    act, process = (
        chance.choice(("submit", "submit", "take", "take", "end", "end", "lose", "renew")),
        chance.choice("pq"),
    )
    taken = held.get(process)
    if act == "submit":
        if new := [job for job in "abd" if states[job] == "unknown"]:
            job = chance.choice(new)
            node.submit(KEYS[job], job_id=job, priority=int(job == "b"))
    elif act == "take":
        if taken := node.take():
            held[process] = taken
    elif taken and act == "renew":
        node.renew(taken)
    elif taken and act == "lose":
        node.lose(taken)
    elif taken and taken.id in CHILD:
        child = CHILD[taken.id]
        if states[child] == "unknown":
            node.submit(KEYS[child], job_id=child)
        else:
            detail = dumps({"ids": [child]})
            about = (taken.id, taken.token, "parked", detail, 0, "", "", "", "", node.name, taken.runner, "", node.ttl)
            node.store.step("job_finish", *about)
            del held[process]
    elif taken:
        node.finish(taken)
        del held[process]
    for job, child in CHILD.items():
        if states[job] == "parked" and states[child] == "succeeded":
            last = Dump.of(node.store._client, node.store.prefix).records()[job]["last"]
            node.store.step("job_unpark", job, last, "succeeded", '"detail"', 0, "", "", "", "")


def _seen(node: Puppet) -> Seen:
    dump = Dump.of(node.store._client, node.store.prefix)
    records, lines = dump.records(), dump.under("line")
    fences = {job: int(records.get(job, {}).get("fence", 0)) for job in KEYS}
    ranks = {fence: rank for rank, fence in enumerate(sorted({0, *fences.values()}))}
    return {
        "state": {job: records.get(job, {}).get("state", "unknown") for job in KEYS},
        "line": {key: [job for job, _ in lines.get(key, ())] for key in "kl"},
        "fence": {job: ranks[fence] for job, fence in fences.items()},
    }


def followed(courses: list[list[Seen]], folder: Path) -> set[int]:
    """Those which Lane may take, by their places."""
    for module in HERE.glob("*.tla"):
        shutil.copy(module, folder)
    text = ",\n".join("<<" + ",\n  ".join(map(_record, course)) + ">>" for course in courses)
    (folder / "Seen.tla").write_text(f"---- MODULE Seen ----\nEXTENDS Course\nSeenOnes == <<{text}>>\n====\n")
    config = re.sub(r"(INVARIANTS|PROPERTIES|SYMMETRY) .*\n", "", WORLD.text())
    (folder / "Seen.cfg").write_text(config + "  Courses <- SeenOnes\n")
    done = tlc(folder, folder / "Seen.cfg", folder / "Seen.tla")
    assert "No error has been found" in done, done[-3000:]
    return {int(number) - 1 for number in re.findall(r'<<"followed", (\d+)>>', done)}


def _record(seen: Seen) -> str:
    state = " @@ ".join(f'{job} :> "{state}"' for job, state in seen["state"].items())
    line = " @@ ".join(f"{key} :> <<{', '.join(line)}>>" for key, line in seen["line"].items())
    fence = " @@ ".join(f"{job} :> {rank}" for job, rank in seen["fence"].items())
    return f"[state |-> ({state}), line |-> ({line}), fence |-> ({fence})]"
