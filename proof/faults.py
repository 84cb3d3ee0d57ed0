"""Faults that this project had, each with the guard that keeps it out now.

`python -m proof fault NAME` takes that guard out of a copy of the tree, where the test must fail, and runs the test
here, where it must pass. docs/proof.md says which commits that mended something have no row here, and why.
"""

from collections.abc import Iterator
from typing import NamedTuple

GAP = "\n…\n"


class Fault(NamedTuple):
    """`commit`: the one that mended it. `place`: a file, in which `old` stands once; the fault has `new` there. The
    texts of a guard in two parts have a GAP each. `story`: what happened; `found`: by what.
    """

    name: str
    commit: str
    place: str
    old: str
    new: str
    test: str
    story: str
    found: str = "not noted"

    def parts(self) -> Iterator[tuple[str, str]]:
        return zip(self.old.split(GAP), self.new.split(GAP), strict=True)


# fmt: off
FAULTS = [
    Fault(
        "cold-shutdown-fails-jobs", "08d7eae", "coordinator/core/runner/attempt.py",
        "            if is_signalled() > before or _is_stopped(error):\n                raise\n", "",
        "tests/fleet/shared/test_stopped_at_once.py::"
        "test_jobs_at_work_go_on_at_another_node_and_neither_attempt_nor_loss_is_counted",
        "SIGQUIT, a second Ctrl-C or SIGTERM to the whole group: 11 of 11 jobs at work ended as failed, and "
        "were rolled back. The attempt took every SystemExit for an outcome.", "black-box trials",
    ),
    Fault(
        "replace-ends-the-whole-line", "08d7eae", "coordinator/core/store/functions/rules/cancel.lua",
        "others[#others + 1] = id end\n", "cancel.job(c, id, {why = 'replaced by ' .. by, by = 'the lane'}) end\n",
        "tests/coordinator/core/lanes/test_replace.py::"
        "test_those_that_only_wait_behind_a_head_without_a_process_keep_their_places",
        "`when_busy=\"replace\"` cancelled all who only waited: each cancel admitted the next one, which then "
        "looked like one at work.", "black-box trials",
    ),
    Fault(
        "canvas-in-the-own-lane-hangs", "08d7eae", "coordinator/core/runner/runner.py",
        "                check_lanes(job, ids)\n", "",
        "tests/fleet/shared/test_keyed_steps.py::test_what_would_wait_for_its_own_lane_is_refused_at_once",
        "A body that returned a task of its own lane, or waited for one, was parked for a day.", "black-box trials",
    ),
    Fault(
        "forked-grandchild-keeps-a-dead-node", "08d7eae", "coordinator/core/fleet/companion.py",
        ' or processes.condition(self._parent) == "gone"', "",
        "tests/coordinator/core/fleet/test_companion.py::"
        "test_a_companion_ends_with_the_one_above_also_where_its_input_stays_open",
        "A task that forks a daemon kept the input of the supervisor open. After SIGTERM the supervisor lived on, and "
        "the restarted worker took no work.", "black-box trials",
    ),
    Fault(
        "fence-goes-back-over-lost-starts", "08d7eae", "coordinator/core/store/functions/rules/locks.lua",
        "math.max(clock + MARGIN, math.max(last, before or 0) + SPACE)", "math.max(clock, last + 1) + MARGIN",
        "tests/coordinator/core/store/test_clock.py::"
        "test_no_fence_goes_back_over_three_starts_that_are_lost_one_after_another",
        "Two restarts of Redis without loss, then one that lost 0.8 s: the fence went back by 59 s, and 89 "
        "rightful writes were refused.", "black-box trials",
    ),
    Fault(
        "bells-pause-doubles-without-bound", "08d7eae", "coordinator/core/store/functions/steps/node.lua",
        "c.now + 1000, wake)", "c.now + math.max(1000, c.now - tonumber(string.match(wake, '^%d+'))), wake)",
        "tests/coordinator/core/fleet/test_nodes.py::"
        "test_bells_that_were_lost_are_rung_again_one_of_them_each_second_and_all_once_it_arrives",
        "RabbitMQ refused doorbells for 60 s. Idle slots stayed idle for 19 s afterwards: the pause between "
        "two rings doubled without a bound.", "black-box trials",
    ),
    Fault(
        "hung-supervisor-is-not-replaced", "08d7eae", "coordinator/core/fleet/companion.py",
        "        elif self._is_silent():", "        elif False:",
        "tests/coordinator/core/fleet/test_companion.py::test_maintenance_that_is_silent_or_ends_is_started_again",
        "A supervisor under SIGSTOP was not replaced. Retries and time limits of a lone node stopped.",
        "black-box trials",
    ),
    Fault(
        "supervisor-sweeps-before-it-renews", "225fd17", "coordinator/core/store/functions/steps/sweep.lua",
        "  if deadline ~= '' and c.now > tonumber(deadline) then return {0, {}, {}, 0, 0} end\n", "",
        "tests/coordinator/core/supervisor/test_supervisor.py::"
        "test_a_supervisor_that_stood_still_between_its_look_and_its_sweep_loses_no_job",
        "A supervisor that had been stopped ended, on its return, the leases of the living jobs of its own node.",
        "black-box trials",
    ),
    Fault(
        "retry-delay-0-waits-for-a-sweep", "08d7eae", "coordinator/core/store/functions/rules/settle.lua",
        "  if tonumber(delay) <= 0 then", "  if false then",
        "tests/proof/test_model.py::test_lanes_do_what_the_model_does_whatever_is_called",
        "`retry_delay=0` cost 0.5 s a retry: 41 s for 40 jobs of 3 attempts, beside 0.4 s.", "black-box trials",
    ),
    Fault(
        "max-memory-looked-at-once-a-slice", "08d7eae", "coordinator/core/worker/bootstep.py",
        "bool(instance.max_tasks_per_child or instance.max_memory_per_child)", "False",
        "tests/fleet/test_watched.py::test_the_limits_of_a_pool_process_are_looked_at_after_each_job",
        "`--max-memory-per-child` was looked at once a slice, so that a process grew over many jobs.",
        "black-box trials",
    ),
    Fault(
        "restart-of-all-nodes-refuses-clients", "08d7eae", "coordinator/core/client/task_defaults.py",
        "        if self._waits or not nodes or (former.app", "        if self._waits or (former.app",
        "tests/coordinator/core/client/test_unknown.py::test_a_restart_of_all_nodes_refuses_no_client",
        "A restart of all nodes refused web requests, because no living node had the task.", "black-box trials",
    ),
    Fault(
        "client-remembers-a-queue-for-life", "08d7eae", "coordinator/core/client/task_defaults.py",
        "kept[0] if kept and time.monotonic() < kept[1] else None", "kept[0] if kept else None",
        "tests/coordinator/core/client/test_unknown.py::test_a_plain_client_follows_a_task_to_another_queue",
        "A plain client remembered the queue of a task for the life of its process: jobs of a moved task "
        "waited for ever.", "a reader's review",
    ),
    Fault(
        "a-float-poisons-an-installation", "08d7eae", "coordinator/core/jobs/current.py",
        "        done, total = index(done), index(total)\n", "",
        "tests/coordinator/core/jobs/test_damaged.py::test_a_progress_that_is_no_whole_number_is_refused",
        "`progress(0.5, 1.0)` made a record unreadable. `coordinator jobs` failed for everybody, and the "
        "supervisor's look raised.", "a reader's review",
    ),
    Fault(
        "a-damaged-record-ends-a-step", "08d7eae", "coordinator/core/store/functions/rules/base.lua",
        "  local good, why = pcall(act)", "  local good, why = true, act()",
        "tests/coordinator/core/jobs/test_damaged.py::test_a_sweep_and_a_renewal_go_on_behind_a_damaged_record",
        "A sweep or a renewal ended at a damaged record, and with it those of all other jobs.", "black-box trials",
    ),
    Fault(
        "nodes-block-the-loop", "08d7eae", "coordinator/core/fleet/nodes.py",
        '        *replies, clock = self.store.read_many([*asked, clock_read.looking(self.store)])\n',
        "        with self.store._client.pipeline() as pipe:\n"
        '            for command in [*asked, clock_read.looking(self.store)]:\n'
        "                pipe.execute_command(*command)\n"
        "            *replies, clock = pipe.execute()\n",
        "tests/coordinator/aio/test_coordinator.py::test_no_verb_stops_the_loop_while_redis_is_silent",
        "`nodes()` and `why()` of asyncio stopped the loop for 2 s while Redis was silent.", "a reader's review",
    ),
    Fault(
        "soft-limit-shares-the-interval-timer", "08d7eae", "coordinator/core/runner/soft_limit.py",
        "        self._thread.start()\n",
        "        self._thread.start()\n"
        "        self._wanted, self._due = False, True\n"
        "        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGUSR1))\n"
        "        signal.setitimer(signal.ITIMER_REAL, self._seconds)\n",
        "tests/fleet/shared/test_usual_tasks.py::test_a_soft_limit_holds_where_the_body_uses_the_timer_of_its_process",
        "The soft limit was the process's one interval timer. A library that uses SIGALRM ended it in silence.",
        "a reader's review",
    ),
    Fault(
        "schedule-of-another-zone-is-dropped", "08d7eae", "coordinator/scheduler/steering.py",
        "zone_name(other.tz) != zone:", "False:",
        "tests/coordinator/scheduler/test_steering.py::test_a_schedule_of_another_zone_than_the_entrys_is_refused",
        "An entry that was changed to a schedule in New York ran at 07:00 UTC.", "a reader's review",
    ),
    Fault(
        "component-waits-for-all-its-items", "08d7eae", "tasks/components/poll.py",
        "submit([], registry", "submit(component.runs, registry",
        "tests/fleet/shared/test_components.py::"
        "test_a_hung_child_holds_its_place_alone_and_a_new_item_begins_by_its_priority",
        "A run waited for all of its 100 items: one of priority 1 began after 30 of 30, and a hung child "
        "stalled the component for ten days.", "black-box trials",
    ),
    Fault(
        "work-of-a-dead-winner-is-left", "08d7eae", "coordinator/core/grabs/grab.py",
        'if seen.state in ("abandoned", "failed", "") and', 'if seen.state in ("failed", "") and',
        "tests/coordinator/core/grabs/test_grab_losses.py::"
        "test_one_of_five_that_wait_takes_over_from_a_winner_that_was_killed",
        "With the default `on_losing` nobody did the work of a dead winner.", "black-box trials",
    ),
    Fault(
        "work-of-a-failed-winner-is-left", "08d7eae", "coordinator/core/grabs/grab.py",
        'if seen.state in ("abandoned", "failed", "") and', 'if seen.state in ("abandoned", "") and',
        "tests/coordinator/core/grabs/test_grab_losses.py::"
        "test_work_that_fails_is_tried_by_those_who_wait_up_to_the_attempts_and_then_left",
        'With `on_losing="wait"` nobody did the work of a failed winner.', "black-box trials",
    ),
    Fault(
        "a-new-version-counts-since-1970", "08d7eae", "coordinator/scheduler/sources.py",
        " or any(plan.last is None for plan in self.plans.values())" + GAP +
        "{name: plan.after(self.all.get(name)) for name, plan in plans.items()}", GAP + "plans",
        "tests/coordinator/scheduler/test_schedule_versions.py::"
        "test_a_new_version_with_the_same_entries_changes_nothing",
        "A schedule source had a new version and the same entries. The beat counted each instant since 1970, "
        "and the whole schedule stopped.", "black-box trials",
    ),
    Fault(
        "editing-the-schedule-ends-all", "08d7eae", "tasks/app.py",
        "    if _interval is not None and isinstance(_entry := _SCHEDULE.get(_name), dict):\n",
        "    if (_entry := _SCHEDULE[_name]):\n",
        "tests/fleet/tasks/test_schedule_file.py::test_a_user_edits_the_file",
        "A user edited beat_schedule.py: every process ended with a KeyError, or nothing changed.", "black-box trials",
    ),
    Fault(
        "unknown-pids-hold-a-lane", "08d7eae", "tasks/harvest/fetcher.py",
        "error.status in NOT_THERE or ", "",
        "tests/tasks/harvest/test_failures.py::"
        "test_many_old_failures_come_after_what_is_new_and_get_no_more_than_their_time",
        "1,500 unknown pids held a member's lane for 25 minutes: each 404 was tried three times in a run.",
        "black-box trials",
    ),
    Fault(
        "one-500-ends-a-listing", "08d7eae", "tasks/harvest/patience.py",
        "                if not tries or not isinstance(error, Failing) or error.status == 501:",
        "                if True:",
        "tests/tasks/harvest/test_listing.py::test_a_listing_that_fails_is_asked_for_again",
        "One 500 at a listing ended a run until the next tick.", "black-box trials",
    ),
    Fault(
        "one-unreadable-entry-stops-a-member", "08d7eae", "tasks/harvest/listing.py",
        "                if error.total is None:\n                    raise\n", "                raise\n",
        "tests/tasks/harvest/test_listing.py::test_entries_that_are_no_xml_hide_none_of_the_others",
        "One unreadable entry of a listing stopped its member for good.", "black-box trials",
    ),
    Fault(
        "a-page-that-times-out-stays-as-large", "08d7eae", "tasks/harvest/listing.py",
        "            except (MemberTimedOut, TooLarge):", "            except TooLarge:",
        "tests/tasks/harvest/test_listing.py::test_a_page_that_takes_too_long_is_asked_for_in_smaller_parts",
        "A page that timed out was never made smaller.", "black-box trials",
    ),
    Fault(
        "redirects-lead-out-of-tls", "08d7eae", "tasks/member_node/client.py",
        '            event_hooks={"response": [_check_redirect]},\n', "",
        "tests/tasks/member_node/test_access.py::test_no_redirect_leads_out_of_tls_or_to_a_host_that_nobody_named",
        "A redirect from https to http, or to another host, was followed with the client certificate.",
        "black-box trials",
    ),
    Fault(
        "rubbish-pushes-out-refused-requests", "08d7eae", "coordinator/inbox/inbox.py",
        "            self._refuse(received, error, UNREADABLE)", "            self._refuse(received, error, DEAD)",
        "tests/coordinator/inbox/test_refusals.py::"
        "test_only_the_last_letters_are_kept_and_no_rubbish_drives_a_request_out",
        "Garbage in the inbox pushed refused requests out of the letters that are kept.", "black-box trials",
    ),
    Fault(
        "a-rollback-whose-end-redis-lost", "27580a1", "coordinator/core/store/functions/rules/settle.lua",
        " and how ~= 'handed'", "",
        "tests/coordinator/core/supervisor/test_evidence.py::"
        "test_a_rollback_is_begun_again_only_if_none_of_it_is_half_done",
        "A rollback whose end Redis had lost was a double fault, though nothing of it was half done.",
    ),
    Fault(
        "a-rollback-that-nobody-can-run", "d6dfe80", "coordinator/core/store/functions/rules/settle.lua",
        "  redis.call('ZADD', c.P .. 'expiry', c.now + record.max_lifetime(job), id)\n"
        "  redis.call('HDEL', job.name, 'stop')",
        "  redis.call('ZREM', c.P .. 'expiry', id)\n  redis.call('HDEL', job.name, 'stop')",
        "tests/coordinator/core/runner/test_rollback_steps.py::"
        "test_a_rollback_that_nobody_can_run_is_a_double_fault_after_its_lifetime",
        "A rollback that no living node can run held its lane for ever.",
    ),
    Fault(
        "a-sub-task-dies-with-its-node", "10dacac", "coordinator/core/store/functions/steps/parked.lua",
        "      if gone or lives and lives ~= incarnation then", "      if false then",
        "tests/coordinator/core/runner/test_rollback_steps.py::"
        "test_a_sub_task_of_a_rollback_that_dies_with_its_node_is_a_double_fault",
        "A job waited until its lifetime for a sub-task that had died with its node.",
    ),
    Fault(
        "a-hundred-broken-connections", "5ea242e", "coordinator/core/store/connections.py",
        "            return cast(redis.Connection, pool.connection_class(**pool.connection_kwargs))",
        "            made = client.__dict__['made'] = client.__dict__.get('made', 0) + 1\n"
        "            if made > 100:\n"
        "                raise redis.exceptions.ConnectionError('Too many connections') from None\n"
        "            return cast(redis.Connection, pool.connection_class(**pool.connection_kwargs))",
        "tests/coordinator/core/store/test_connections.py::test_redis_is_reached_again_however_many_connections_broke",
        "A process that broke 100 connections never reached Redis again: redis-py's pool counts each one that "
        "it ever made.",
    ),
    Fault(
        "a-connection-to-a-demoted-master", "5ea242e", "coordinator/core/store/client.py",
        "            if _leads_elsewhere(error):\n"
        "                self.connections.disconnect()\n"
        "            if \"unknown",
        '            if "unknown',
        "tests/coordinator/core/store/test_connections.py::test_after_a_failover_behind_one_address_the_new_master_is_asked",
        "A connection to a demoted master was used for ever.",
    ),
    Fault(
        "a-full-redis-keeps-jobs-from-ending", "07fc1cf", "coordinator/core/store/functions/steps/runner.lua",
        "step.define('job_finish', {'allow-oom'},", "step.define('job_finish', {},",
        "tests/coordinator/core/store/test_client.py::test_a_full_redis_refuses_by_name_and_frees_what_ends",
        "In a full Redis no job could end, so that it stayed full.",
    ),
    Fault(
        "fences-again-after-two-failovers", "ecbe64b", "coordinator/core/store/functions/rules/locks.lua",
        "local new = not before or terms[c.P] ~= known", "local new = not before",
        "tests/coordinator/core/store/test_clock.py::test_a_server_that_becomes_the_master_again_begins_anew",
        "A server that became the master again gave fences that another had given meanwhile.",
        "sentinels with a short patience",
    ),
    Fault(
        "a-server-that-begins-looks-idle", "ecbe64b", "coordinator/core/store/functions/rules/locks.lua",
        "  if before == last and not rested then return false end", "  if before == last then return false end",
        "tests/coordinator/core/store/test_clock.py::test_a_server_that_becomes_the_master_again_begins_anew",
        "The master after the next began from the same number, and gave the same fences again.",
        "sentinels with a short patience",
    ),
    Fault(
        "a-condemned-attempt-counts", "649b464", "coordinator/core/store/functions/steps/runner.lua",
        "  if job.condemned == token then return 'condemned', '' end\n", "",
        "tests/coordinator/core/runner/test_losses.py::"
        "test_a_condemned_attempt_may_not_finish_and_its_runner_gets_nothing_more",
        "The outcome of a condemned attempt counted, and the kill hit the next work of its process.",
        "servers harmed under load",
    ),
    Fault(
        "a-late-renewal-has-no-lock", "57fa40b", "coordinator/core/store/functions/rules/locks.lua",
        "if not other or token_of(other) == token or is_over(c, other) then",
        "if other and token_of(other) == token then",
        "tests/coordinator/core/runner/test_losses.py::test_a_holder_whose_lease_lapsed_may_renew_while_nobody_succeeded_it",
        "A holder that asked after its lease had lapsed was given time without its lock.", "the plain model",
    ),
    Fault(
        "the-clock-goes-back", "468e4f7", "coordinator/core/store/functions/rules/base.lua",
        "  if passed < 0 then offset = offset - passed end\n", "",
        "tests/coordinator/core/store/test_clock.py::test_the_installations_clock_goes_on_where_the_servers_went_back",
        "Redis' clock went back by an hour: the dead lived, and leases lasted for an hour more.",
    ),
    Fault(
        "after-a-silence-all-are-lost", "468e4f7", "coordinator/core/store/functions/rules/base.lua",
        "  if passed > c.gap then\n", "  if false then\n",
        "tests/coordinator/core/store/test_clock.py::test_after_a_silence_nobody_is_lost_who_comes_back",
        "After an absence of Redis all holders were lost who could not come back at once.",
    ),
    Fault(
        "a-ring-stands-still", "d6dfe80", "coordinator/core/store/functions/steps/runner.lua",
        "    if ring then return 'deadlock', ring end\n", "",
        "tests/coordinator/core/runner/test_rings.py::test_a_job_that_parks_on_one_behind_itself_is_refused_and_goes_on",
        "Jobs that waited for each other over two parents or two lanes stood still until `max_lifetime`.",
    ),
    Fault(
        "a-ring-that-closes-later", "d6dfe80", "coordinator/core/store/functions/steps/sweep.lua",
        "    if why then break_ring(c, ring, why) end\n", "",
        "tests/coordinator/core/runner/test_rings.py::"
        "test_a_ring_that_a_move_closes_is_ended_by_the_sweep_which_fails_the_youngest",
        "A move closed a ring of jobs that had parked before. They stood still until `max_lifetime`.",
    ),
    Fault(
        "a-dead-waiter-is-granted-the-lock", "d6dfe80", "coordinator/core/store/functions/rules/admit.lua",
        "    if pass_over(c, id, job, keys) then return true end\n", "",
        "tests/coordinator/core/locks/test_leases.py::test_dead_waiters_are_passed_over_at_once",
        "A dead waiter for a lock was granted it, and held up the lane for its ttl.",
    ),
    Fault(
        "ends-are-told-twice-by-a-slow-broker", "3502c55", "coordinator/core/runner/outbox.py",
        "        for portion in (plain, *([item] for item in whole if _publishes(item.end))):",
        "        for portion in (whole,):",
        "tests/coordinator/core/runner/test_outbox.py::"
        "test_an_end_with_links_is_told_at_once_and_what_maintenance_may_have_begun_is_left_to_it",
        "With links that RabbitMQ confirms a round took longer than 5 s, and most links were published twice.",
        "RabbitMQ under load",
    ),
    Fault(
        "a-link-told-twice-is-two-jobs", "3502c55", "coordinator/core/runner/canvas.py",
        '    return link.clone().set(task_id=str(uuid5(_LINKS, f"{request.id} {fence} {number}")))', "    return link",
        "tests/coordinator/core/runner/test_canvas.py::test_a_link_of_an_end_that_is_told_twice_is_one_job",
        "A link that was published twice had two ids, so that a keyed link ran twice.", "RabbitMQ under load",
    ),
    Fault(
        "who-coalesced-waits-for-ever", "66585d8", "coordinator/core/runner/results.py",
        "    for job_id in (end.job.id, *end.others):", "    for job_id in (end.job.id,):",
        "tests/coordinator/core/runner/test_results.py::test_those_whose_submits_coalesced_into_a_job_have_its_result_too",
        "`AsyncResult(id).get()` waited for ever where the submit had coalesced into another job.",
    ),
    Fault(
        "a-revoke-before-its-call", "4533e8a", "coordinator/core/store/functions/rules/submit.lua",
        "  if revoked and fields.class then return end_at_once(", "  if false then return end_at_once(",
        "tests/coordinator/core/keyed_task/test_owed.py::"
        "test_a_call_that_was_revoked_before_it_came_ends_as_such_and_is_told",
        "The last step of a chain that was revoked while the first was at work ran all the same.",
        "a table of canvases beside plain Celery",
    ),
    Fault(
        "a-grab-waits-for-itself", "c1d49f9", "coordinator/core/grabs/grab.py",
        '                if self.won:\n                    return before.state or "abandoned"\n', "",
        "tests/coordinator/core/grabs/test_grab_losses.py::"
        "test_a_process_that_takes_over_hears_of_it_also_where_the_next_reply_is_lost",
        "A grab took over and lost the next reply. It saw that the instance was running, by itself, and waited "
        "for its own end.",
    ),
    Fault(
        "a-half-open-connection-of-notices", "a4f0f2c", "coordinator/aio/notices.py",
        "                if self._unanswered * _PING > self._timeout:", "                if False:",
        "tests/coordinator/aio/test_connections.py::test_a_connection_for_notices_that_keeps_silent_is_replaced",
        "A half-open connection was never left, so that waiters heard nothing.",
    ),
    Fault(
        "a-move-asked-again-moves-twice", "7944bb2", "coordinator/core/store/functions/steps/job.lua",
        "  if asked ~= '' and redis.call('HGET', name, 'move') == asked then return {job.state, 1} end\n", "",
        "tests/coordinator/core/lanes/test_places.py::test_a_move_asked_for_again_with_its_token_is_made_once",
        "The caller lost a reply and asked again: the job moved a second time, behind those that came meanwhile.",
        "the plain model",
    ),
    Fault(
        "a-busy-supervisor-counts-as-dead", "564c29f", "coordinator/core/supervisor/supervisor.py",
        "        if self.registered and time.monotonic() - self._beaten > self.settings.node_ttl / 4:",
        "        if False:",
        "tests/coordinator/core/supervisor/test_beats.py::"
        "test_a_node_lives_while_its_supervisor_has_much_to_do_on_a_slow_redis",
        "On a Redis that needs a second for each answer, a look took longer than a node may be silent: a "
        "healthy node was declared dead.", "servers harmed under load",
    ),
    Fault(
        "a-heartbeat-stops-the-loop", "70b140d", "coordinator/core/celery_patches/heartbeat.py",
        ' and event != "worker-heartbeat"', "",
        "tests/coordinator/core/celery_patches/test_heartbeat.py::"
        "test_a_heartbeat_is_tried_once_and_what_begins_a_worker_until_the_broker_has_it",
        "Redis hung, and a heartbeat met that first: Celery tried it until the broker answered. The worker's loop "
        "stood still for 110 s, and a probe would have ended a healthy node.", "integration on a busy machine",
    ),
    Fault(
        "a-request-of-100-mb-stops-the-inbox", "51dcd54", "coordinator/inbox/take.lua",
        "string.sub(message, 1, longest)", "message",
        "tests/coordinator/inbox/test_refusals.py::"
        "test_a_message_of_many_megabytes_is_cut_by_redis_and_holds_up_no_other",
        "One message of 100 MB stopped the inbox for good: it stayed the oldest in hand of each node in turn.",
    ),
    Fault(
        "a-lone-surrogate-ends-a-supervisor", "9d720ec", "coordinator/core/store/client.py",
        "        except UnicodeEncodeError as error:\n            raise unwritable(error) from error\n", "",
        "tests/coordinator/core/store/test_client.py::test_what_utf_8_cannot_say_is_refused_by_name",
        "A text that UTF-8 cannot say ended a supervisor.",
    ),
    Fault(
        "a-forgotten-update-is-made-twice", "b158259", "tasks/documents/versions.lua",
        "  return made and 'committed ' .. versions.pointer(c, doc) or refused", "  return refused",
        "tests/fleet/documents/test_redis_loss.py::test_an_update_that_redis_forgot_is_made_once",
        "An author's update was made a second time, over a later one of the same fence, after Redis had lost its end.",
        "the checker of documents",
    ),
    Fault(
        "a-run-that-lost-its-lock", "9048ec6", "tasks/components/poll.py",
        "    except LeaseLost as lost:  # another", "    except ZeroDivisionError as lost:  # another",
        "tests/fleet/shared/test_component_faults.py::test_a_run_that_loses_its_lock_waits_for_its_children_all_the_same",
        "The run failed with LeaseLost, while its children went on and nobody waited for them.",
    ),
    Fault(
        "a-request-kills-each-process", "8f2b4b8", "coordinator/inbox/deaths.py",
        '        if int(store.read("SCARD", key)) > MOST:', "        if False:",
        "tests/fleet/test_inbox.py::test_a_request_that_ends_each_process_is_put_aside_and_those_beside_it_are_done",
        "A request that ends its process went round for ever, from one process to the next.",
    ),
    Fault(
        "a-closed-database-gets-no-result", "c5fa71c", "coordinator/core/threads.py",
        "                connection.close()\n", "                pass\n",
        "tests/fleet/test_django.py::test_results_in_its_database_come_after_the_server_has_closed_all_connections",
        "After a restart of the database, or an idle time-out, no result came any more, nor what follows it: the "
        "outbox and maintenance kept connections that nobody checked.", "black-box trials",
    ),
    Fault(
        "lost-bells-wait-as-long-again", "8f2b4b8", "coordinator/core/supervisor/supervisor.py",
        '        if changes.pop("woken", None):\n            self._wake_again()\n',
        '        changes.pop("woken", None)\n',
        "tests/coordinator/core/supervisor/test_supervisor.py::"
        "test_a_worker_that_has_connected_anew_is_woken_again_for_what_is_on_its_way",
        "A bell that a killed RabbitMQ had lost waited for as long again as it had waited.",
        "RabbitMQ killed under load",
    ),
    Fault(
        "the-time-limit-counts-from-the-claim", "b31e36c", "coordinator/core/supervisor/runner_watch.py",
        " and status.is_overdue(entry.token)", "",
        "tests/coordinator/core/supervisor/test_evidence.py::test_the_time_limit_counts_from_the_beginning_of_the_body",
        "A body that began late was stopped before its time limit.", "servers harmed under load",
    ),
    Fault(
        "an-end-that-redis-lost", "b31e36c", "coordinator/core/supervisor/runner_watch.py",
        "            elif status.is_done(entry.token):", "            elif False:",
        "tests/coordinator/core/supervisor/test_evidence.py::"
        "test_a_job_that_its_runner_ended_and_redis_lost_is_put_back_and_its_process_spared",
        "The supervisor of a node renewed a job for ever whose end Redis had lost.", "servers harmed under load",
    ),
    Fault(
        "a-node-that-comes-back-loses-its-jobs", "4b83495", "coordinator/core/supervisor/supervisor.py",
        "            self.watch.reclaim()\n", "",
        "tests/coordinator/core/supervisor/test_supervisor.py::"
        "test_a_node_that_comes_back_keeps_what_its_processes_went_on_with_before_it_is_rung",
        "A node that came back lost what its processes had gone on with.",
    ),
    Fault(
        "an-older-version-reads-on", "4e3c469", "coordinator/core/store/functions/rules/step.lua",
        "      if c.format and tonumber(c.format) > record.FORMAT then return {err = 'FORMAT ' .. c.format} end\n", "",
        "tests/coordinator/core/jobs/test_record_format.py::"
        "test_each_step_of_a_version_that_cannot_read_the_format_is_refused_and_writes_nothing",
        "Only the registration of a node looked at the noted format of records: clients, beats and nodes of an older "
        "version went on, and would have written records that they cannot read.",
    ),
    Fault(
        "half-a-step-of-a-torn-file", "f04347d", "coordinator/local/redis.py",
        "                if TORN in logged:\n                    self._rewrite_aof()\n", "",
        "tests/coordinator/local/test_redis.py::"
        "test_what_a_power_cut_tore_is_whole_or_not_there_also_after_the_restart_behind_it",
        "A power cut tore the file of Redis 7.0 within a step. The restart after the next one applied the first half: "
        "a job was ready, and in no list.", "seed 19",
    ),
    Fault(
        "a-wait-by-another-name-hangs", "c51fc77", "coordinator/core/celery_patches/waits.py",
        '(AsyncResult, ("get", "wait")), (ResultSet, ("join", "join_native", "iter_native"))',
        '(AsyncResult, ("get",)), (ResultSet, ("join", "join_native"))',
        "tests/fleet/shared/test_keyed_steps.py::test_what_would_wait_for_its_own_lane_is_refused_at_once",
        "A body that waited for its own lane with `wait` or `iter_native` instead of `get` hung to its time limit.",
    ),
    Fault(
        "a-first-conflict-waits-for-a-sweep", "c51fc77", "coordinator/core/runner/attempt.py",
        "0.05 * (2 ** min(claim.forgiven - claim.step, 4) - 1))", "0.05 * 2 ** min(claim.forgiven - claim.step, 4))",
        "tests/fleet/shared/test_retries.py::test_optimistic_conflicts_are_tried_again_and_not_counted",
        "A first conflict was to be tried again within 50 ms. Only the sweep looked for it, half a second later.",
    ),
    Fault(
        "a-damaged-field-ends-each-heartbeat", "e3bb771", "coordinator/core/store/functions/rules/wakes.lua",
        "tonumber(about[1]), tonumber(about[2]) or 0,", "tonumber(about[1]), about[2],",
        "tests/coordinator/core/jobs/test_damaged.py::test_a_damaged_field_of_any_other_hash_stops_nobody",
        "One unreadable field of a node, a sorter, a limit or a count ended each heartbeat, sweep or submit.",
    ),
    Fault(
        "a-hung-backend-keeps-each-call", "72eb286", "coordinator/core/celery_patches/result_backend.py",
        "if not isinstance(producer, keyed):", "if True:",
        "tests/coordinator/core/keyed_task/test_calls.py::test_a_call_leaves_the_redis_of_the_results_alone",
        "A Redis of the results that hung kept each `delay()` of a keyed task for two minutes.",
    ),
    Fault(
        "a-damaged-process-takes-doorbells", "885cf5d", "coordinator/core/runner/runner.py",
        '            raise SystemExit("a runner failed") from error\n', "            raise\n",
        "tests/fleet/shared/test_damaged_processes.py::"
        "test_twenty_jobs_run_on_a_node_whose_only_process_was_damaged"
        "[by a task before the first job-may write to no file]",
        "A pool process that could open no file any more failed with each doorbell, and lived: a lone node stood "
        "still.", "black-box trials",
    ),
    Fault(
        "a-removed-status-says-over", "885cf5d", "coordinator/core/fleet/status_file.py",
        "        status = self._at(_row_of(runner))\n" + GAP +
        "            self.folder.mkdir(0o700, exist_ok=True)\n",
        "        status = self._at(_row_of(runner)) if self.folder.exists() else RunnerStatus(\"over\")\n" + GAP,
        "tests/fleet/shared/test_damaged_processes.py::"
        "test_a_body_keeps_its_lane_its_limit_and_its_cancel_where_somebody_empties_the_shared_memory",
        "A cleaner of /dev/shm removed the status of runners, and that counted as their end: two bodies of a lane ran "
        "at once.", "black-box trials",
    ),
    Fault(
        "no-kill-without-a-pidfd", "d8279eb", "coordinator/core/fleet/processes.py",
        "    except (AttributeError, OSError):  # Python or the kernel has no `pidfd_open`, or seccomp forbids it\n",
        "    except AttributeError:\n",
        "tests/fleet/shared/test_damaged_processes.py::"
        "test_limits_and_cancels_hold_on_a_system_that_gives_no_handles_of_processes",
        "In a container that forbids pidfd_open, a job past its limit or cancelled ran for ever, and the supervisor "
        "raised at each look.", "public bug reports",
    ),
    Fault(
        "another-store-is-written", "afd2121f", "tasks/whereabouts.py",
        '        if noted["id"] != identity:\n', "        if False:\n",
        "tests/tasks/test_whereabouts.py::"
        "test_who_names_another_permanent_store_is_refused_and_changes_nothing",
        "A terminal that had read `. DIR/environment` talked to another LDAP, document or database than the nodes: a "
        "removed member came back approved, `suspend` left LDAP as it was, each with status 0.", "black-box trials",
    ),
    Fault(
        "a-comment-cuts-off-a-value", "c59870a5", "tasks/member_node/safe_xml.py",
        '"remove_comments": True, "remove_pis": True', '"remove_comments": False, "remove_pis": False',
        "tests/tasks/member_node/test_safe_xml.py::test_what_stands_in_a_value_does_not_cut_it_off",
        "`<identifier>a<!-- c -->b</identifier>` was the pid `a`; base URLs and subjects were cut off, too.",
        "black-box trials",
    ),
    Fault(
        "namespace-of-the-app-is-ignored", "77fdedaf", "coordinator/core/settings.py",
        "(?:{re.escape(namespace.rstrip('_'))}_)?", "",
        "tests/coordinator/core/test_settings.py::test_the_settings_of_a_django_project_reach_the_command",
        "CELERY_COORDINATOR_PREFIX in a Django project was ignored in silence: staging and production shared a prefix.",
        "black-box trials",
    ),
    Fault(
        "draw-taken-for-the-truth", "4027cd3e", "coordinator/core/store/functions/rules/ready.lua",
        "redis.call('ZLEXCOUNT', all, '[' .. kind, '(' .. after)", "1",
        "tests/coordinator/ops/diagnosis/test_flood.py::test_a_flood_hides_nothing_and_changes_no_number",
        "Beside 30,000 ready jobs `status`, `doctor` and the Overview said that 1,000 wait, and findings came and "
        "went: a draw of 1,000 was taken for the truth.", "black-box trials",
    ),
    Fault(
        "line-beside-many-lanes-unseen", "4027cd3e", "coordinator/core/store/functions/rules/line.lua",
        "    if heads[2] then line.note(c, key, heads) else", "    if not heads[2] then",
        "tests/coordinator/ops/diagnosis/test_flood.py::test_a_flood_hides_nothing_and_changes_no_number",
        "One page said both that 102 jobs stand behind another and that none does: the longest lines were sought among "
        "2,000 lanes drawn by chance.", "black-box trials",
    ),
    Fault(
        "a-waiter-on-a-loop-is-overtaken", "87e8c62", "coordinator/core/locks/locks.py",
        "min(_POLL, deadline - time.monotonic())", "deadline - time.monotonic()",
        "tests/coordinator/core/locks/test_waiters.py::"
        "test_a_waiter_listens_for_its_turn_and_asks_thrice_before_it_counts_as_dead",
        "A waiter for a lock in asyncio asked each five seconds. Redis took it for dead after three: its turn went to "
        "those behind it.", "a reader's review",
    ),
]

