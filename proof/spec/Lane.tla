-------------------------------- MODULE Lane --------------------------------
(* Lanes, claims, leases, fences, restarts and parked jobs, as coordinator/core/store/functions does them.

   Redis runs one function at a time, so each action here that changes `store` is one function, or one case of it; its
   comment names the file. Three things act: clients submit, processes run bodies, and the sweep puts back what has
   lost its process.

   Time is left out. A lease may end at any moment, and a process may do nothing for as long as it likes: it is
   stopped, or cut off. So what holds here holds for any ttl and any pause. Only fences are made of time: `clock` moves
   with what costs some in truth: a claim, a start, a disk that keeps nothing for a while.

   Each guard is a constant. With all of them TRUE everything below must hold (MC*.cfg); with one of them FALSE
   something must break (No*.cfg): `python -m proof spec` runs all of them. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Jobs, Keys, Processes,
  KeysOf,      \* of each job: the keys whose lanes it needs
  Priority,    \* of each job
  ChildOf,     \* of each job: a job that its body submits, and whose end it then waits for; None
  None,
  Margin, Space,                    \* of the first fence of a server: 60 s and 10 ms in locks.lua
  While,                            \* for how long writes are lost
  MaxClaims, MaxStarts, MaxLosses   \* bounds of the search: claims, starts of Redis, how many of these lose writes

CONSTANTS  \* the guards
  OneStep,       \* a job takes its places in all its lanes in one step
  AllLanes,      \* a job starts once it is in front in all of its lanes, not in one
  PinStarted,    \* nobody is put in line before a job that was started
  StaysInLine,   \* a job leaves its lines when it is over, and not when it is claimed
  ParkedStays,   \* also a parked job keeps its places
  OnlyPermits,   \* the end of a lease permits another claim of this job; it does not end the job's turn
  CheckToken,    \* an outcome counts if it comes from the last claim of the job
  CheckFence,    \* what is written to (a database, a file) refuses a fence older than one that it has seen
  Ahead,         \* the first fence of a server is ahead of what it may have lost
  OfClock,       \* it is ahead of the clock, not of the last fence
  RefuseRing,    \* a job does not park where it would wait for itself
  SweepRings     \* the sweep ends a ring that closed later

VARIABLES
  store,     \* what Redis knows: a record of each job, the lines, the last fence
  kept,      \* an older `store`: what is on the disk, when writes do not reach it; None: they do
  begins,    \* Redis has started, and has given no fence since
  clock,     \* the installation's clock; it goes back where a server with another clock takes over
  process,   \* what each process works on; None
  cell,      \* of each key: what its writers change, outside of Redis
  last, least,   \* the last fence that anybody was given; the least clock of a next server, see Restart
  claims, starts, losses   \* counts

vars == <<store, kept, begins, clock, process, cell, last, least, claims, starts, losses>>

\* A record. token: of its last claim. fence: of its last claim, 0 = it was never started.
Unknown == [state |-> "unknown", token |-> 0, fence |-> 0]
Over == {"succeeded", "failed"}
State(j) == store.job[j].state
Taken == {"ready", "running", "parked"}     \* in front, and not over
Places(j, s) == {k \in Keys : \E i \in DOMAIN s.line[k] : s.line[k][i] = j}
Place(j, k) == CHOOSE i \in DOMAIN store.line[k] : store.line[k][i] = j
Before(j, k) == {store.line[k][i] : i \in 1..(Place(j, k) - 1)}

Init ==
  /\ store = [job |-> [j \in Jobs |-> Unknown], line |-> [k \in Keys |-> <<>>], fence |-> 0, clock |-> 1, ahead |-> {}]
  /\ kept = None /\ begins = TRUE /\ clock = 1
  /\ process = [p \in Processes |-> None]
  /\ cell = [k \in Keys |-> [fence |-> 0, token |-> 0, did |-> {}]]
  /\ last = 0 /\ least = 1 /\ claims = 0 /\ starts = 0 /\ losses = 0

---------------------------------------------------------------------------
(* The line: rules/line.lua and rules/admit.lua. *)

\* line.enter: behind all that were started, and all of its priority or more.
EnterOne(line, j, s) ==
  LET stands(other) == (PinStarted /\ s.job[other].state \in Taken) \/ Priority[other] >= Priority[j]
      before == {i \in DOMAIN line : \E n \in i..Len(line) : stands(line[n])}
      n == Cardinality(before)
  IN SubSeq(line, 1, n) \o <<j>> \o SubSeq(line, n + 1, Len(line))

\* admit.lane: each waiting job that is in front in all its lanes becomes ready.
InFront(s, j) ==
  LET first == {k \in KeysOf[j] : s.line[k] # <<>> /\ Head(s.line[k]) = j}
  IN IF AllLanes THEN first = KeysOf[j] ELSE first # {}
Admit(s) == [s EXCEPT !.job = [j \in Jobs |->
  IF s.job[j].state = "waiting" /\ InFront(s, j) THEN [s.job[j] EXCEPT !.state = "ready"] ELSE s.job[j]]]

Leave(s, j) == [s EXCEPT !.line = [k \in Keys |-> SelectSeq(s.line[k], LAMBDA other : other # j)]]

\* settle.finish: the job leaves its lines, and those behind it are admitted, in the same step.
Finish(s, j, state) == Admit(Leave([s EXCEPT !.job[j].state = state], j))

\* settle.put_back: ready again. It kept the front of its lines, and its token: until another claim its process may
\* still report.
PutBack(s, j) == [s EXCEPT !.job[j].state = "ready"]

---------------------------------------------------------------------------
(* Clients: steps/job.lua job_submit, rules/submit.lua. A client asks again, under the same id, what Redis lost. *)

\* submit.lua stand, line.enter: the job comes into these of its lines. `ahead` keeps who stood before whom.
Entered(s, j, some) ==
  LET line == [k \in Keys |-> IF k \in some THEN EnterOne(s.line[k], j, s) ELSE s.line[k]]
      place(k) == CHOOSE i \in DOMAIN line[k] : line[k][i] = j
      before == UNION {{<<line[k][i], j>> : i \in 1..(place(k) - 1)} : k \in some}
      behind == UNION {{<<j, line[k][i]>> : i \in (place(k) + 1)..Len(line[k])} : k \in some}
      entered == [s EXCEPT !.line = line, !.ahead = @ \cup before \cup behind]
      all == Places(j, entered) = KeysOf[j]
  IN Admit([entered EXCEPT !.job[j].state = IF all THEN "waiting" ELSE "entering"])

Children == {ChildOf[j] : j \in Jobs}

Submit(j) ==
  /\ j \notin Children /\ State(j) \in {"unknown", "entering"}
  /\ \E some \in (IF OneStep THEN {KeysOf[j]} ELSE {{k} : k \in KeysOf[j] \ Places(j, store)}) :
       store' = Entered(store, j, some)
  /\ UNCHANGED <<kept, begins, clock, process, cell, last, least, claims, starts, losses>>

---------------------------------------------------------------------------
(* Claims: rules/claim.lua. *)

Max(a, b) == IF a > b THEN a ELSE b

\* locks.next_fence
NextFence ==
  CASE ~(begins /\ Ahead) -> Max(clock, store.fence + 1)
    [] OfClock -> Max(clock + Margin, store.fence + Space)
    [] OTHER -> Max(clock, store.fence) + Margin

\* claim.next: the process chooses a new token, here the number of the claim, and gets a new fence. From now on no
\* earlier claim of this job owns it.
Claim(p, j) ==
  /\ process[p] = None /\ State(j) = "ready" /\ claims < MaxClaims
  /\ LET fence == NextFence
         claimed == [store EXCEPT !.fence = fence, !.clock = clock,
                                  !.job[j] = [state |-> "running", token |-> claims + 1, fence |-> fence]]
     IN /\ store' = IF StaysInLine THEN claimed ELSE Admit(Leave(claimed, j))
        /\ process' = [process EXCEPT ![p] =
             [job |-> j, token |-> claims + 1, fence |-> fence, wrote |-> {}, asked |-> FALSE, late |-> FALSE]]
        /\ last' = fence
  /\ claims' = claims + 1 /\ clock' = clock + 1 /\ least' = (IF begins THEN Max(least, clock) ELSE least) + 1 /\ begins' = FALSE
  /\ UNCHANGED <<kept, cell, starts, losses>>

---------------------------------------------------------------------------
(* A body: it changes what each key names, then reports. A process that another claim has replaced does not know that
   it is late, and goes on. *)

AtWorkOn(j) == {p \in Processes : process[p] # None /\ process[p].job = j}
Ours(p) == IF CheckToken THEN store.job[process[p].job].token = process[p].token ELSE TRUE
Idle(p) == process' = [process EXCEPT ![p] = None]

Write(p, k) ==
  /\ process[p] # None /\ k \in KeysOf[process[p].job] \ process[p].wrote
  /\ IF CheckFence /\ process[p].fence < cell[k].fence
     THEN Idle(p) /\ UNCHANGED cell   \* it is refused: the body raises
     ELSE /\ cell' = [cell EXCEPT ![k] =
               [fence |-> Max(@.fence, process[p].fence), token |-> process[p].token, did |-> @.did \cup {process[p].job}]]
          /\ process' = [process EXCEPT ![p].wrote = @ \cup {k}]
  /\ UNCHANGED <<store, kept, begins, clock, last, least, claims, starts, losses>>

Written(p) == process[p] # None /\ process[p].wrote = KeysOf[process[p].job]

\* steps/runner.lua job_finish, kind succeeded. A late holder is accepted while nobody else has claimed the job, also
\* where the sweep has put it back. Else Redis answers `lost`, and the runner goes on without the job.
Succeed(p) ==
  /\ Written(p) /\ ChildOf[process[p].job] = None
  /\ LET j == process[p].job
     IN store' = IF Ours(p) /\ State(j) \in {"ready", "running"} THEN Finish(store, j, "succeeded") ELSE store
  /\ Idle(p)
  /\ UNCHANGED <<kept, begins, clock, cell, last, least, claims, starts, losses>>

\* kill -9, or an exception of the body: nothing is reported.
Die(p) ==
  /\ process[p] # None /\ Idle(p)
  /\ UNCHANGED <<store, kept, begins, clock, cell, last, least, claims, starts, losses>>

\* The lease of the last claim has ended (steps/sweep.lua end_leases), or its supervisor saw the process die
\* (steps/runner.lua job_lose): settle.lose.
LeaseEnds(j) ==
  /\ State(j) = "running"
  /\ store' = IF OnlyPermits THEN PutBack(store, j) ELSE Admit(Leave(PutBack(store, j), j))
  /\ process' = [p \in Processes |->
       IF p \in AtWorkOn(j) /\ process[p].token = store.job[j].token THEN [process[p] EXCEPT !.late = TRUE] ELSE process[p]]
  /\ UNCHANGED <<kept, begins, clock, cell, last, least, claims, starts, losses>>

\* steps/runner.lua lease_renew: the sweep was too early, and nobody has claimed the job since.
Renew(p) ==
  /\ process[p] # None /\ State(process[p].job) = "ready" /\ Ours(p)
  /\ store' = [store EXCEPT !.job[process[p].job].state = "running"]
  /\ process' = [process EXCEPT ![p].late = FALSE]
  /\ UNCHANGED <<kept, begins, clock, cell, last, least, claims, starts, losses>>

---------------------------------------------------------------------------
(* Parked jobs and rings: rules/settle.lua park, steps/parked.lua job_unpark, rules/rings.lua. *)

\* The body submits its child. Where an earlier run has done so, Redis says that it knows this id.
Ask(p) ==
  /\ process[p] # None /\ ChildOf[process[p].job] # None /\ ~process[p].asked
  /\ LET child == ChildOf[process[p].job]
     IN store' = IF State(child) = "unknown" THEN Entered(store, child, KeysOf[child]) ELSE store
  /\ process' = [process EXCEPT ![p].asked = TRUE]
  /\ UNCHANGED <<kept, begins, clock, cell, last, least, claims, starts, losses>>

\* Whom a job waits for: those before it in its lanes, or its child.
WaitsFor(j) ==
  CASE State(j) \in {"waiting", "entering"} -> UNION {Before(j, k) : k \in Places(j, store)}
    [] State(j) = "parked" /\ State(ChildOf[j]) \notin Over \cup {"unknown"} -> {ChildOf[j]}
    [] OTHER -> {}
RECURSIVE Follow(_)
Follow(some) ==
  LET more == some \cup UNION {WaitsFor(j) : j \in some} IN IF more = some THEN some ELSE Follow(more)
OnRing(j) == j \in Follow(WaitsFor(j))

\* job_finish, kind parked: the job keeps its lanes, and its process is free for other jobs. Where it would wait for
\* itself the attempt fails with WouldDeadlock.
Park(p) ==
  /\ Written(p) /\ process[p].asked
  /\ LET j == process[p].job
         child == ChildOf[j]
         parked == [store EXCEPT !.job[j].state = "parked"]
     IN store' = CASE ~(Ours(p) /\ State(j) \in {"ready", "running"}) -> store
                   [] RefuseRing /\ j \in Follow({child}) -> Finish(store, j, "failed")
                   [] OTHER -> IF ParkedStays THEN parked ELSE Admit(Leave(parked, j))
  /\ Idle(p)
  /\ UNCHANGED <<kept, begins, clock, cell, last, least, claims, starts, losses>>

\* Maintenance of any node sees that the child has ended. Where Redis has lost the child's submit, and not the claim of
\* its parent, the parent waits until its time limit, and fails.
Unpark(j) ==
  /\ State(j) = "parked" /\ State(ChildOf[j]) \in Over \cup {"unknown"}
  /\ store' = Finish(store, j, IF State(ChildOf[j]) = "unknown" THEN "failed" ELSE "succeeded")
  /\ UNCHANGED <<kept, begins, clock, process, cell, last, least, claims, starts, losses>>

\* steps/sweep.lua end_rings: a job of greater priority came to stand before the child, or the child came into line anew
\* after Redis had lost it.
BreakRing(j) ==
  /\ SweepRings /\ State(j) = "parked" /\ OnRing(j)
  /\ store' = Finish(store, j, "failed")
  /\ UNCHANGED <<kept, begins, clock, process, cell, last, least, claims, starts, losses>>

---------------------------------------------------------------------------
(* Redis starts again, or another master takes over. It may lack the last writes, all of those since some moment. *)

\* From here on, and for a while, no write reaches the disk, or the replica.
Falter ==
  /\ kept = None /\ losses < MaxLosses /\ starts < MaxStarts
  /\ kept' = store /\ clock' = clock + While
  /\ UNCHANGED <<store, begins, process, cell, last, least, claims, starts, losses>>

\* The new server's clock agrees with the old one's; or it is as far behind as the stated bound allows: not behind the
\* clock that the store has noted, and past the begin of each server before, by Space for each start since and by 1 for
\* each fence since (docs/lanes.md, "The fence").
Restart ==
  /\ starts < MaxStarts
  /\ store' = IF kept = None THEN store ELSE kept
  /\ process' = [p \in Processes |-> IF process[p] = None THEN None ELSE
       LET job == store'.job[process[p].job]
       IN [process[p] EXCEPT !.late = ~(job.token = process[p].token /\ job.state = "running")]]
  /\ kept' = None /\ begins' = TRUE
  /\ clock' \in {clock + Space, Max(least + Space, store'.clock)}
  /\ least' = Max(least + Space, clock')
  /\ starts' = starts + 1 /\ losses' = losses + (IF kept = None THEN 0 ELSE 1)
  /\ UNCHANGED <<cell, last, claims>>

