"""What a node leaves on the broker of Celery once it is gone: nothing, whatever its name was."""

from tests.harness.fleet import Fleet


def test_nodes_of_ever_new_names_leave_no_queue_and_no_binding_on_redis(fleet: Fleet) -> None:
    for name in ("pod-1", "pod-2"):
        worker = fleet.worker(name, 1)
        job = fleet.coordinator.submit("k", fleet.shop.add.s(1, 2))
        assert fleet.coordinator.wait(job.id, 30).result == 3
        worker.process.terminate()
        worker.process.wait(30)
    with fleet.server.client(1) as broker:
        names = [str(name) for name in broker.keys(f"{fleet.prefix}.*")]
        kept = [name for name in names if "pod-" in name]
        bound = [member for name in names if "binding." in name for member in broker.smembers(name)]
    assert kept == []
    assert bound
    assert not [member for member in bound if "pod-" in member]
