"""The acts of operators, as the command line and the pages do them: each gives its answer for programs and for people.

Their docstrings are the help of the commands; `Coordinator` says more of each.
"""

from __future__ import annotations

from typing import Unpack

from coordinator.author import Acting
from coordinator.client.coordinator import Coordinator
from coordinator.jobs.record import TERMINAL
from coordinator.jobs.states import End, Sorted
from coordinator.jobs.validation import shown_lane
from coordinator.store.times import moment
from coordinator.store.values import Json

Done = tuple[dict[str, Json], str]  # for programs; for people


def counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


# On jobs


def cancel(coordinator: Coordinator, job_id: str, **acting: Unpack[Acting]) -> Done:
    """End a job, or all jobs that options such as --state and --key name.

    A running job's process is stopped first; then the rollback runs. Several are counted first, then ended in portions;
    given again, the command does the rest.
    """
    state = coordinator.cancel(job_id, **acting)
    ending = {"running": "is being stopped", "cancelled": "is cancelled"}
    text = ending.get(state, f"was over: {state}" if state in TERMINAL else f"is {state}")
    return {"id": job_id, "state": state}, f"{job_id} {text}"


def retry(coordinator: Coordinator, job_id: str, to: End, **acting: Unpack[Acting]) -> Done:
    """Run a job again, or all jobs that options such as --state and --task name.

    A held job goes on, a job that waits for its retry runs at once, and a job that ended badly runs again as a new one.
    """
    state = coordinator.retry(job_id, to=to, **acting)
    done = "" if state in ("ready", "waiting") else ": only a job that is held, retrying, or ended badly runs again"
    return {"id": job_id, "state": state}, f"{job_id} is {state}{done}"


def move(coordinator: Coordinator, job_id: str, to: End, priority: int | None, **acting: Unpack[Acting]) -> Done:
    """Move a waiting job in all its lanes, or all jobs that options such as --key and --task name; these keep their
    order.
    """
    state = coordinator.move(job_id, priority=priority, to=to, **acting)
    return {"id": job_id, "state": state}, f"{job_id} is moved to the {to} of its priority: {state}"


def retarget(coordinator: Coordinator, old: str, new: str, **acting: Unpack[Acting]) -> Done:
    """Give jobs another task.

    The jobs of the task OLD that are not at work run NEW, where its nodes are. Later steps of chains, rollbacks and
    links that name OLD name NEW.
    """
    done = coordinator.retarget(old, new, **acting)
    left = f"; {done.at_work} at work stay as they are: ask again later" if done.at_work else ""
    return {"old": old, "new": new, **done._asdict()}, f"{counted(done.jobs, 'job')} with {old} name {new}{left}"


# On lanes and grabs


def limit(coordinator: Coordinator, key: str, limit: int, **acting: Unpack[Acting]) -> Done:
    """Let N jobs of a lane run at once, or of all lanes that begin so: 'sync/*'.

    1 is usual. With 0 no job starts, and the running ones go on.
    """
    before = coordinator.set_limit(key, limit, **acting)
    text = f"up to {limit} at once in {shown_lane(key)}, {before} before"
    return {"key": key, "limit": limit, "before": before}, text


def release(coordinator: Coordinator, key: str, holder: str, **acting: Unpack[Acting]) -> Done:
    """Take a lane from its holder, or all lanes that begin so: 'sync/*'.

    Of several, from the one that was started first. That job ends as cancelled, without rollback, and the next one
    starts at once.
    """
    lane = shown_lane(key)
    held = coordinator.release(key, holder=holder, **acting)
    nobody = f"job {holder} does not hold {lane}" if holder else f"nobody held {lane}"
    return {"key": key, "released": held}, f"{lane} is taken from job {held}" if held else nobody


def pause(coordinator: Coordinator, key: str, **acting: Unpack[Acting]) -> Done:
    """Let no more jobs start in a lane, or in all that are there and begin so: 'sync/*'. Running ones go on."""
    lane = shown_lane(key)
    new = coordinator.pause(key, **acting)
    text = f"{lane} is paused" if new else f"{lane} was paused already; now your reason stands there"
    return {"key": key, "paused": new}, text


def resume(coordinator: Coordinator, key: str, **acting: Unpack[Acting]) -> Done:
    """Let a paused lane go on, or all that begin so: 'sync/*'."""
    lane = shown_lane(key)
    was = coordinator.resume(key, **acting)
    return {"key": key, "resumed": was}, f"{lane} goes on" if was else f"{lane} was not paused"


def release_grab(
    coordinator: Coordinator, key: str, instance: str, attempt: int | None, **acting: Unpack[Acting]
) -> Done:
    """Take an instance from its winner.

    Nothing that a process still says of it counts. One that waits takes over, or the next that asks. A job is
    cancelled. Work that has failed for good may be tried again.
    """
    winner = coordinator.release_grab(key, instance, attempt, **acting)
    done = f"{key} {instance} is taken from {winner}"
    return {"key": key, "instance": instance, "released": winner}, done if winner else f"nobody has {key} {instance}"