# Defects that nobody had, and that the model meets too seldom: a test sees each, or a judge of a seed.
IMAGINED = [
    Fault(
        "what-is-set-apart-holds-up-who-keeps-units", "", "coordinator/core/store/functions/rules/quotas.lua",
        "  if keeps then take_apart_back(c, q) end\n", "",
        "tests/coordinator/core/quotas/test_turns.py::"
        "test_a_job_that_keeps_units_gets_those_that_were_set_apart_for_one_that_waits_for_it",
        "who keeps units until its end waits for what was set apart for others",
    ),
    Fault(
        "who-keeps-units-waits-behind-others", "", "coordinator/core/store/functions/rules/quotas.lua",
        "    if has and use.name == q then score = score - STARTED end\n", "",
        "tests/coordinator/core/quotas/test_turns.py::"
        "test_a_job_that_keeps_its_units_goes_before_those_that_wait_for_them",
        "who keeps units of a quota until its end waits behind others for more of it",
    ),
    Fault(
        "a-loss-is-remembered-for-ever", "", "coordinator/core/store/functions/rules/nodes.lua",
        "< c.wall - LOST", "< 0",
        "tests/coordinator/ops/diagnosis/test_nodes.py::"
        "test_a_node_that_was_cut_off_is_known_for_an_hour_and_who_has_its_jobs",
        "each node that was ever lost stays listed",
    ),
    Fault(
        "a-course-is-never-cut", "", "coordinator/core/store/functions/rules/history.lua", ">= MOST", ">= 500",
        "tests/coordinator/core/jobs/test_history.py::test_a_course_keeps_its_last_fifty_lines_and_no_long_text",
        "the course of a job that is retried for ever grows for ever",
    ),
    Fault(
        "a-rollback-is-cancelled-between-steps", "", "coordinator/core/store/functions/rules/cancel.lua",
        " and record.back_of(job) == 0", "",
        "tests/coordinator/core/runner/test_rollback_steps.py::"
        "test_a_rollback_may_be_a_chain_and_each_of_its_steps_is_begun_once",
        "a rollback is cancelled between two of its steps",
    ),
    Fault(
        "what-coalesced-is-forgotten", "", "coordinator/core/store/functions/rules/retention.lua",
        "  redis.call('PERSIST', job.name)\n  redis.call('ZREM', c.P .. 'coalesced', id)\n",
        "  redis.call('PERSIST', job.name)\n",
        "tests/coordinator/core/lanes/test_retention.py::"
        "test_the_ids_that_coalesced_into_a_job_are_known_as_long_as_its_record_is_there",
        "the ids that coalesced into a job are forgotten though it is tried again",
    ),
    Fault(
        "the-first-lane-decides", "", "coordinator/core/store/functions/rules/admit.lua",
        "0, 0)[1] ~= id then return", "0, 0)[1] ~= id and key == keys[1] then return",
        "seed 19", "a job of several lanes looks at the line of the first one only",
    ),
    Fault(
        "no-lease-is-renewed", "", "coordinator/core/supervisor/runner_watch.py",
        '            replies = lease_renew(self.store, milliseconds(self.settings.lock_ttl), *pairs)\n',
        "            replies = [1] * len(chunk)\n",
        "seed 1", "no supervisor renews a lease",
    ),
    Fault(
        "a-lock-is-renewed-late", "", "coordinator/core/locks/leases.py", "asked_at + term.ttl / 3, asked_at",
        "asked_at + term.ttl * 0.9, asked_at",
        "tests/coordinator/core/locks/test_renewals.py::test_a_lease_is_renewed_each_third_of_its_ttl",
        "a lock is renewed at nine tenths of its ttl, so that a short pause of its process loses it",
    ),
    Fault(
        "a-running-job-is-renewed-late", "", "coordinator/core/supervisor/runner_watch.py",
        "self.settings.lock_ttl / 6",
        "self.settings.lock_ttl * 0.9",
        "tests/coordinator/core/supervisor/test_watch.py::"
        "test_the_lease_of_a_running_job_is_renewed_each_third_of_its_ttl_or_sooner",
        "the lease of a running job is renewed at nine tenths of its ttl",
    ),
    Fault(
        "no-step-wakes-a-waiter", "", "coordinator/core/store/functions/rules/admit.lua",
        "    redis.call('RPUSH', c.P .. 'turn:' .. id, fence)\n", "",
        "tests/coordinator/core/locks/test_waiters.py::"
        "test_the_step_by_which_its_turn_comes_grants_the_lock_and_wakes_the_waiter",
        "a waiter for a lock learns only at its next question that its turn has come",
    ),
    Fault(
        "no-waiter-listens", "", "coordinator/core/locks/locks.py", "                    pop(",
        "                    time.sleep(",
        "tests/coordinator/core/locks/test_waiters.py::"
        "test_a_waiter_listens_for_its_turn_and_asks_thrice_before_it_counts_as_dead",
        "a waiter for a lock does not listen for its turn, and only asks",
    ),
    Fault(
        "keyword-arguments-do-not-count", "", "coordinator/core/jobs/request.py", "but = _OF_RESULT if call",
        "but = {*_OF_RESULT, 'kwargs'} if call",
        "tests/coordinator/core/keyed_task/test_calls.py::test_calls_coalesce_only_where_all_their_arguments_are_the_same",
        "calls that differ in a keyword argument coalesce, and get the result of the first",
    ),
    Fault(
        "nobody-hears-of-an-end", "", "coordinator/core/store/functions/rules/settle.lua",
        "redis.call('PUBLISH', c.P .. 'done:' .. id, state)", "0",
        "tests/coordinator/core/lanes/test_lane_ends.py::test_each_end_is_told_to_those_who_listen",
        "whoever waits for a job learns of its end only when it looks by itself",
    ),
    Fault(
        "wake-ups-are-kept-for-ever", "", "coordinator/core/store/functions/rules/wakes.lua",
        "  redis.call('PEXPIRE', list, KEPT)\n", "",
        "tests/coordinator/core/fleet/test_nodes.py::"
        "test_the_supervisor_of_a_worker_finds_a_wake_up_in_a_list_of_its_own_which_lasts_a_minute",
        "the wake-ups of a worker that is gone are kept for ever",
    ),
    Fault(
        "wake-ups-of-the-worker-before", "", "coordinator/core/store/functions/rules/wakes.lua",
        "(redis.call('HGET', name, 'incarnation') or '')", "'a'",
        "tests/coordinator/core/fleet/test_nodes.py::"
        "test_the_supervisor_of_a_worker_finds_a_wake_up_in_a_list_of_its_own_which_lasts_a_minute",
        "two workers of one name wait at one list, and each gets wake-ups of the other",
    ),
    Fault(
        "a-lost-wake-up-stays-lost", "", "coordinator/core/supervisor/supervisor.py",
        "        for wake in beat.wakes:\n            self._wake(wake)\n", "",
        "tests/coordinator/core/supervisor/test_supervisor.py::"
        "test_a_beat_wakes_the_worker_again_where_no_runner_has_answered",
        "a job whose wake-up was lost waits until another one comes",
    ),
    Fault(
        "nobody-waits-behind-an-absence", "", "coordinator/core/supervisor/wakes.py",
        "            time.sleep(_PAUSE)\n", "            raise\n",
        "tests/coordinator/core/supervisor/test_wakes.py::test_wake_ups_are_passed_on_again_after_redis_was_away",
        "once Redis was away, the supervisor waits for no wake-up any more, and each takes two seconds",
    ),
    Fault(
        "each-node-does-maintenance", "", "coordinator/core/store/functions/steps/node.lua",
        "  if 2 ^ others - 1 > (c.now - since) / HELP and not redis.call('ZSCORE', name, node) then return 0 end\n", "",
        "tests/coordinator/core/supervisor/test_maintenance_on_demand.py::"
        "test_one_node_does_what_is_due_and_others_help_after_four_seconds_twelve_and_twenty_eight",
        "each node of a fleet imports its app anew for a result that is owed",
    ),
    Fault(
        "no-node-helps-with-maintenance", "", "coordinator/core/store/functions/steps/node.lua",
        "2 ^ others - 1 > (c.now - since) / HELP", "others > 0",
        "tests/coordinator/core/supervisor/test_maintenance_on_demand.py::"
        "test_one_node_does_what_is_due_and_others_help_after_four_seconds_twelve_and_twenty_eight",
        "the node that did maintenance is gone, and for a minute no other does it",
    ),
    Fault(
        "nobody-looks-at-what-waits", "", "coordinator/core/store/functions/steps/node.lua",
        "  return since or waits and c.now\n", "  return since\n",
        "tests/coordinator/core/supervisor/test_maintenance_on_demand.py::"
        "test_that_jobs_wait_is_due_after_half_a_minute_unless_somebody_has_looked_or_none_waited_in_between",
        "in a fleet without owed results nobody is told of jobs that wait for long",
    ),
    Fault(
        "maintenance-stays-for-ever", "", "coordinator/core/supervisor/__main__.py",
        "            maintenance.rest()\n", "            pass\n",
        "tests/coordinator/core/supervisor/test_maintenance_on_demand.py::"
        "test_maintenance_begins_once_it_is_needed_and_ends_once_it_is_not",
        "the second copy of the app stays beside each worker that once had something to do",
    ),
    Fault(
        "a-worker-holds-up-its-supervisor", "", "coordinator/core/supervisor/wakes.py", ", socket.MSG_DONTWAIT", "",
        "tests/coordinator/core/supervisor/test_wakes.py::test_a_worker_that_reads_nothing_never_holds_up_its_supervisor",
        "a worker that stands still, and so reads no wake-ups, keeps its supervisor from beating",
    ),
    Fault(
        "a-strange-wake-up-ends-the-worker", "", "coordinator/core/worker/wakes.py",
        '            logger.exception("cannot start a runner; the supervisor sends its wake-up again")\n',
        "            raise\n",
        "tests/fleet/shared/test_runner.py::test_rubbish_among_the_wake_ups_harms_nobody",
        "a wake-up of which the worker can make no message ends its loop",
    ),
    Fault(
        "a-message-waits-behind-a-job", "", "coordinator/core/celery_patches/last_slot.py",
        "            self._channel.qos.restore_by_tag(message.delivery_tag)\n"
        "            self._channel.qos._quick_ack(message.delivery_tag)\n"
        "        return is_free\n",
        "            pass\n        return True\n",
        "tests/fleet/shared/test_last_slot.py::test_a_task_never_waits_behind_a_job_while_another_node_is_idle",
        "a message that a worker asked for before a wake-up took the slot waits behind that job",
    ),
]
# fmt: on
