"""The work on an order. Two tasks at once on one order would count its parcels twice."""

import time

from .app import app
from .ledger import note


@app.task
def pack(number: int) -> None:
    note(f"order {number}: pack begins")
    time.sleep(0.5)
    note(f"order {number}: pack ends")


@app.task
def ship(number: int) -> None:
    note(f"order {number}: ship begins")
    time.sleep(0.1)
    note(f"order {number}: ship ends")
