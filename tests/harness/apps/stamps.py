"""What the tasks of the apps did: a list in Redis of "<name> <begin|end> <server µs> <attempt> <fence>"."""

import os
from collections.abc import Callable

import redis

from coordinator import current_job

_STAMP = """local t = redis.call('TIME')
local at = string.format('%.0f', t[1] * 1000000 + t[2])
return redis.call('RPUSH', KEYS[1], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. at .. ' ' .. ARGV[3])"""


def opened() -> redis.Redis:
    """The Redis of the log, of an app that was just imported. redis-py would give up a BLPOP after 5 s."""
    return redis.Redis.from_url(os.environ["TEST_LOG"], decode_responses=True, socket_timeout=120)


def stamps_in(log: redis.Redis) -> Callable[[str, str], None]:
    key = os.environ["TEST_PREFIX"] + ".log"

    def stamp(name: str, what: str) -> None:
        job = current_job()
        log.eval(_STAMP, 1, key, name, what, f"{job.attempt} {job.fence}" if job else "0 0")

    return stamp