Next ==
  \/ \E j \in Jobs : Submit(j) \/ LeaseEnds(j) \/ Unpark(j) \/ BreakRing(j)
  \/ \E p \in Processes : Succeed(p) \/ Ask(p) \/ Park(p) \/ Die(p) \/ Renew(p)
  \/ \E p \in Processes, j \in Jobs : Claim(p, j)
  \/ \E p \in Processes, k \in Keys : Write(p, k)
  \/ Falter \/ Restart

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------
(* What must hold. *)

\* Each fence is greater than every one before, whatever Redis lost.
FencesGrow == [][claims' # claims => last' > last]_<<claims, last>>

\* At most one applied holder at a time: once a later claim has changed a cell, no earlier one changes it.
OneHolder == [][\A k \in Keys : cell'[k].token >= cell[k].token]_cell

\* Two processes are at work in a lane only where one of them is late: its lease had ended, or Redis lost its claim.
OneAtATime == \A p, q \in Processes :
  p # q /\ process[p] # None /\ process[q] # None /\ KeysOf[process[p].job] \cap KeysOf[process[q].job] # {}
    => process[p].late \/ process[q].late

\* A lane is one job's from its first claim, or its turn, to its end: also while it is parked.
LaneIsTaken == \A i, j \in Jobs :
  i # j /\ KeysOf[i] \cap KeysOf[j] # {} => ~(State(i) \in Taken /\ State(j) \in Taken)

\* A job is started once all that stood before it are over, and with a greater fence.
InOrder == \A pair \in store.ahead :
  store.job[pair[2]].fence > 0 => State(pair[1]) \in Over /\ store.job[pair[1]].fence < store.job[pair[2]].fence

\* A job that Redis knows stands in its lines until it is over; one that succeeded has done its work.
NothingLost == \A j \in Jobs :
  /\ State(j) \in Taken \cup {"waiting"} => Places(j, store) = KeysOf[j]
  /\ State(j) = "succeeded" => \A k \in KeysOf[j] : j \in cell[k].did

\* No job waits for itself, where Redis lost nothing and all have one priority. Else a ring may close after a job was
\* parked; the sweep then ends it, as Moves says.
NoRing == losses = 0 => \A j \in Jobs : ~OnRing(j)

\* While a job is not over something goes on: a job is at work, or free to be claimed, or its wait is about to end.
Moves ==
  (\E j \in Jobs : State(j) \notin Over \cup {"unknown"}) => \E j \in Jobs :
    \/ State(j) \in {"ready", "running", "entering"}
    \/ State(j) = "parked" /\ (State(ChildOf[j]) \in Over \cup {"unknown"} \/ (SweepRings /\ OnRing(j)))
=============================================================================
