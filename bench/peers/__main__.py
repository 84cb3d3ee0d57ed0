"""`python -m bench.peers [--full]`: jobs and locks beside their peers; see bench/README.md."""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.peers.contest import contest
from bench.peers.environments import KEPT, NotInstalled, interpreter
from bench.peers.field import HOLDERS, OURS, PEERS, Holder, Peer
from bench.peers.plot import svg
from bench.peers.report import Results, charts, tables
from bench.peers.turns import BODIES, Failed, Stage, turn
from bench.servers import redis_server
from coordinator.local.redis import find_server
from tests.harness.server import NoServer

SHAPES = (1_000, 20_000, 1)
LOCK_SECONDS = 2.0


def main() -> None:
    options = arguments(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results: Results = {"machine": machine(), "seconds": options.seconds, "rounds": options.rounds}
    results |= {"jobs": [], "locks": [], "not_run": []}
    peers, holders = ready(PEERS, "", options, results), ready(HOLDERS, "lock-", options, results)
    with redis_server("--appendonly", "yes") as url, tempfile.NamedTemporaryFile() as marks:
        stage = Stage(url, Path(marks.name))
        for body in BODIES if options.full else ("file",):
            for keys in SHAPES if options.full else SHAPES[:1]:
                results["jobs"].append(jobs(stage, peers, body, keys, options, results))
        results["locks"] = locks(stage, holders, options, results)
    print(f"\n{tables(results)}\n\n{written(results, options.to)}")
    sys.exit(status(results))


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all shapes and both bodies; takes 50 minutes")
    parser.add_argument("--only", type=lambda text: text.split(","), help="the names of peers, parted by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="the length of a window")
    parser.add_argument("--to", type=Path, default=KEPT, help="the folder for peers.json and peers.svg")
    return parser.parse_args(argv)


def ready(field: Iterable[Any], prefix: str, options: argparse.Namespace, results: Results) -> dict[Any, Path]:
    """Those that are wanted and could be installed, each with its interpreter."""
    found = {}
    for one in field:
        if options.only and one.name not in options.only:
            continue
        try:
            found[one] = interpreter(prefix + one.name, one.requirements)
        except NotInstalled as failed:
            leave_out(one, failed, results)
    return found


def jobs(
    stage: Stage, peers: dict[Peer, Path], body: str, keys: int, options: argparse.Namespace, results: Results
) -> Results:
    """One shape: in each round each peer has one turn. A peer that fails has no further one."""
    measured: dict[Peer, Results] = {peer: {"name": peer.name, "rates": []} for peer in peers}
    for number in range(1, options.rounds + 1):
        for peer in list(peers):
            try:
                found = turn(stage, peer, peers[peer], body, keys, options.seconds, first=number == 1)
            except (Failed, NoServer) as failed:
                leave_out(peer, failed, results)
                del peers[peer], measured[peer]
                continue
            measured[peer]["rates"].append(found.rate)
            progress(number, peer.title, f"{found.rate:,.0f} jobs/s")
            if found.effects is not None:
                measured[peer] |= {"submitted": found.submitted, "effects": found.effects}
    return {"body": body, "keys": keys, "peers": list(measured.values())}


def locks(stage: Stage, holders: dict[Holder, Path], options: argparse.Namespace, results: Results) -> list[Results]:
    measured: dict[Holder, Results] = {
        holder: {"name": holder.name, "alone": [], "held": [], "longest": []} for holder in holders
    }
    for number in range(1, options.rounds + 1):
        for holder in list(holders):
            try:
                found = contest(stage, holder, holders[holder], min(options.seconds, LOCK_SECONDS))
            except Failed as failed:
                leave_out(holder, failed, results)
                del holders[holder], measured[holder]
                continue
            for field, value in found._asdict().items():
                measured[holder][field].append(value)
            progress(number, holder.title, f"{found.alone:,.0f} us, longest wait {found.longest:,.0f} ms")
    return list(measured.values())


def leave_out(one: Peer | Holder, why: Exception, results: Results) -> None:
    results["not_run"].append({"name": one.name, "title": one.title, "reason": str(why)})
    print(f"{one.title}: not run: {why}", flush=True)


def progress(number: int, title: str, said: str) -> None:
    print(f"round {number}, {title}: {said}", flush=True)


def status(results: Results) -> int:
    """1 where ours did not run; a peer that did not is no failure."""
    return int(any(one["name"] == OURS for one in results["not_run"]))


def machine() -> Results:
    server = subprocess.run([find_server(), "--version"], capture_output=True, text=True).stdout.split(" sha=")[0]
    return {
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.release().split('.')[0]}",
        "python": platform.python_version(),
        "redis": server.strip(),
    }


def written(results: Results, folder: Path) -> str:
    """Write the JSON, with what each peer promises, and the plot; say where they are."""
    promises = {"peers": [one._asdict() for one in PEERS], "holders": [one._asdict() for one in HOLDERS]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "peers.json").write_text(json.dumps(results | promises, indent=1) + "\n")
    (folder / "peers.svg").write_text(svg(charts(results)))
    return f"written: {folder / 'peers.json'} and {folder / 'peers.svg'}"


if __name__ == "__main__":
    main()
