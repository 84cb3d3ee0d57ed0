"""Grabs: two equal servers try to do the same piece of work. One does it, the other one learns who did.

Each server is a process of its own. In the second round the same work is there again: nobody does it twice, and both
say who did it. In the third round the winner is killed, and the other server takes over.

Run it: python examples/grab.py
"""

import subprocess
import sys
import time

from onemachine import Machine, say

from coordinator import Coordinator

SERVERS = ("server 1", "server 2")


def serve(name: str, number: int, seconds: float) -> None:
    with Coordinator().grab("report", number, name, ttl=1) as grab:
        if grab.won:
            say(f"{name} works on report {number}, attempt {grab.attempt}")
            time.sleep(seconds)
            grab.complete(f"made by {name}")
    assert grab.winner
    say(f"{name}: report {number} is {grab.state}, {grab.result}")


def start(name: str, number: int, seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, name, str(number), str(seconds)])


def main() -> None:
    with Machine() as machine:
        coordinator = Coordinator()
        for number in (1, 1):
            for server in [start(name, number, 0.2) for name in SERVERS]:
                server.wait()
        first = start("server 1", 2, 60)
        while not coordinator.grabs("report") or coordinator.grabs("report")[0].instance != "2":
            time.sleep(0.05)
        second = start("server 2", 2, 0.2)
        time.sleep(0.5)
        first.kill()
        first.wait()
        machine.say("server 1 is killed")
        second.wait()
        for one in coordinator.grabs("report"):
            assert one.winner
            machine.say(f"report {one.instance}: {one.state}, {one.winner.identifier}, attempt {one.attempt}")


if __name__ == "__main__":
    if sys.argv[1:]:
        serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    else:
        main()
