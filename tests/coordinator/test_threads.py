"""A thread that sends, and a process that is forked beside it."""

import os

from tests.harness.warm import ROOT, python

FORKS = """
import os, threading
from coordinator.threads import SendingThread

class Sender(SendingThread):
    def send(self, items):
        if items == ["first"]:
            begun.set()
            hung.wait()
        os.write(1, f"{'parent' if os.getpid() == parent else 'child'} {items}\\n".encode())

parent, begun, hung = os.getpid(), threading.Event(), threading.Event()
sender = Sender("sender", 0.0, 10)
sender.put("first")
begun.wait()
sender.put("second")
if not os.fork():
    sender.put("the child's")
    sender.flush(10)
    os._exit(0)
os.wait()
hung.set()
sender.flush(10)
"""


def test_a_forked_process_sends_nothing_of_what_waits_in_its_parent() -> None:
    told = python(["-c", FORKS], ROOT, os.environ).stdout
    assert told.splitlines() == ['child ["the child\'s"]', "parent ['first']", "parent ['second']"]
