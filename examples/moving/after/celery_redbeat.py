"""Take the entries of RedBeat over, once its beats are stopped: python -m examples.moving.after.celery_redbeat"""

from datetime import UTC, datetime

from redbeat import RedBeatSchedulerEntry
from redbeat.schedulers import ensure_conf, get_redis

from coordinator import Entry, InvalidJob
from examples.moving.shop import app, coordinator


def take_over() -> dict[str, str]:
    """What became of each entry. A second call takes nothing over again."""
    conf, client = ensure_conf(app), get_redis(app)
    static = client.smembers(conf.statics_key)
    return {
        key.removeprefix(conf.key_prefix): take(RedBeatSchedulerEntry.from_key(key, app=app), score)
        for key, score in client.zrange(conf.schedule_key, 0, -1, withscores=True)
        if key not in static  # they stand in beat_schedule, which our beats read, too
    }


def take(old: RedBeatSchedulerEntry, score: float) -> str:
    """`score`: when RedBeat would send it next, in seconds; below 0: never again."""
    due, now = datetime.fromtimestamp(score, UTC), datetime.now(UTC)
    known = [entry.name for entry in coordinator.entries.all(old.name, most=1)] == [old.name]
    if not known:
        first = due if due > now else None
        try:
            new = Entry(old.name, old.schedule, old.task, old.args, old.kwargs, old.options, first=first)
            coordinator.entries.put(new)
        except (InvalidJob, TypeError, ValueError) as error:
            return f"left out: {error}"
    if not old.enabled:
        coordinator.entries.pause(old.name, why="it was switched off in RedBeat")
        return "paused"
    if known:
        return "here already"
    if 0 < score <= now.timestamp():  # it came due while no beat ran
        coordinator.entries.run_now(old.name, token="taken-over", why="it was due")
    return "taken over"


if __name__ == "__main__":
    for name, said in take_over().items():
        print(f"{name}: {said}")
