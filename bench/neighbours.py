"""Do bad members delay the others?

A thousand members are due at the same second of each minute, on two nodes of four slots. Fifty of them are bad: 20
accept connections and never answer, 15 close each connection, and 15 come and go.

The well members are quiet: to note a new date takes most of a second in an XML document of a thousand members, and that
is no question of neighbours. For each minute: how many of them had their run before the next minute began, and how late
was it?

Arguments: minutes, well members, slots of each node.
"""

import socket
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from sqlalchemy import select

from bench import amount
from examples.demo.member_server import MemberServer, Request
from tasks.catalog.schema import members as rows
from tasks.member_node.member import Member, MemberSchedule
from tests.fleet.tasks.service import Service, beat
from tests.harness.redis import RedisServer

MINUTE, SECOND = amount((60, "0"), (5, "0/5"))
EACH_MINUTE = MemberSchedule(sec=SECOND, min="*", hour="*", mday="*", mon="*", wday="?", year="*")
HANG, DROP, FLAP = amount((20, 15, 15), (1, 1, 1))
UP, DOWN = 10.0, 3.0
NODES = amount(("one", "two"), ("one",))


class Named:
    """A member at the server of another one."""

    def __init__(self, member: Member, name: str, **changed: str) -> None:
        self.member = member.model_copy(update={"identifier": f"urn:node:{name}", "schedule": EACH_MINUTE, **changed})


def main(minutes: int = amount(5, 1), well: int = amount(950, 2), slots: int = amount(4, 2)) -> None:
    with ExitStack() as stack:
        members = bad(stack)
        server = stack.enter_context(MemberServer())  # quiet: nothing changes there
        members += [Named(server.member, f"mnWell{number}") for number in range(well)]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(RedisServer(folder / "redis"))
        service = stack.enter_context(Service(redis, folder, members))  # type: ignore[arg-type]
        for name in NODES:
            service.node(name, slots)
        first = time.time() // MINUTE * MINUTE + MINUTE
        stack.enter_context(beat(service, "beat"))
        runs = watch(service, first + MINUTE * (minutes + 1))
        print(f"{len(members) - well} bad members and {well} well ones, {len(NODES)} nodes of {slots} slots")
        for minute in range(minutes):
            tell(runs, first + MINUTE * minute, well)


def bad(stack: ExitStack) -> list[Named]:
    def drop(request: Request) -> None:
        raise ConnectionAbortedError

    def flap(request: Request) -> None:
        if time.monotonic() % (UP + DOWN) > UP:
            raise ConnectionAbortedError

    dropping, flapping = (stack.enter_context(MemberServer(hook=hook)) for hook in (drop, flap))
    flapping.fill(100)
    found = [Named(dropping.member, f"mnDrops{number}") for number in range(DROP)]
    found += [Named(flapping.member, f"mnFlaps{number}") for number in range(FLAP)]
    for number in range(HANG):
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mn"
        found.append(Named(dropping.member, f"mnHangs{number}", base_url=url))
    return found


def watch(service: Service, until: float) -> dict[str, set[float]]:
    """The ends of the runs of each good member, as seen in the catalog."""
    found: dict[str, set[float]] = {}
    while time.time() < until:
        with service.catalog.engine.connect() as connection:
            for name, ran in connection.execute(select(rows.c.member, rows.c.ran_at)):
                if "Well" in name and isinstance(ran, datetime):
                    found.setdefault(name, set()).add(ran.timestamp())
        time.sleep(1)
    return found


def tell(runs: dict[str, set[float]], tick: float, well: int) -> None:
    late = [min((ran - tick for ran in found if ran >= tick), default=999.0) for found in runs.values()] or [999.0]
    kept, minute = sum(one < MINUTE for one in late), time.strftime("%H:%M", time.gmtime(tick))
    print(f"{minute}  {kept} of {well} in their minute   p50 {statistics.median(late):.1f} s, last {max(late):.1f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