# On nodes


def drain(coordinator: Coordinator, node: str, **acting: Unpack[Acting]) -> Done:
    """Give a node no new jobs until `undrain`.

    Its running jobs end there, or go to other nodes after `drain_timeout`.
    """
    new = coordinator.drain(node, **acting)
    alive = node in [living.name for living in coordinator.nodes()]
    unknown = "" if alive else "; no node of that name is alive, and it gets no jobs when it comes"
    return {"node": node, "drained": new}, f"{node} {'drains' if new else 'was drained already'}{unknown}"


def undrain(coordinator: Coordinator, node: str, **acting: Unpack[Acting]) -> Done:
    """Give a drained node jobs again."""
    was = coordinator.undrain(node, **acting)
    return {"node": node, "undrained": was}, f"{node} {'takes jobs again' if was else 'was not drained'}"


# On entries of the schedule


def pause_entry(coordinator: Coordinator, name: str, **acting: Unpack[Acting]) -> Done:
    """Send no tick of an entry until `resume`.

    Once the command has ended, no beat sends one. The instants of the pause are not missed ones.
    """
    new = coordinator.entries.pause(name, **acting)
    return {"entry": name, "paused": new}, f"{name} is paused" if new else f"{name} was paused already"


def resume_entry(coordinator: Coordinator, name: str, **acting: Unpack[Acting]) -> Done:
    """Send the ticks of a paused entry again."""
    was = coordinator.entries.resume(name, **acting)
    return {"entry": name, "resumed": was}, f"{name} goes on" if was else f"{name} was not paused"


def skip_tick(coordinator: Coordinator, name: str, **acting: Unpack[Acting]) -> Done:
    """Do not send the next tick of an entry."""
    at = coordinator.entries.skip_next(name, **acting)
    return {"entry": name, "omitted": at.isoformat()}, f"{name} will not be sent at {moment(at)}"


def run_entry(coordinator: Coordinator, name: str, token: str | None = None, **acting: Unpack[Acting]) -> Done:
    """Run an entry now, out of turn, even while it is paused."""
    job_id = coordinator.entries.run_now(name, token=token, **acting)
    return {"entry": name, "id": job_id}, f"{name} runs within seconds, once a beat is there, as {job_id}"


def change_entry(coordinator: Coordinator, name: str, expression: str, **acting: Unpack[Acting]) -> Done:
    """Give an entry another schedule until `restore`.

    EXPRESSION: a Quartz expression in the entry's time zone, such as "0 0 1 * * ?", or "every 30" for seconds.
    """
    new = coordinator.entries.change(name, expression, **acting)
    return {"entry": name, "changed": new}, f"{name}: {coordinator.entries.entry(name, 1).when}"


def restore_entry(coordinator: Coordinator, name: str, **acting: Unpack[Acting]) -> Done:
    """Give an entry its own schedule again."""
    was = coordinator.entries.restore(name, **acting)
    when = coordinator.entries.entry(name, 1).when
    return {"entry": name, "restored": was}, f"{name}: {when}" if was else f"{name} had its own schedule: {when}"


# On sorters and refused requests


def flush(coordinator: Coordinator, name: str, **acting: Unpack[Acting]) -> Done:
    """Put the orders of a sorter in line now."""
    count = coordinator.sorter(name).flush(**acting)
    text = f"{counted(count, 'order')} of {name} put in line" if count else f"{name} holds no orders"
    return {"sorter": name, "orders": count}, text


def add_order(
    coordinator: Coordinator, name: str, order: str, key: str, task: str, arguments: list[Json],
    kwargs: dict[str, Json] | None = None, idle_timeout: float = 10.0, max_wait: float | None = None,
    sort: Sorted = "alphabetical", **acting: Unpack[Acting],
) -> Done:  # fmt: skip
    """Add the order ORDER, a job that runs TASK in the lane KEY, to a sorter."""
    signature = {"task": task, "args": arguments, "kwargs": kwargs or {}, "options": {}}
    added = coordinator.sorter(name, idle_timeout, max_wait, sort).add(order, key, signature, **acting)
    return {"sorter": name, "id": added.id, "outcome": added.outcome}, f"{added.id} is held by the sorter {name}"


def requeue(coordinator: Coordinator, request_id: str, edited: str | None, **acting: Unpack[Acting]) -> Done:
    """Put a refused request into its queue again, without its priority."""
    done = coordinator.requeue(request_id, edited or None, **acting)
    return {"request": request_id, "requeued": done}, f"{request_id} is in its queue" if done else gone(request_id)


def discard(coordinator: Coordinator, request_id: str, **acting: Unpack[Acting]) -> Done:
    """Forget a refused request."""
    done = coordinator.discard(request_id, **acting)
    return {"request": request_id, "discarded": done}, f"{request_id} is discarded" if done else gone(request_id)


def gone(request_id: str) -> str:
    return f"no refused request has the id {request_id} any more; on RabbitMQ, perhaps somebody reads it just now"
