"""One peer, run by its own interpreter: `python -m bench.peers.adapter NAME prepare|worker|client`.

`worker` becomes the peer's worker. `client` says that it is ready, reads one line of JSON with the number of keys and
the largest backlog, and puts jobs in line as fast as it can. It pauses while more than that many jobs have no effect
yet. Once its input ends it says how many it has put in line.
"""

import importlib
import json
import os
import select
import sys
import time
from pathlib import Path
from types import ModuleType

from bench.peers import body


def main() -> None:
    name, role = sys.argv[1:]
    adapter = importlib.import_module(f"bench.peers.adapters.{name}")
    if role == "client":
        client(adapter)
    elif role == "worker":
        program, *arguments = adapter.WORKER
        path = Path(sys.executable).parent / program
        os.execve(path, [str(path), *arguments], os.environ | getattr(adapter, "ENVIRON", {}))
    else:
        adapter.prepare()


def client(adapter: ModuleType) -> None:
    say(ready=True)
    wanted = json.loads(sys.stdin.readline())
    sent = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        if sent + adapter.PORTION - body.done() > wanted["backlog"]:
            time.sleep(0.002)
            continue
        adapter.send([(number % wanted["keys"], number) for number in range(sent, sent + adapter.PORTION)])
        sent += adapter.PORTION
    say(submitted=sent)


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
