"""Faults in grabs: who wins, who is believed, what is kept."""

from proof.model.mutants.mutant import Mutant

MUTANTS = [
    Mutant("grab.grab_take", "a completed instance is grabbed again", "grab.state == 'complete' or ", ""),
    Mutant("held.grab", "an instance is abandoned while its winner lives", "not job or", "true or"),
    Mutant("held.grab", "the winner that is gone is not replaced", "job.state ~= 'running' or ", ""),
    Mutant("held.grab", "a lapsed lease is not ended where somebody looks", "settle.end_lapsed"),
    Mutant("grab.grab_take", "a lost reply makes the winner a loser", "if grab.state == 'running' and"),
    Mutant("grab.grab_end", "the completion of one that was replaced counts", "if grab.token"),
    Mutant(
        "grab.grab_end", "the completion of one whose lease is over counts", "not held.is_ours(c, lane, token)", "false"
    ),
    Mutant("grab.grab_end", "a completion asked again is refused", "if grab.state ="),
    Mutant("grab.grab_end", "the lane of an instance stays held when it has ended", "held.drop"),
    Mutant("grabs.write", "attempts are not counted", "(tonumber(grab.attempt) or 0) + ", ""),
    Mutant("grabs.write", "the next attempt shows the end of the one before", "'ended'"),
    Mutant("grabs.end_", "a finished record is dropped with its lease", "grab, keep", "grab, 60000"),
    Mutant("grabs.list_until", "a list is forgotten before its last entry", ") >= ms", ") > 0"),
    Mutant("grab.grab_take", "work that failed for good is tried again", "or grabs.is_final(grab, attempts) ", ""),
    Mutant("grabs.end_", "failures are not counted", "'failed'"),
    Mutant("grab.grab_release", "a released instance stays its winner's", "held.drop"),
    Mutant(
        "grabs.release",
        "what failed for good stays so after a release",
        "redis.call('HDEL', grab.name, 'failures')\n  end_(c, grab.name, lane, 'abandoned'",
        "end_(c, grab.name, lane, 'failed'",
    ),
    Mutant("grabs.write", "earlier winners are forgotten", "'earlier'"),
]
OF_JOBS = [
    Mutant("submit.grab", "a job is done though another has its instance", "before.state == 'running' or ", ""),
    Mutant("submit.grab", "a completed instance is done again by a job", "or before.state == 'complete' ", ""),
    Mutant(
        "submit.grab",
        "a submit asked again while its job is known wins once more",
        "redis.call('EXISTS', c.P .. 'job:' .. id) == 0",
        "true",
    ),
    Mutant(
        "settle.finish", "the end of a job does not end its instance", "grab then", "grab and state ~= 'cancelled' then"
    ),
    Mutant("grabs.end_job", "a job that failed has completed its instance", "== 'succeeded'", "~= 'cancelled'"),
    Mutant("claim.start", "the record does not say which node has the job", "grabs.take_job"),
    Mutant("job.revive", "an operator has an instance done twice", "regrab"),
    Mutant("job.regrab", "an operator's retry takes a completed instance", "or grab.state == 'complete' ", ""),
    Mutant("grabs.begin_job", "a record is forgotten while its job waits", "keep + AGES", "keep + 0"),
    Mutant("grab.grab_release", "a release leaves a job its instance", "cancel.job"),
    Mutant("record.fill_rare", "a job does not know that it grabs", ", 'grab'", ""),
    Mutant("grab.grab_release", "a release that names another winner takes the instance", "if attempt ~"),
]
