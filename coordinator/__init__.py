"""Keyed jobs for Celery: name what a job works on, and one job at a time works on it, in order.

    app = Celery("shop", broker="redis://localhost:6379/1")
    coordinator = Coordinator(app)
    coordinator.submit("order/42", ship.s(42))

help(coordinator.NAME) describes one public name, and docs/api.md all of them.

The entry points
    Coordinator      keyed jobs for a Celery app; without an app, a client that only submits jobs
    current_job      a function: the CurrentJob of the job that the calling task runs as; None outside jobs
    wait_for         a function: what a task returns to have its job wait for an event, without a worker
    Settings         the settings of a coordinator: names, values, and where each value comes from

Options
    SubmitOptions    those of submit, name by name; SorterOptions: those of a sorter's orders
    KeyedTaskOptions the option `coordinate` of a keyed task
    CollectOptions   the option `collect`: many calls become one job; Call: one of them
    Use              what a job uses of a quota, for uses
    Backoff          growing delays between attempts, for retry_delay
    Entry            an entry of the schedule; Quartz: a schedule of seconds and years, in a zone
    Extension        what an app adds: its commands, answers, metrics and pages
    NodePlugin       a part of an app that runs beside each worker
    outbox_table     a function: SQLAlchemy's table for the jobs that transactions write

Answers
    Submission       to a submit: the job's id, the outcome, get() and result
    Job              a job's record at one moment
    CurrentJob       a task's view of its job: key, fence, attempt, check(), progress()
    Event            something outside for which jobs wait: set once, with a value
    EventRecord      an event at one moment; Events: a page of them; EventStatus: one with its EventWaiters
    Quota            a quota at one moment: its bounds, units in use, jobs that wait; Quotas: a page of them
    QuotaStatus      a quota with its QuotaUsers and the QuotaWaiters of its queue
    Lane, Node       a lane, and a node that lives, at one moment; LostNode: one that was killed
    Tenant           the jobs whose keys begin alike, counted; Tenants: the largest below a beginning
    Found            a page of jobs; Groups: their numbers, a Group for each error, task, tenant or state
    Lines            the longest lines; HeldLock: a lane that plain code holds
    Rates, Summary   the jobs of a day; all that waits, by reason
    RedisStatus      how fast Redis answers, and how full it is
    Lease            a lock that is held, with its fence
    Why, Cause       to why(): a sentence, and each cause in the way
    Finding          a fault or danger that doctor() saw
    Alert            what the signal alert_raised carries: a job failed, is held, waits …
    Grab             an instance that this process won or lost; Winner: whoever won it
    GrabRecord       an instance as Redis keeps it
    Sorter           holds orders and sorts them; SorterStatus: a sorter that holds some
    RefusedRequest   a request that an inbox refused
    Plan             what an act would do, with its Hits; DrainPlan: of a drain; Progress: of an act on many jobs
    Action           what an operator did; Author: who acts, and in which role
    EntryStatus      an entry as beats know it; EntryEvent: an instant of its history
    Backfill         past instants of an entry that run; BackfillRange: what a call of it does

Errors, each of them a CoordinatorError
    at a submit      InvalidJob, LaneFull, DuplicateOrder, ShuttingDown
    Redis            StoreUnavailable, StoreRefused
    unknown names    UnknownJob, UnknownEntry, UnknownQuota
    locks            Locked, LeaseLost, WouldDeadlock
    waiting          WaitTimeout, JobFailed
    causes, events   CauseFailed, EventTimeout, EventTaken
    raised by tasks  NoRetry, Conflict, CoolDown; by the handler of an inbox: Refused
    others           Forbidden, SettingsError, TimedOut
"""

import sys
from importlib import import_module
from pkgutil import get_data

# `__init__.pyi`, the stub for type checkers, imports each public name on a line of its own: `from MODULE import NAME as
# NAME`. The table of names and their modules is read from the stub, so that no second list exists.
_STUB = (get_data(__name__, "__init__.pyi") or b"").decode()
_HOME_OF = {line.split()[-1]: line.split()[1] for line in _STUB.splitlines()}


# No `__all__`: with one, help(coordinator) would print the full help of each class, thousands of lines.
def __getattr__(name: str) -> object:
    """Import the public name `name` at its first use, so that a client imports only the modules that its calls need."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Coordinator" and "flower.app" in sys.modules:
        import_module("coordinator.ops.in_flower").install()
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
