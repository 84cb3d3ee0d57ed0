"""Resilience: three equal servers run the same timer, a slot each second, and one of them is killed at work.

Each server competes for each slot. The winner works for 1.5 s, so one server alone lags, two alternate, and of three
one is always idle. A server watches the slots that it lost until they end. It takes an abandoned one over, so each
slot is done once, also that of the killed server. Every server shows who won each slot.

A server that is told to end (SIGTERM) ends its work in hand first. So servers may be restarted one after the other.

Run it: python examples/resilience.py [SERVERS]
"""

import heapq
import signal
import subprocess
import sys
import threading
import time

from onemachine import Machine, say

from coordinator import Coordinator, Grab

SLOTS, WORK, TTL = 8, 1.5, 1.0


class Server:
    """Slots are numbered by the seconds since the epoch. `due`: those to compete for, the earliest first.

    A server that starts late begins with the first slot, too: slots that nobody did run in order.
    """

    def __init__(self, name: str, first: int) -> None:
        self.name = name
        self.coordinator = Coordinator()
        self.due = list(range(first, first + SLOTS))
        self.more = threading.Condition()
        self.watched = 0
        self.ending = False
        signal.signal(signal.SIGTERM, self.end)

    def end(self, *_: object) -> None:
        with self.more:
            self.ending = True
            self.more.notify()

    def run(self) -> None:
        while (slot := self.next_slot()) is not None:
            grab = self.coordinator.grab("timer", slot, self.name, ttl=TTL, on_losing="incomplete")
            if grab.won:
                say(f"{self.name} works on slot {slot % 1000}, attempt {grab.attempt}")
                time.sleep(WORK)
                grab.complete()
                continue
            assert grab.winner
            say(f"{self.name} lost slot {slot % 1000} to {grab.winner.identifier}")
            if grab.state == "incomplete":
                with self.more:
                    self.watched += 1
                threading.Thread(target=self.watch, args=[slot, grab], daemon=True).start()
        if not self.ending:
            self.show()

    def show(self) -> None:
        for one in sorted(self.coordinator.grabs("timer"), key=lambda one: one.instance):
            assert one.winner
            say(f"{self.name} sees: slot {int(one.instance) % 1000}: {one.state}, {one.winner.identifier}")

    def next_slot(self) -> int | None:
        """The earliest due slot; None once all have ended, or the server has to stop."""
        with self.more:
            while not self.ending:
                if self.due and self.due[0] <= time.time():
                    return heapq.heappop(self.due)
                if not self.due and not self.watched:
                    return None
                self.more.wait(max(0.0, self.due[0] - time.time()) if self.due else None)
        return None

    def watch(self, slot: int, grab: Grab) -> None:
        """Compete again for a slot whose winner has died."""
        end = grab.wait()
        with self.more:
            self.watched -= 1
            if end != "complete":
                heapq.heappush(self.due, slot)
            self.more.notify()


def start(name: str, first: int) -> subprocess.Popen[str]:
    """Report that the server is up, and read the first slot."""
    server = subprocess.Popen([sys.executable, __file__, name], stdin=subprocess.PIPE, text=True)
    assert server.stdin
    server.stdin.write(f"{first}\n")
    server.stdin.flush()
    return server


def winners(coordinator: Coordinator) -> list[str]:
    """The working servers."""
    return [one.winner.identifier for one in coordinator.grabs("timer") if one.state == "running" and one.winner]


def main(count: int) -> None:
    with Machine() as machine:
        coordinator, first = Coordinator(), int(time.time()) + 3
        servers = {name: start(name, first) for name in [f"server {number + 1}" for number in range(count)]}
        if count > 1:
            while time.time() < first + 2.5 or not (at_work := winners(coordinator)):
                time.sleep(0.05)
            killed = servers.pop(at_work[0])  # the one that began last is in the middle of its work
            killed.kill()
            killed.wait()
            machine.say(f"{at_work[0]} is killed")
        for server in servers.values():
            server.wait()
        done = coordinator.grabs("timer")
        machine.say(f"{len(done)} slots, {sum(one.state == 'complete' for one in done)} complete")


if __name__ == "__main__":
    given = sys.argv[1] if sys.argv[1:] else "3"
    if given.isdigit():
        main(int(given))
    else:
        say(f"{given} is up")
        Server(given, int(input())).run()
