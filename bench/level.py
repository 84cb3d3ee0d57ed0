"""Does the memory of Redis stay level while 1,000 members are harvested once a minute each, for as long as you want?

The machine of `bench.members`, with an XML document. Succeeded jobs stay visible for `--keep` seconds rather than an
hour, so that the level is reached soon. Each half minute prints harvests a second, the memory of Redis, and its keys by
kind: jobs, outcomes of updates (`update`, kept for an hour whatever is set), all others.

`--members N`, `--seconds N`, `--keep N`. An hour: `make bench ARGS="level --seconds=3600 --keep=3600"`.
"""

import argparse
import logging
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench import amount
from bench.harvest import member
from bench.members import CHANGES, MEMBERS, begin, federation, machine, permanent, ran, spent, stay
from tasks import instants
from tasks.app import NODELIST
from tasks.documents.document import Document
from tasks.local.machine import Machine
from tasks.member_node.member import Member

EACH, START = amount((30.0, 10.0), (1.0, 0.0))
KINDS = ("job", "update")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.level")
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--seconds", type=float, default=amount(600, 1))
    parser.add_argument("--keep", type=int, default=60)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with member(1, CHANGES) as described, tempfile.TemporaryDirectory() as folder:
        listed, data = federation(Member.model_validate_json(described), given.members), Path(folder, "data")
        short = {f"COORDINATOR_KEEP_{what}": str(given.keep) for what in ("SUCCESS", "FAILURE")}
        with permanent("xml", Path(folder), data, listed) as extra, machine(data, {**extra, **short}) as here:
            begin(here, data, START)
            print("  s   harvests/s  cores   Redis MB   jobs  updates  other keys  the store lacks", flush=True)
            began = time.monotonic()
            while time.monotonic() - began < given.seconds:
                sample(here, data, began)


def sample(here: Machine, data: Path, began: float) -> None:
    since, at, before = instants.now(), time.monotonic(), sum(spent().values())
    stay(here, EACH)
    took, used = time.monotonic() - at, sum(spent().values()) - before
    store = here.coordinator.store
    memory, found = store.read("INFO", "memory")["used_memory"], kinds(here)
    lacks = len(Document(here.coordinator.store, NODELIST).behind())
    print(
        f"{time.monotonic() - began:5.0f} {ran(data, since) / took:9.1f} {used / took:8.2f} {memory / 2**20:9.1f} "
        f"{found['job']:8} {found['update']:8} {found['other']:8} {lacks:12}",
        flush=True,
    )


def kinds(here: Machine) -> Counter[str]:
    store = here.coordinator.store
    names = (name.decode().removeprefix(store.prefix) for name in store._client.scan_iter(count=1000))
    return Counter(kind if (kind := name.partition(":")[0]) in KINDS else "other" for name in names)


if __name__ == "__main__":
    main()
