"""Faults in lines: who stands where, and who may start."""

from proof.model.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "submit.stand", "a submit asked again is a second job", "revoked and redis.call('EXISTS', name) == 1", "false"
    ),
    Mutant("coalesce.join", "a submit that coalesced is not known when asked again", "'alias'"),
    Mutant(
        "admit.take_in",
        "a job starts that is in front in one of its lines only",
        ", marked = in_front(c, id, keys, job.exclusive)",
        " = true",
    ),
    Mutant("admit.take_in", "a job is made ready that is at work", "job.state ~= 'waiting' or ", ""),
    Mutant("admit.lane", "a free place of a lane with a limit is left empty", "line.limit(c, key)", "1"),
    Mutant("admit.take_in", "who was started in a lane with a limit is not counted", "line.pin"),
    Mutant("line.enter", "a job stands in the first of its lines only", "ipairs(keys", "ipairs({keys[1]}"),
    Mutant("line.enter", "who was started is overtaken by a greater priority", "line.pin"),
    Mutant(
        "line.enter",
        "an order of each lane's own: two jobs wait for each other",
        "members, score",
        "members, redis.call('ZCARD', members)",
    ),
    Mutant("line.new_score", "priority is forgotten", " - priority * 17592186044416", ""),
    Mutant("admit.within_limit", "a job is admitted past a paused lane", "redis.call('ZSCORE'"),
    Mutant("admit.within_limit", "more run at once than the limit says", "place >= limit or ", ""),
    Mutant("submit.waiting", "who runs is counted among those that wait", " - started", ""),
    Mutant("job.job_move", "a job is moved in one of its lines only", "id, keys", "id, {keys[1]}"),
    Mutant("job.job_move", "a move asked for again is made twice", "if asked ~= "),
]
SELDOM = [
    Mutant("submit.busy_line", "an exclusive one has a skip beside it", "line.first_alone"),
    Mutant("submit.stand", "a lock whose holder is gone is never free", "settle.end_lapsed"),
    Mutant("submit.full_line", "one more waits than was agreed to", ">= room", "> room"),
    Mutant("coalesce.united", "everything becomes something again", "held[name] == cjson.null or ", ""),
    Mutant("admit.within_limit", "an exclusive one does not run alone", "not alone or", "true or"),
    Mutant("line.changed", "a step does not see that the first exclusive one left its line", "c.alone = false", ""),
    Mutant("admit.within_limit", "an exclusive one starts beside others", "or (exclusive and place > 0) ", ""),
    Mutant("submit.busy_line", "a lane counts as busy while there is room in it", ">= limit", "> 0"),
    Mutant(
        "submit.skip_keys", "skip looks at keys that it was not told to look at", "when_busy ", "when_busy:sub(1, 4) "
    ),
    Mutant("lane.unready", "what was ready is taken from a paused lane", "ready.drop"),
    Mutant("lane.call_back", "a pause takes the front from a job that was started", "and not job.taken ", ""),
    Mutant("lane.unready", "a job called back by a pause keeps a front that it does not use", "'line:'"),
    Mutant("lane.unready", "nobody takes the place of a job that a pause calls back", "admit.lane"),
    Mutant("lane.mark", "who runs is not counted when a limit comes", "line.pin"),
    Mutant("lane.lane_resume", "nobody starts when a pause ends", "admit.lane"),
    Mutant("lane.lane_limit", "a lowered limit lets those start that are ready", "tonumber"),
    Mutant("lane.lane_limit", "a raised limit starts nobody", "admit.lane"),
    Mutant("lane.lane_limit", "a limit of one leaves a note behind", "redis.call('HDEL'"),
    Mutant("job.job_move", "a job moved back holds up whoever is first now", "ipairs(keys)", "ipairs({keys[1]})"),
    Mutant(
        "job.job_move",
        "a job that is ready is moved behind others",
        "~= 'scheduled' ",
        "~= 'scheduled' and job.state ~= 'ready' ",
    ),
    Mutant("lane.lane_release", "a job that was never started is released", "or not job.taken ", ""),
    Mutant("lane.lane_release", "a release that is asked twice hits the next job", "holder == ''", "true"),
    Mutant("classes.match", "a class that is new is given to a draining node", "'closed') ~= '1'", "'closed') ~= '2'"),
]
