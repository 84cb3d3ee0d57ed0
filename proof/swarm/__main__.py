"""A process of a swarm: `python -m proof.swarm NAME COUNT` plays COUNT nodes of the laboratory's app.

The line `silence` on its standard input silences the first of them, `speak` ends that. At the end of the input all
nodes drain, and leave.
"""

import logging
import os
import sys
import threading

from proof import shop
from proof.swarm import nodes_of, queue_of
from proof.swarm.node import Maintenance, Node
from proof.witness import Witness


class _OfSlot(Witness):
    """Each slot is a process to the judges, since it does one thing after the other, and others beside it do not."""

    @property
    def process(self) -> str:
        return f"{os.getpid()}/{threading.current_thread().name}"


def main(name: str, count: int) -> None:
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s/swarm] %(message)s")
    app = shop.app
    app.loader.import_default_modules()
    app.finalize()
    app.set_default()  # for the threads that publish
    shop.witness = _OfSlot.here()
    served, maintenance = queue_of(app.conf.task_default_queue), Maintenance(app)
    nodes = [Node(app, node, served, maintenance) for node in nodes_of(name, count)]
    for node in nodes:
        node.start()
    for line in sys.stdin:
        (nodes[0].speaks.set if line == "speak\n" else nodes[0].speaks.clear)()
    for node in nodes:
        node.drain()
    for node in nodes:
        node.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
