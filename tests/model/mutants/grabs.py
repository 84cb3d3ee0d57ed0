"""Faults in grabs: who wins, who is believed, what is kept."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "grab", "a completed instance is grabbed again",
        " or grab.state == 'complete' or grabs",
        " or grabs",
    ),
    Mutation(
        "held", "an instance is abandoned while its winner lives",
        "  if not job or grab.token ~= '' and (job.state ~= 'running' or job.token ~= grab.token) then",
        "  if true then",
    ),
    Mutation(
        "held", "the winner that is gone is not replaced",
        "(job.state ~= 'running' or job.token ~= grab.token)",
        "job.token ~= grab.token",
    ),
    Mutation(
        "held", "a lapsed lease is not ended where somebody looks",
        "  if grab.token ~= '' then settle.end_lapsed(c, lane) end\n",
        "",
    ),
    Mutation(
        "grab", "a lost reply makes the winner a loser",
        "  if grab.state == 'running' and grab.token == token then return grabs.told('won', grab) end\n",
        "",
    ),
    Mutation(
        "grab", "the completion of one that was replaced counts",
        "  if grab.token ~= token then return 'lost' end\n",
        "",
    ),
    Mutation(
        "grab", "the completion of one whose lease is over counts",
        " or not held.is_ours(c, lane, token)",
        "",
    ),
    Mutation(
        "grab", "a completion asked again is refused",
        "  if grab.state == state then return 'ended' end\n",
        "",
    ),
    Mutation(
        "grab", "the lane of an instance stays held when it has ended",
        "  held.drop(c, id, lane, token)\n",
        "",
    ),
    Mutation(
        "grabs", "attempts are not counted",
        "(tonumber(grab.attempt) or 0) + 1",
        "1",
    ),
    Mutation(
        "grabs", "the next attempt shows the end of the one before",
        "  if grab.ended then redis.call('HDEL', grab.name, 'ended', 'value') end\n",
        "",
    ),
    Mutation(
        "grabs", "a finished record is dropped with its lease",
        "  if keep then redis.call('PEXPIRE', grab, keep) end\n",
        "  if keep then redis.call('PEXPIRE', grab, 60000) end\n",
    ),
    Mutation(
        "grabs", "a list is forgotten before its last entry",
        "  if redis.call('PTTL', list) >= ms then return false end\n",
        "  if redis.call('PTTL', list) > 0 then return false end\n",
    ),
    Mutation(
        "grab", "work that failed for good is tried again",
        " or grabs.is_final(grab, attempts) then",
        " then",
    ),
    Mutation(
        "grabs", "failures are not counted",
        "  if state == 'failed' then redis.call('HINCRBY', grab, 'failures', 1) end\n",
        "",
    ),
    Mutation(
        "grab", "a released instance stays its winner's",
        "  if grab.state == 'running' then held.drop(c, grab.job, lane, grab.token) end\n",
        "",
    ),
    Mutation(
        "grabs", "what failed for good stays so after a release",
        "  redis.call('HDEL', grab.name, 'failures')\n  end_(c, grab.name, lane, 'abandoned'",
        "  end_(c, grab.name, lane, 'failed'",
    ),
    Mutation(
        "grabs", "earlier winners are forgotten",
        "    redis.call('HSET', grab.name, 'earlier', grab.earlier)\n",
        "",
    ),
]  # fmt: skip

OF_JOBS = [
    Mutation(
        "submit", "a job is done though another has its instance",
        "    if before.state == 'running' or before.state == 'complete' then\n",
        "    if before.state == 'complete' then\n",
    ),
    Mutation(
        "submit", "a completed instance is done again by a job",
        "    if before.state == 'running' or before.state == 'complete' then\n",
        "    if before.state == 'running' then\n",
    ),
    Mutation(
        "submit", "a submit asked again while its job is known wins once more",
        "  if redis.call('EXISTS', c.P .. 'job:' .. id) == 0 then\n    if before",
        "  if true then\n    if before",
    ),
    Mutation(
        "settle", "the end of a job does not end its instance",
        "  if job.grab then grabs.end_job(",
        "  if job.grab and state ~= 'cancelled' then grabs.end_job(",
    ),
    Mutation(
        "grabs", "a job that failed has completed its instance",
        "  local well = state == 'succeeded'\n",
        "  local well = state ~= 'cancelled'\n",
    ),
    Mutation(
        "claim", "the record does not say which node has the job",
        "  if job.grab then grabs.take_job(c, job.keys, id, node, runner, job.fence) end\n",
        "",
    ),
    Mutation(
        "job", "an operator has an instance done twice",
        "  if job.grab and not regrab(c, id, job) then return end\n",
        "",
    ),
    Mutation(
        "job", "an operator's retry takes a completed instance",
        "  if grab.state == 'running' or grab.state == 'complete' then return false end\n",
        "  if grab.state == 'running' then return false end\n",
    ),
    Mutation(
        "grabs", "a record is forgotten while its job waits",
        "keep + AGES",
        "keep + 0",
    ),
    Mutation(
        "grab", "a release leaves a job its instance",
        "    cancel.job(c, grab.job, why, by)\n",
        "",
    ),
    Mutation(
        "record", "a job does not know that it grabs",
        "'group', 'tick', 'grab')",
        "'group', 'tick')",
    ),
    Mutation(
        "grab", "a release that names another winner takes the instance",
        "  if attempt ~= '' and attempt ~= grab.attempt then return '' end\n",
        "",
    ),
]  # fmt: skip
