"""Which tenant floods, among a million jobs on 100,000 lanes and on a million? How long does the answer take, whole and
within half a second, and how long is Redis busy with one call of it?

The keys are of a hundred tenants, of as many tenants as lanes, or all below one beginning. The lines are written
without the records of their jobs, which the answer does not read.
"""

from typing import Any

from bench import amount
from bench.history import timed
from bench.servers import redis_server
from coordinator import Coordinator

JOBS, LANES, PORTION = amount((1_000_000, (100_000, 1_000_000), 5_000), (40, (20, 40), 20))
SHAPES = {
    "of 100 tenants": ("tenant/%d/order/%d", 100), "of a tenant each": ("tenant/%d/order/%d", 10**9),
    "below one beginning": ("tenant/%.0s%d", 1),
}  # fmt: skip
FILL = """
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do
  local key = string.format(ARGV[3], i % ARGV[4], i)
  for j = 1, ARGV[5] do redis.call('ZADD', KEYS[1] .. 'line:' .. key, j, 'job ' .. i .. ' ' .. j) end
  redis.call('ZADD', KEYS[1] .. 'lanes', 0, key)
  if tonumber(ARGV[5]) > 1 then redis.call('SADD', KEYS[1] .. 'contended', key) end
end
"""


def main() -> None:
    for lanes in LANES:
        for name, (pattern, tenants) in SHAPES.items():
            with redis_server() as url, Coordinator(url=f"{url}/0", timeout=60) as coordinator:
                client: Any = coordinator.store._client
                fill(coordinator, lanes, pattern, tenants)
                client.slowlog_reset()
                client.config_set("slowlog-log-slower-than", 0)
                client.config_set("slowlog-max-len", 100_000)
                print(f"{JOBS:,} jobs on {lanes:,} lanes {name}")
                for seconds in (None, 0.5):
                    ask(coordinator, seconds)
                calls = [call["duration"] for call in client.slowlog_get(100_000) if b"FCALL" in call["command"]]
                print(f"  the longest call {max(calls) / 1000:.1f} ms", flush=True)


def fill(coordinator: Coordinator, lanes: int, pattern: str, tenants: int) -> None:
    script = coordinator.store._client.register_script(FILL)
    for start in range(0, lanes, PORTION):
        script([coordinator.store.prefix], [start, min(start + PORTION, lanes), pattern, tenants, JOBS // lanes])


def ask(coordinator: Coordinator, seconds: float | None) -> None:
    passed, used = timed(coordinator.store._client, lambda: coordinator.tenants("tenant/", seconds=seconds))
    found = coordinator.tenants("tenant/", seconds=seconds)
    least = "" if found.complete else "at least "
    within = "" if seconds is None else f" within {seconds} s"
    print(f"  {least}{found.waiting:,}{within}: {passed * 1000:.0f} ms, of processors {used * 1000:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
