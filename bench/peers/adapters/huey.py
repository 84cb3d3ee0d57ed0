"""huey, two worker processes."""

from huey import RedisHuey

from bench.peers import body

huey = RedisHuey("peers", url=f"{body.URL}/1", results=False)

WORKER = ("huey_consumer", f"{__name__}.huey", "-w", "2", "-k", "process", "-q", "-n")
PORTION = 100


@huey.task()
def work(key: int, number: int) -> None:
    body.run()


def send(jobs: list[tuple[int, int]]) -> None:
    for key, number in jobs:
        work(key, number)
