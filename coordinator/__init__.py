"""Keyed jobs for Celery: name what a job works on, and one job at a time works on it, in order.

    app = Celery("shop", broker="redis://localhost:6379/1")
    coordinator = Coordinator(app)
    coordinator.submit("order/42", ship.s(42))

help(coordinator.NAME) tells more of each name, and docs/api.md of all.

The door
    Coordinator      keyed jobs for a Celery app; without an app, a plain client of a Redis
    current_job      the job that the calling task is: its CurrentJob, or None
    Settings         the settings of a coordinator: names, values, sources

Options
    SubmitOptions    those of submit, name by name; SorterOptions: those of a sorter's orders
    KeyedTaskOptions the option `coordinate` of a keyed task
    Backoff          growing delays between attempts, for retry_delay
    Entry            an entry of the schedule; Quartz: a schedule of seconds and years, in a zone
    Extension        what an app adds: its commands, answers, metrics and pages
    WardenPlugin     a part of an app that runs beside each worker

Answers
    Submission       to a submit: the job's id, the outcome, get() and result
    Job              a job's record at one moment
    CurrentJob       a task's view of its job: key, fence, attempt, check(), progress()
    Lane, Node       a lane, and a node that lives, at one moment
    Lease            a lock that is held, with its fence
    Why, Cause       to why(): a sentence, and each cause down to the roots
    Finding          a fault or danger that doctor() saw
    Trouble          what the signal trouble_seen tells of: a job that failed, is held, waits …
    Grab             an instance that this process won or lost; Winner: whoever won it
    GrabRecord       an instance as Redis keeps it
    Sorter           holds orders and sorts them; SorterStatus: a sorter that holds some
    RefusedRequest   a request that an inbox refused
    Plan             what an act would do, with its Hits; Progress: of an act on many jobs
    Action           what an operator did; Author: who acts, and in which role
    EntryStatus      an entry as beats know it; EntryEvent: an instant of its history

Errors, each of them a CoordinatorError
    at a submit      InvalidJob, LaneFull, DuplicateOrder, ShuttingDown
    Redis            StoreUnavailable, StoreRefused
    unknown names    UnknownJob, UnknownEntry
    locks            Locked, LeaseLost, WouldDeadlock
    waiting          WaitTimeout, JobFailed
    raised by tasks  NoRetry, Conflict; by the handler of an inbox: Refused
    others           Forbidden, SettingsError, TimedOut
"""

import sys
from importlib import import_module
from pkgutil import get_data

# The stub lists the public names for type checkers, one a line; nothing else repeats them.
_STUB = (get_data(__name__, "__init__.pyi") or b"").decode()
_HOME_OF = {line.split()[-1]: line.split()[1] for line in _STUB.splitlines()}


# No `__all__`: with one, help(coordinator) would tell all of each class, on thousands of lines.
def __getattr__(name: str) -> object:
    """Each name is loaded at its first use, so that a client loads no more than its calls need."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Coordinator" and "flower.app" in sys.modules:
        import_module("coordinator.in_flower").install()
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
