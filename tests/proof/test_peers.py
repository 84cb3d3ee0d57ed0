"""What went wrong with a peer's jobs is counted by the laboratory's own checkers."""

from proof.peers import WRONG, wrongs
from proof.planted import Script


def test_jobs_that_are_lost_doubled_overlapped_reordered_and_stuck_are_counted() -> None:
    script = Script()
    for job in ("early", "late", "lost", "stuck"):
        script.submit(job, "k", effects=False)
    script.run("late", 1, "k").run("early", 2, "k").run("early", 3, "k")  # in the wrong order, and one twice
    script.submit("beside", "l", effects=False).submit("other", "l", effects=False)
    script.begin("beside", 4, "l").begin("other", 5, "l").end("beside", 4).end("other", 5)
    for job in ("early", "late", "beside", "other"):
        script.is_(job)
    history = script.is_("lost", "unknown").is_("stuck", "waiting").history()
    history.about |= {"never": 1, "refused": 0}
    assert {what: wrongs(history)[what] for what in WRONG} == {
        "lost": 1, "doubled": 1, "overlapped": 1, "reordered": 1, "stuck": 2,
    }  # fmt: skip
