"""Declares the steps, the functions of the library in Redis, for their callers in Python. The Lua code is in
`functions/steps`, in a file for each part; `step.py` explains declarations.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from coordinator.core.store.step import Reply, step
from coordinator.core.store.wire import Arg

# Clocks and fences of the installation.


@step
def clock_read() -> list[int]:
    """Read the clocks with which stored times are compared. Answers three times in ms, as ClockReading has them: the
    installation's clock, the server's, the clock of leases. Asked again, it answers the times then.
    """


@step
def fence_next() -> int:
    """Create a fence, greater than all before, for a writer that holds no lane. Asked again, it creates another one."""


# Jobs: clients and operators submit, cancel, retry, move and count jobs; nodes send the results of ended jobs.


@step
def job_submit(
    job_id: str, keys: str, when_busy: str, priority: int, not_before: Arg, room: Arg, *fields: Arg
) -> Reply:  # fmt: skip
    """Write a new job, put it into the lines of its lanes, and make it ready if it is first in all of them.

    `keys`: joined by newlines. `when_busy`: queue | skip | defer | replace, or "skip 1 3": skip if the first or third
    lane is busy; or "collect …", the terms of a collector (functions/rules/collect.lua), where the field `calls` has
    the arguments of this call. `not_before`: ms since the epoch, "+<ms>" for so long after now, 0 for now. `room`:
    refuse the job if so many jobs wait in one of its lanes, "" for no bound. `fields`: names and values of the record,
    in turns.

    Answers [outcome, position, id, fence or ""]. The outcome is started, queued, skipped, coalesced (`id` is then that
    of the other job), unknown (nothing was written; `id`: of a cause that nobody knows), full (nothing was written;
    position: how many wait; `id`: the key of the lane), or other (nothing was written: the lane collects calls that do
    not go with this one in the job `id`; in place of the fence, its task, how, keys and class, with \\0 between). With
    the field `grab`, two more: the instance as in grab_look, and the id of its winner. The outcome is lost if another
    process or job works on the instance or has completed it; then nothing was written. Asked again, the outcome is
    duplicate, with the position, id and fence of the job; the fence is "" once the job has succeeded.
    """


@step
def job_cancel(job_id: str, act: str, unbegun: bool = False) -> str:
    """Cancel a job that is not over. A running job is only marked: the supervisor of its node then stops its process.

    `unbegun`: cancel only a job that has not begun, or waits for a retry. Answers the state of the job after the call;
    "" if there is no such job. Asked again, it answers the same.
    """


@step
def jobs_named(ttl: int, *ids: str) -> list[str]:
    """Tell which of these revoked ids belong to jobs, or to calls that coalesced or were skipped. The other ids are
    noted as revoked: a job that is submitted under one of them later, such as a step of a chain, ends as cancelled.

    `ttl`: ms for which the other ids are noted. Answers the ids that belong to jobs. Asked again, it answers the same.
    """


@step
def job_retry(job_id: str, act: str, to: str) -> str:
    """Retry a job now: one that is held, one that waits for its next attempt, or one that has ended without success.

    `to`: where an ended job enters its lines again: at the back or front of the jobs of its priority. Answers the state
    of the job after the call, "" if there is no such job. Does nothing if another process or job has the instance that
    the job grabbed. Asked again, it answers the state of the job then.
    """


@step
def job_move(job_id: str, priority: int | None, to: str, act: str, asked: str) -> tuple[str, bool]:
    """Move a job that has not started to another place in all its lines.

    `priority`: the new one, None to keep it. `to`: the back or front of the jobs of this priority. `asked`: a random
    token of the call, "" for none. Answers the state of the job, "" if there is no such job, and False if the job was
    not moved, since it has started or is in no line. Asked again with the token of the job's last move, it does not
    move the job once more.
    """


@step
def job_flush(job_id: str, act: str) -> str:
    """Put a job that collects calls into its lines now; it still collects until it is claimed.

    Answers the state of the job after the call, "" if there is no such job. Asked again, it changes nothing, and
    answers the state of the job then.
    """


@step
def job_await(other: str, *holders: str) -> str:
    """Note that the code of a running job, or code that holds locks, waits for another job, or no longer waits.

    `other`: the id of the other job, "" for none. `holders`: id and token, in turns, of the job and the locks that the
    code holds while it waits. Answers ""; or, if the code would wait for itself, a text that names the jobs and locks
    in the ring: then nothing is noted. Asked again, it answers the same.
    """


@step
def counts_read() -> Reply:
    """Count the jobs in each state, and read how many have ended with each outcome, at one moment. Answers names and
    numbers in turns; the number `created` is the sum of all states and outcomes.
    """


@step
def ready_read(after: bytes, most: int) -> Reply:
    """Count the ready jobs of each task and routing class, in pages.

    `after`: the last place in the answer for the page before, b"" for the first page. `most`: pairs of task and class
    in a page. Answers [task, class, number of jobs, place] for each pair.
    """


@step
def jobs_read(fields: str, *ids: str) -> Reply:
    """Read fields of the records of jobs.

    `fields`: names, joined by newlines. Answers a list with the values of the fields for each id; an empty list if
    there is no record under the id.
    """


@step
def jobs_likely(wanted: str, *ids: str) -> list[int]:
    """Find those of the given jobs whose records may match a search.

    `wanted`: JSON {names, needles, states?}. names: names of fields, `state` first. needles: [indexes into names, text]
    for each text in lower case that one of these fields must contain. states: an object whose names are the states that
    match; without it, all do. Answers the indexes of the matching jobs among `ids`, from 0.
    """


@step
def lines_likely(wanted: str, most: int, score: str, id: str, *keys: str) -> Reply:
    """Find jobs whose records may match a search, in the lines of the given keys, one line after the other.

    `wanted`: as in jobs_likely, "" for all jobs. `most`: how many entries of lines to read at most. `score`, `id`: read
    the first line from behind this entry; "-inf" and "" for its beginning.

    Answers [lines read to their end, jobs looked at, [score, id] of the last entry if the call stopped within a line,
    and then, for each line with matching jobs, [key, [[id, score] of each]]].
    """


@step
def notices_take(app: str, most: int) -> Reply:
    """Take ended jobs of an app whose results and link callbacks were not yet sent, `most` jobs at most.

    Answers [id, tries] for each; tries: how often the job was taken, with this time. Asked again, it answers other
    jobs: each job is offered again after 30 s, then after twice as long, up to 10 min, until notices_sent names it.
    Each offer keeps the record of the job for another hour.
    """


@step
def notices_sent(app: str, *ids: str) -> int:
    """Note that results and link callbacks of these jobs were sent. Answers how many of the jobs were waiting for that.
    Asked again, it answers 0.
    """


# Runners claim jobs and report how attempts ended; supervisors renew the leases of jobs, and report lost processes.


@step
def runner_take(node: str, incarnation: str, runner: str, wake: str, token: str, ttl: int) -> Reply:
    """Acknowledge a wake-up, and claim the first ready job for the runner that the wake-up started. A wake-up that was
    acknowledged before, or is no longer valid, gets no job.

    `incarnation`: the id of this run of the worker; if another run of the node is registered, nothing happens. `wake`:
    the id of the wake-up. `token`: for the claim. `ttl`: ms of the lease. Answers the job (rules/claim.lua) or None.
    Asked again with the same token, it answers the same job.
    """


@step
def job_finish(
    id: str, token: str, kind: str, detail: str, delay: int, most: int | None, next_class: str, next_task: str,
    next_limit: Arg, node: str, runner: str, next_token: str, ttl: int,
) -> Reply:  # fmt: skip
    """Record how an attempt ended, take the job out of its lines if it is over, make the next jobs ready, and claim the
    next ready job for the same runner.

    `kind`: succeeded | ignored | failed (no further attempt) | raised (next attempt after `delay` ms, if attempts are
    left) | conflict | parked | step | replaced. `detail`: JSON of the result, error, handles or steps. `most`: for
    raised, the bound on attempts, None for the job's own. `next_class`, `next_task`, `next_limit`: for step and
    replaced, the routing class, task and time limit (ms) of the next step. `next_token`, `ttl`: of the next claim; ""
    to claim no further job.

    Answers [verdict, state of the job, next job or None]. The verdict is accepted; shared (accepted, and calls that
    were skipped or coalesced wait for the end of this job); lost or condemned (the outcome was refused, since the
    attempt had lost the job); or deadlock (the job would wait for itself: nothing was done, and a text that names the
    ring is in place of the state). Asked again, it answers the same.
    """


@step
def job_lose(id: str, token: str, how: str, detail: str, delay: int) -> str:
    """End the attempt at a job whose process is gone or was stopped, so that the job is retried or ends.

    `token`: of the attempt. `how`: lost | stopped | handed (handed over by a node that ends) | timed_out. `detail`:
    JSON of the error. `delay`: ms until the next attempt after timed_out. Answers the state of the job, or "" if the
    token is not the current one: then nothing was done. Asked again, it answers "".
    """


@step
def job_progress(id: str, token: str, progress: str) -> bool:
    """Store the progress of a running job, a text `done/total`. Answers False if `token` is not the job's current
    token: then nothing was written. Asked again, it answers the same.
    """


@step
def lease_renew(ttl: int, *pairs: str) -> Reply:
    """Renew the leases of jobs or locks whose processes are alive.

    `ttl`: ms. `pairs`: id and token of each, in turns. Answers, for each, its token if the lease was renewed; b"" if
    the job or lock has another token or is over. Asked again, it answers the same.
    """


@step
def runner_condemn(node: str, runner: str, token: str, id: str) -> bool:
    """Condemn an attempt before its process is stopped: its outcome is refused, and its runner gets no further job, so
    that the stop hits no other job. The job itself may have been released, and may run elsewhere. Answers False if the
    runner has gone on to another claim. Asked again, it answers the same.
    """


@step
def work_drop(node: str, runner: str, token: str) -> bool:
    """Remove the entry of a runner whose process is gone, which takes up a slot of the node. Answers False if the entry
    does not exist, or has another token. Asked again, it answers False.
    """


# Parked jobs wait for their sub-results, which the maintenance process of their app watches.


@step
def child_began(parent: str, child: str, fence: int, node: str, incarnation: str) -> int:
    """Note that a worker begins to run a sub-task of a job. The message of the sub-task may come late or twice.

    `parent`, `child`: ids of job and sub-task. `fence`: of the attempt that published the sub-task. Answers 1; 0 if the
    job is over (nothing was noted); -1 if that attempt has ended without this sub-task, which must not run. Asked
    again, it answers the same.
    """


@step
def children_over(parent: str, *children: str) -> int:
    """Note that an attempt has ended without waiting for these sub-tasks. Those that have begun must not begin again.
    Asked again, it changes nothing.
    """


@step
def child_ended(parent: str, child: str) -> bool:
    """Note that a sub-task of a job has ended; if the job is parked, the maintenance process of its app looks at its
    sub-results at once. Answers True if the job is parked. Asked again, it answers the same.
    """


@step
def children_lost(parent: str, *children: str) -> list[str]:
    """Find those of these sub-tasks whose worker is gone: its node was declared dead or has left, or another worker has
    its name. Answers their ids. Asked again, it answers the same.
    """


@step
def parked_take(app: str, pause: int) -> Reply:
    """Take the parked jobs of an app whose sub-results are to be read now.

    `pause`: ms until a job is taken again, unless one of its sub-results ends before. Answers [id, token of the attempt
    that parked, handles of the sub-results, reason] for each job. Reasons: 0: read the sub-results; 1: the time limit
    of the attempt is over; 2: the job no longer waits for these sub-results. Asked again, it answers each job once in
    `pause`.
    """


@step
def job_unpark(
    id: str, last: str, kind: str, detail: str, delay: int, most: int | None, next_class: str, next_task: str,
    next_limit: Arg,
) -> str:  # fmt: skip
    """Record the outcome of a parked job, once its sub-results have ended or its time limit is over.

    `last`: the token of the attempt that parked. `kind` to `next_limit`: as in job_finish; a further kind is lost: a
    sub-result was lost with its node, which counts as a loss of the job. Answers the state of the job, or "" if the job
    is no longer parked by that attempt: then nothing was done. Asked again, it answers "".
    """


# Locks: a process holds a lane in plain code, without a job.


@step
def lock_take(
    id: str, key: str, when_busy: str, token: str, ttl: int, lifetime: int, uses: str, *holders: str
) -> Reply:  # fmt: skip
    """Take a lock in plain code. A free lane is taken at once, with few commands; else it waits like a submit.

    key: "" = no lane, only quotas; when_busy: queue | skip; ttl, lifetime: ms; uses: the record's field, "" = none;
    holders: id and token, in turns, of the job and the locks that the caller's code holds meanwhile
    As job_submit; deadlock: it would wait for itself, the ring is in place of the id, nothing was written. Asked again:
    duplicate, with the fence once it is granted.
    """


@step
def lock_wait(id: str) -> tuple[str, str]:
    """Ask whether a waiting lock has got its lane. If so, its lease begins anew, with the full ttl. Answers the state
    of the lock, "" if it does not exist, and its fence or "". The state deadlock means that the lock would wait for
    itself, and was removed: a text that names the ring is in place of the fence. Asked again, it answers the same.
    """


@step
def lock_release(id: str, token: str) -> str:
    """Release a lock, or take a waiting one out of the line; the next job or lock in the line follows. Answers
    released, or lost if the lock was lost before. Asked again, it answers released for as long as Redis remembers the
    lock.
    """


# Grabs: one of many processes works on an instance of a key.


@step
def grab_take(lane: str, id: str, token: str, ttl: int, lifetime: int, keep: int, attempts: int, about: str) -> Reply:
    """Grab an instance that is free, or whose work has failed or was abandoned.

    `lane`: of the instance. `ttl`: ms of the lease; `lifetime`: ms after which the grab expires even if it is renewed;
    `keep`: ms for which the record of the instance is kept. `attempts`: after so many failures, the instance cannot be
    grabbed again. `about`: JSON that describes the calling process.

    Answers [won | running | complete | failed | busy, fence, attempt, about, started, ended, value, earlier], of the
    last winner. busy: the lane is paused, or held without a grab. earlier: a line of JSON for each earlier winner.
    Asked again, it answers the same.
    """


@step
def grab_end(lane: str, id: str, token: str, state: str, keep: int, value: str) -> str:
    """Record that the winner of an instance has completed the work or failed, and notify the processes that wait.

    `state`: complete | failed. `keep`: ms for which the record is kept. `value`: JSON of the result, or of the reason
    of the failure. Answers ended; or lost if another process has taken over the instance, or may do so. Asked again, it
    answers the same.
    """


@step
def grab_release(lane: str, attempt: int | None, act: str) -> str:
    """Take an instance from its winner for an operator, so that it can be grabbed again; also after its last failure. A
    job that is the winner is cancelled; a process that is the winner loses its lease at once.

    `attempt`: take it only from the winner with this number, None for any winner. Answers JSON that describes the
    winner; "" if that winner neither works on the instance nor has failed. Asked again with an attempt, it answers "";
    without one, it takes the instance from the next winner.
    """


@step
def grab_look(lane: str) -> Reply:
    """Read the state of an instance. Answers ["" | running | complete | failed | abandoned, fence, attempt, about,
    started, ended, value, earlier] of the last winner, as in grab_take; the state is "" if there was no winner. Asked
    again, it answers the same.
    """


# Lanes: operators pause and resume lanes, release them from their holders, and count them by their keys.


@step
def lane_pause(key: str, till: str, act: str) -> bool:
    """Let no further job of this lane start; started jobs go on.

    till: when the pause ends by itself, in ms since the epoch, or "+<ms>" after the step; "" = never
    False: it was paused already. Asked again: False.
    """


@step
def lane_resume(key: str, act: str) -> bool:
    """Resume a paused lane: its next job may start. Answers False if the lane was not paused. Asked again, it answers
    False.
    """


@step
def lane_release(key: str, act: str, holder: str) -> str:
    """Take a lane from its holder for an operator: the next job may start, and writes with the fence of the former
    holder are refused.

    `holder`: take the lane only from this job or lock; "" for the one that started first. Answers the id of the former
    holder, "" if there was none. Asked again with a holder, it answers "".
    """


@step
def lanes_grouped(prefix: str, after: bytes, most: int, named: int) -> Reply:
    """Count the lanes below a prefix of keys by the next segment of their keys, in order.

    `after`: the place of an earlier answer, b"" for the first. `most`: about so many keys are read, but of a segment
    with many lanes only the first. `named`: name only so many of the groups that have one lane. Answers [place, number
    of groups of one lane that are not named, [group and number of lanes of each other one, in turns]]. A group is the
    beginning of its keys, up to and with the slash behind the segment; or the key of one lane that has no such slash.
    The place is b"" after the last one.
    """


@step
def lines_grouped(kind: str, cursor: bytes, prefix: str, least: int) -> Reply:
    """Count the jobs that make lines longer or shorter than one, in a portion of the lanes, by the groups of
    lanes_grouped.

    `kind`: contended, for lanes in which more than one job stands; or paused: only those without jobs differ there.
    `cursor`: of the answer before, b"0" first; after the last portion, it is b"0" again. `least`: do not name a single
    lane unless it has more than that beyond one. Answers [cursor, jobs beyond one of the lanes that are not named,
    [each group, the jobs beyond one in its lanes, and the number of these lanes, in turns]].
    """


# Quotas: code and operators declare them, cool them down, and look at them.


@step
def quota_declare(
    name: str, prefix: bool, limit: int | None, count: int | None, period: int | None, burst: int | None, act: str
) -> bool:  # fmt: skip
    """Declare a quota, or the default of all names that begin with a prefix. What runs goes on; what may start now
    does.

    limit: units that may be in use at once, None = any number; count, period, burst: at most `count` units start in
    `period` ms, and `burst` more at once; None = at any rate
    False: it was declared so before. Asked again: False.
    """


@step
def quota_drop(name: str, prefix: bool, act: str) -> bool:
    """Forget the declaration of a quota, or a default. What runs goes on. What waits goes by the default that fits
    then; without one, nothing bounds it. False: there was none. Asked again: False.
    """


@step
def quota_cool(name: str, till: str, act: str) -> bool:
    """Let nothing that uses this quota start until then, or until the later instant that it has already.

    till: ms since the epoch, or "+<ms>" after the step; "" = it may start now
    False: it was so before. Asked again with an instant: False.
    """


@step
def quotas_read(*names: str) -> Reply:
    """Read quotas.

    For each [limit, count, period, burst, act of the declaration, prefix of its default or none, units in use, users,
    jobs that wait, ms until its rate lets the next one start, ms of its cool-down that are left, act of that]; "" =
    none. Asked again: as they are then.
    """


@step
def quota_queue(name: str, most: int) -> Reply:
    """Read the first jobs that wait for a quota, in order: id and place of each. Asked again: as they are then."""


@step
def quota_place(name: str, id: str) -> Reply:
    """Read how a job waits for a quota. Asked again: as it is then.

    How many jobs stand before it in the queue; the id of the one behind which it waits, "" = none; and the ids of some
    jobs of its task and class that are ready and would use the quota.
    """


@step
def weight_set(group: str, weight: str, act: str) -> str:
    """Set the weight of a group: its share of slot seconds, beside groups of weight 1.

    weight: a number above 0; "1" = as usual
    The weight before. Asked again: the weight.
    """


# Nodes: their supervisors register them, send heartbeats, and remove them.


@step
def node_register(node: str, incarnation: str, ttl: int, about: str, serves: str, tasks: str) -> str:
    """Register a node, with the apps, queues and labels that it serves; ready jobs that the node can run wake it.

    `incarnation`: the id of this run of its worker. `ttl`: ms without a heartbeat after which the node counts as dead.
    `about`: JSON object with fields of node:<name>, among them app, capacity, ordinary, load. `serves`: JSON list of
    "app …", "queue …" and "label …". `tasks`: JSON list of the names of its tasks. Answers registered; or taken if
    another living worker has this name. Asked again, it answers the same.
    """


@step
def node_beat(node: str, incarnation: str, ttl: int, times: str, measures: str, *fields: Arg) -> Reply:
    """Record a heartbeat of a node and its load. Answers its overdue wake-ups, and whether it is to do maintenance.

    `ttl`: as in node_register. `times`: JSON {task: [runs, median in s]} of the node's jobs, "" if unchanged.
    `measures`: JSON {of, add}, "" for none: add the numbers in `add` to the hash `measures`, once for each name `of`.
    `fields`: names and values of the fields of node:<name> that have changed (load braked ordinary capacity ending).

    Answers [alive or unknown, overdue wake-ups, draining, due, busy, swept, now]. unknown: the node was declared dead,
    and must register again. draining: ms since which the node has got no new jobs, -1 if it is not drained. due: 1 if
    it is to run maintenance. busy: how many of its runners have a job. swept: ms since the last sweep. now: the
    installation's clock. Asked again, the same wake-ups are no longer overdue.
    """


@step
def node_drain(node: str, on: bool, act: str) -> bool:
    """Drain a node, also a later worker of the same name: it gets no new jobs until that is undone.

    `on`: False to undo it; then ready jobs that the node can run wake it. Answers False if nothing changed. Asked
    again, it answers False.
    """


@step
def node_leave(node: str, incarnation: str, lost: str) -> bool:
    """Remove a node whose worker has ended, with its wake-ups.

    `lost`: JSON list of the ids of the jobs that a killed worker had; "" if the worker ended in order, after it handed
    back its jobs. Answers False if no node, or another worker, has this name. Asked again, it answers False.
    """


# The sweep does what is due by the clock, such as retries.


@step
def sweep(interval: int, gap: int, deadline: int | None = None) -> Reply:
    """Do what is due by the clock: end lapsed leases, start scheduled jobs and retries, expire jobs, break rings of
    waiting jobs, remove dead nodes, and wake nodes that have room for ready jobs.

    `interval`: ms; does nothing if the last sweep was less than so long ago. `gap`: ms; leases do not lapse during a
    longer time in which no node called Redis. `deadline`: does nothing if the installation's clock (ms) is past it:
    then the calling supervisor was stopped for a time, and must renew its leases first; None for no deadline.

    Answers [1 if it swept, ids of lost jobs, names of dead nodes, number of due sorters, 1 if more is due now: then
    repeat the sweep with interval 0]. Asked again, it does what is due then.
    """


# Sorters hold jobs until a batch is complete, and then put them in line, sorted.


@step
def sorter_add(
    job_id: str, keys: str, sorter: str, sort_key: str, idle: int, longest: int, asked: str, priority: int,
    not_before: Arg, path: bytes, identity: str, act: str, *fields: Arg,
) -> str:  # fmt: skip
    """Write a job, and let a sorter hold it until the sorter is flushed.

    `keys`: joined by newlines. `sort_key`: jobs are sorted by its bytes. `idle`: ms from the last added job to the
    flush; `longest`: ms from the first added job to the flush at most, 0 for no bound. `asked`: a random token of the
    call. `not_before`, `fields`: as in job_submit. `path`, `identity`: of the file that the job was made from, "" for
    none. `act`: JSON of an operator's act, "" for none.

    Answers collected; duplicate if another job has the id; or seen if there is a job for this file already. Asked again
    with the same token, it answers collected or seen.
    """


@step
def sorter_hasten(sorter: str, act: str) -> int:
    """Make a sorter due now, for an operator. Answers how many jobs the sorter holds. Asked again, it answers the same
    until the flush begins.
    """


@step
def sorter_flush(most: int) -> int:
    """Put the next `most` jobs of a due sorter in line. The first call for a sorter closes the batch: jobs that are
    added later belong to the next one. Answers how many sorters are still due. Asked again, it goes on with the next
    jobs.
    """


@step
def sorter_forget(sorter: str, *pairs: Arg) -> int:
    """Forget files that are gone from a sorter's directory, but not files that have replaced them.

    `pairs`: path and identity of each file, in turns. Answers how many were forgotten. Asked again, it answers 0.
    """


# Schedules: all beats use the same version of a source's entries, and each instant of an entry is sent once.


@step
def schedule_follow(source: str, version: str, before: str, lapse: int, entries: str, *fours: Arg) -> Reply:
    """Confirm for a beat that its version of a source's entries is the current one, or make it the current one.

    `version`: a hash of the beat's entries. `before`: the version that the beat confirmed last, "" for none. `lapse`:
    ms after which a version that no beat confirms can be replaced. `entries`: "none" to only confirm, "all" to store
    all entries. `fours`: name, hash, next instant and text for people of each entry, in turns. A new or changed entry
    counts from now; in a version that had to wait, from the last confirmation of the version before.

    Answers [verdict, wall clock, last instant of each entry, names of entries with an overdue instant, news]. The
    verdict is current; or behind if another version is current and cannot be replaced yet. news: [number of changed
    schedules, version of the stored entries, requested runs, backfills]. Asked again, it answers the same.
    """


@step
def tick_take(
    name: str, hash: str, other: str, instant: int, former: int, next: int, token: str, lease: int, word: str,
    missed: int, due: int, beat: str, most: int, *job: Arg,
) -> list[str]:  # fmt: skip
    """Take an instant of an entry for a beat. If the entry's task runs as a job, this step puts the job in line. An
    ordinary task is sent by the beat itself, also for an instant that another beat took and did not send.

    `hash`: of the entry as the beat knows it. `other`: an operator's schedule in place of the entry's own, "" for none.
    `instant`, `former`, `next`: the instant, the one before and the one after it, ms since the epoch; instant 0: only
    one that was not sent. If Redis has lost the instant `former`, the verdict is over. `token`: of the beat. `lease`:
    ms in which the beat must send the task. `word`: "" to send; else the instant is skipped and logged with this word.
    `missed`: number of earlier instants that are not sent. `due`: when the instant was to be sent, ms. `beat`: name of
    the beat. `most`: how many instants the log of the entry keeps. `job`: arguments of job_submit; none for an ordinary
    task.

    Answers [verdict, instant, last instant of the entry, wall clock, outcome of the job or ""]. The verdict is sent;
    taken (the beat must send the task); passed (skipped); stale (another hash or schedule is current); held (another
    beat is sending it); over (sent or skipped before); or early. Asked again with the same token, it answers the same
    until tick_done, or over.
    """


@step
def tick_done(name: str, instant: int, token: str, word: str, missed: int, due: int, beat: str, most: int) -> bool:
    """Record that a beat has sent the task for the instant that it took, or that it cannot be sent. After that, the
    next instant of the entry may be taken.

    `word`: sent | failed | missed. The other parameters are those of tick_take. Answers False if another beat has taken
    the instant over. Asked again, it answers False, and changes nothing.
    """


@step
def run_take(
    name: str, asked: str, token: str, lease: int, word: str, beat: str, most: int, *job: Arg
) -> tuple[str, str]:  # fmt: skip
    """Take an extra run of an entry, which an operator has requested, for a beat. If the entry's task runs as a job,
    this step puts the job in line; an ordinary task is sent by the beat itself.

    `asked`: the token of the request. `word`: "" to send; else the run was sent, or cannot be sent, and is logged with
    this word. `token`, `lease`, `beat`, `most`, `job`: as in tick_take. Answers the verdict, sent | taken | noted
    (logged) | held | over, and the outcome of the job or "". Asked again, it answers over.
    """


# Entries of the schedule: code stores and removes entries; operators pause, skip, change and run those of any source.


@step
def entry_put(name: str, text: str, hash: str, next: int, about: str, act: str) -> Reply:
    """Store an entry of the schedule, or replace the stored entry of this name. A new or changed entry counts from now.

    `text`: the entry, for beats. `hash`, `next`, `about` (a text for people): as in schedule_follow. Answers [1] if the
    entry was stored, [0] if it is the same as before, [-1, source] if another source has an entry of this name. Asked
    again, it answers [0].
    """


@step
def entry_remove(name: str, act: str) -> Reply:
    """Remove a stored entry of the schedule: beats stop sending its task. Answers [1] if the entry was removed, [0] if
    there is none, [-1, source] if the entry of this name comes from another source. Asked again, it answers [0].
    """


@step
def entries_read(since: str, cursor: str) -> Reply:
    """Read the stored entries that have changed since a version, or all stored entries in pages.

    `since`: a version from an earlier answer; "" for all. `cursor`: for all, "0" first, and then the one of the answer
    before. Answers [version, cursor, [name, text, last instant]…]. The text is "" for a removed entry. The cursor is
    "0" after the last page, and "" if too many entries have changed: then read all.
    """


@step
def entry_pause(name: str, act: str) -> list[int]:
    """Pause an entry of the schedule. Answers [result, ms]. The result is 1, 0 if the entry was paused before, -1 if
    there is no such entry. ms: for so long, a beat may still send an ordinary task that it has taken. Asked again, it
    answers [0, ms].
    """


@step
def entry_resume(name: str, next: int, act: str) -> int:
    """Resume a paused entry of the schedule. Instants during the pause do not count as missed.

    `next`: the first instant after now, ms since the epoch. Answers 1, 0 if the entry was not paused, -1 if there is no
    such entry. Asked again, it answers 0.
    """


@step
def entry_omit(name: str, instant: int, act: str) -> int:
    """Skip one future instant (ms since the epoch) of an entry. Answers 1, 0 if the instant was to be skipped already,
    -1 if there is no such entry, -2 if a beat has taken the instant. Asked again, it answers 0.
    """


@step
def entry_change(name: str, other: str, next: int, act: str) -> int:
    """Give an entry another schedule, or its own again. The entry counts from now.

    `other`: the schedule as text, "" for the entry's own. `next`: the first instant after now, ms since the epoch.
    Answers 1, 0 if the entry has that schedule already, -1 if there is no such entry. Asked again, it answers 0.
    """


@step
def entry_run(name: str, asked: str, act: str) -> int:
    """Request an extra run of an entry of the schedule, now.

    `asked`: a random token of the request. Answers 1, 0 if the same request was made before, -1 if there is no such
    entry. Asked again, it answers 0.
    """


# Backfills: operators have past instants of an entry run, and beats put these in line, a few at a time.


@step
def entry_backfill(
    name: str, at_once: int, reverse: bool, since: int, till: int, act: str, *instants: Arg
) -> list[int]:  # fmt: skip
    """Ask for instants of an entry that beats have passed, and go on with a backfill that was stopped. An instant whose
    job is known, or that ran by the history, is only noted.

    `at_once`: how many of the jobs may be at work. `reverse`: the newest instant first. `since`, `till`: the range, ms
    since the epoch. `act`: with an id that all calls of one range share. `instants`: of each the end of its id (what
    follows the entry's name and @) and ms, in turns.

    Answers [-1] if there is no such entry; else 1, how many of these instants are new, how many are then to come, in
    line, succeeded, failed, cancelled, expired, rolled back, a double fault, and how many are still the beats'. Asked
    again, it answers that none is new.
    """


@step
def entry_backfill_plan(name: str, *instants: Arg) -> list[int]:
    """Read what entry_backfill would answer for these instants."""


@step
def entry_backfill_stop(name: str, act: str) -> int:
    """Put nothing more of an entry's backfill in line, and take out of line what did not start. Answers 1, 0 if no
    backfill is under way, -1 if there is no such entry. Asked again, it answers 0.
    """


@step
def backfills_read(*names: Arg) -> Reply:
    """Read the backfills of entries. Answers for each nothing, or [[at_once, reverse, since, until, act, act of its
    stop or nothing, error or nothing], [how many instants of the range are in each state, as entry_backfill answers],
    [the ends of the ids of some jobs that failed]].
    """


@step
def backfill_look(name: str, room: int) -> list[str]:
    """Read the next instants that a beat is to put in line: as many as there is room for. An instant in line whose
    record is gone is to come again.

    `room`: how many may be in line. Answers the end of the id and ms of each, in turns. Asked again, it answers the
    same.
    """


@step
def backfill_take(name: str, hash: str, ending: str, room: int, *job: Arg) -> tuple[str, str]:
    """Put the job of an instant in line, once.

    `hash`: of the entry as the beat knows it. `ending`: of the instant's id. `room`: as in backfill_look. `job`:
    arguments of job_submit. Answers the outcome of the job and "", or stale (the beat's entry is outdated), over
    (another beat did, or the backfill was stopped), full (no room), or refused and why: the quota and its units, 0 =
    nobody declared it, joined by a newline. Asked again, it answers over.
    """


@step
def backfill_fail(name: str, hash: str, why: str) -> bool:
    """Note that the jobs of a backfill cannot be made; it waits until somebody asks for it again. `hash`: as in
    backfill_take. Asked again, it answers False.
    """


# Retargeting: operators give jobs another task to run.


@step
def job_retarget(id: str, seen: str, act: str, *fields: str) -> bool:
    """Give a job that is not running another task, for its next step or for later steps.

    `seen`: the values of the fields that the list SEEN in steps/retarget.lua names, as the caller read them, joined by
    the byte 0. `fields`: names and values to write, in turns. Answers False if one of the fields has changed since:
    then nothing was written. Asked again, it answers False.
    """


# The audit trail of acts that change something outside this Redis: a database, a document or the broker.


@step
def audit_note(id: str, ttl: int, act: str, verb: str, kind: str, name: str, before: str, after: str) -> int:
    """Write an operator's act into the audit trail.

    `id`: of the act, remembered for `ttl` ms. `act`: JSON (rules/audit.lua). `verb`, `kind`, `name`: what was done, to
    which kind of thing, and the thing's name. `before`, `after`: its state. Answers 1, 0 if this author has written the
    act before, -1 if the id is that of another act or author. Asked again, it answers 0.
    """


# Alerts: the maintenance process takes the troubles that were noted in Redis, and sends an alert about each.


@step
def trouble_take(app: str) -> str | None:
    """Take the first trouble of an app (a job that failed for good or is held) that needs an alert. Answers
    "<kind> <ms> <id>", or None. Asked again, it answers the same trouble after 30 s, until the trouble is removed.
    """


# Outboxes: a relay submits the rows that transactions of a database have left.


@step
def outbox_submit(key: str, token: str, *rows: Arg) -> Reply:
    """Submit the jobs of rows, in their order, each unless it was submitted before and not forgotten.

    `key`, `token`: the lane of the outbox, and the token under which the relay holds it. `rows`: for each row the
    number of its arguments, then these, as job_submit takes them. Answers nil if the relay no longer holds the lane;
    else, for each row, what job_submit answers. Two outcomes more: broken (Redis cannot make a job of the row; its log
    says why), and behind (a row before it, with one of its keys, was refused or is broken). Asked again, the outcome is
    duplicate for each job that was submitted, even where it is over and its record gone.
    """


@step
def outbox_forget(key: str, token: str, *ids: str) -> bool:
    """Forget that the jobs of these rows were submitted: the database no longer has the rows.

    `key`, `token`: as in outbox_submit. Answers False if the relay no longer holds the lane: a later one may have read
    the rows before they were deleted. Asked again, it answers the same.
    """


# Events: set by programs and operators, for jobs that wait for them.


@step
def event_set(name: str, value: str, keep: int, act: str) -> Reply:
    """Set an event, once, and let the jobs go on that wait for it. `value`: JSON; `keep`: ms for which it is kept.

    Answers [what happened, the value that the event has, how many jobs waited]: `set`; `known`, it had this value;
    or `other`, it has another one, and nothing changed. Asked again, it answers `known`.
    """
