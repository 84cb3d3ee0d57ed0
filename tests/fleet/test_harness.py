"""Jobs on real workers: order, single flight, losses."""

from tests.harness.fleet import Fleet


def test_a_job_runs_and_its_result_can_be_read(fleet: Fleet) -> None:
    fleet.worker()
    submission = fleet.coordinator.submit("order/1", fleet.shop.add.s(1, 2))
    job = fleet.coordinator.wait(submission.id, 20)
    assert (job.state, job.result, job.attempt) == ("succeeded", 3, 1)
    assert fleet.shop.app.AsyncResult(job.id).get(timeout=5) == 3


def test_a_hundred_jobs_on_one_key_run_in_order_and_never_two_at_once(fleet: Fleet) -> None:
    fleet.worker("one")
    fleet.worker("two")
    work = fleet.shop.work
    jobs = fleet.coordinator.submit_many([("ledger", work.s(f"{i:03}", 0.005)) for i in range(100)])
    fleet.coordinator.wait(jobs[-1].id, 60)
    stamps = fleet.stamps()
    assert [stamp.name for stamp in stamps] == [name for i in range(100) for name in (f"{i:03}", f"{i:03}")]
    assert [stamp.what for stamp in stamps] == ["begin", "end"] * 100
    fences = [stamp.fence for stamp in stamps if stamp.what == "begin"]
    assert fences == sorted(set(fences))
