-------------------------------- MODULE Quota --------------------------------
(* One quota and one lane: who is offered units, takes them, gives them back, and waits, as
   coordinator/core/store/functions does it. A lane gives order, a quota a number.

   As in Lane, each action that changes `store` is one function of Redis, or one case of it; its comment names the file.
   Time is left out: a lease may end at any moment, and a process may do nothing for as long as it likes. Which of the
   ready jobs a process gets is left open, too. So what holds here holds for any shares between groups.

   Each guard is a constant, as in Lane, which has restarts, fences and several lanes. *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Jobs, Processes, None,
  Keyed,       \* the jobs of the lane; the others are in none
  Units,       \* of each job: how many it uses; 0: it does not use the quota
  Kind,        \* of each job: its task, its class and how many units; c and d of one kind are alike to a node
  Priority,    \* of each job
  Stays,       \* the jobs that keep their units until their end: until="end"
  Limit,       \* of the quota
  Runs,        \* the kinds that a process runs; no node has the tasks of the others
  MaxLosses, MaxRests   \* bounds of the search: processes that die or are taken for lost; attempts that end otherwise

CONSTANTS  \* the guards
  LooksAgain,      \* a claim looks whether the units are still there: a ready job holds none
  WaitsItsTurn,    \* who stands behind another in the queue lacks the quota
  ByKind,          \* one that only waits since others of its kind are offered holds up its kind alone
  CountsOffers,    \* of a kind, as many are offered as there are free units
  StartedFirst,    \* started jobs come first in the queue
  LossGivesBack,   \* who is taken for lost gives its units back
  RestGivesBack,   \* so does who is parked, or waits for a retry
  OnlyOnce,        \* who has given them back gives nothing back
  TakesAgain,      \* who was taken for lost and lives takes its units again
  TakesOffer,      \* a claim ends the offer
  UnitsWake,       \* units that come back let the queue go on
  OffersWake,      \* so does an offer that nobody used
  LosesItsTurn,    \* who is overtaken in its lane leaves the queue
  Unpins           \* who was kept in front of a greater priority, and then lacks units, goes behind it

VARIABLES
  store,     \* what Redis knows
  process,   \* the job at which each process works; None
  losses, rests   \* counts

vars == <<store, process, losses, rests>>

(* store:
   state    of each job: unknown, waiting, ready, running, resting (parked, or before a retry), over
   line     the lane: its jobs that are not over
   came     jobs that were not started, in the order of their submits
   begun    jobs that were started and are not over, in the order of their first claims
   holder   of each job: the process that may report for it, since nobody has claimed it later; None
   queue    who lacks units: waiting jobs in front of the lane, and ready ones that were started before
   offers   ready jobs that take units once they are claimed
   users    who has units
   used     how many units they have
   found    users that were taken for lost, and took their units again
   freed    in the middle of a function: the queue is to go on *)
Init ==
  /\ store = [state |-> [j \in Jobs |-> "unknown"], line |-> <<>>, came |-> <<>>, begun |-> <<>>,
              holder |-> [j \in Jobs |-> None], queue |-> {}, offers |-> {}, users |-> {}, used |-> 0, found |-> {},
              freed |-> FALSE]
  /\ process = [p \in Processes |-> None]
  /\ losses = 0 /\ rests = 0

State(j) == store.state[j]
Without(some, j) == SelectSeq(some, LAMBDA other : other # j)
In(some, j) == \E i \in DOMAIN some : some[i] = j
At(some, j) == CHOOSE i \in DOMAIN some : some[i] = j
InFront(s, j) == j \in Keyed => s.line # <<>> /\ Head(s.line) = j

---------------------------------------------------------------------------
(* Who lacks units: rules/quotas.lua. *)

\* score_of: whether i stands before j in the queue.
Precedes(s, i, j, startedFirst) ==
  CASE startedFirst /\ In(s.begun, i) -> IF In(s.begun, j) THEN At(s.begun, i) < At(s.begun, j) ELSE TRUE
    [] startedFirst /\ In(s.begun, j) -> FALSE
    [] Priority[i] # Priority[j] -> Priority[i] > Priority[j]
    [] OTHER -> At(s.came, i) < At(s.came, j)
Stands(s, i, j) == i # j /\ Precedes(s, i, j, StartedFirst)

\* The first of each kind in the queue.
Firsts(s) == {j \in s.queue : \A other \in s.queue : Kind[other] = Kind[j] /\ other # j => Stands(s, j, other)}

\* has_units
Keeps(s, j) == j \in Stays \cap s.users

\* lacks: `offered` others were offered.
Short(s, j, offered) == ~Keeps(s, j) /\ s.used + offered + Units[j] > Limit

\* offers: those of its kind take one another's place; all, where even so there is room.
Others(s, j) ==
  LET all == Cardinality(s.offers)
      alike == Cardinality({i \in s.offers : Kind[i] = Kind[j]})
  IN CASE ~CountsOffers -> 0
       [] s.used + all + Units[j] <= Limit -> all
       [] OTHER -> alike

\* Whether the first job of a kind holds up other kinds: it lacks units, or may go on now.
HoldsUp(s, i) == ByKind => Short(s, i, 0) \/ ~Short(s, i, Others(s, i))

IsBehind(s, j) ==
  WaitsItsTurn /\ \E i \in Firsts(s) : Stands(s, i, j) /\ (Kind[i] = Kind[j] \/ HoldsUp(s, i))

\* lacking
Lacks(s, j, offered) == Units[j] > 0 /\ ((~Keeps(s, j) /\ IsBehind(s, j)) \/ Short(s, j, offered))

---------------------------------------------------------------------------
(* Units and offers: rules/quotas.lua. *)

\* hold_back: the job stands in the queue, or it is ready, and offered.
HoldBack(s, j) ==
  IF Lacks(s, j, Others(s, j)) THEN [s EXCEPT !.queue = @ \cup {j}]
  ELSE [s EXCEPT !.queue = @ \ {j}, !.freed = @ \/ j \in s.queue, !.state[j] = "ready",
                 !.offers = IF Units[j] = 0 \/ Keeps(s, j) THEN @ ELSE @ \cup {j}]

\* take_back, withdraw: the job is neither offered nor in the queue.
TakeBack(s, j) == [s EXCEPT !.offers = @ \ {j}, !.queue = @ \ {j},
                            !.freed = @ \/ j \in s.queue \/ (j \in s.offers /\ OffersWake)]

\* take, at a claim.
Take(s, j) ==
  LET claimed == [s EXCEPT !.offers = IF TakesOffer THEN @ \ {j} ELSE @]
  IN IF Units[j] = 0 \/ Keeps(s, j) THEN claimed
     ELSE [claimed EXCEPT !.users = @ \cup {j}, !.used = @ + Units[j]]

\* take_again: the one case in which more units are used than there are.
TakeAgain(s, j) ==
  IF Units[j] = 0 \/ j \in s.users \/ ~TakesAgain THEN s
  ELSE [s EXCEPT !.users = @ \cup {j}, !.used = @ + Units[j], !.found = @ \cup {j}]

\* give_back: `ended`: also what it keeps until its end.
GiveBack(s, j, ended) ==
  IF Units[j] = 0 \/ (j \in Stays /\ ~ended) \/ (j \notin s.users /\ OnlyOnce) THEN s
  ELSE [s EXCEPT !.users = @ \ {j}, !.used = @ - Units[j], !.found = @ \ {j}, !.freed = @ \/ UnitsWake]

---------------------------------------------------------------------------
(* The lane and the queue go on: rules/admit.lua. *)

AdmitLane(s) == IF s.line # <<>> /\ s.state[Head(s.line)] = "waiting" THEN HoldBack(s, Head(s.line)) ELSE s

TryFirst(s, j) == IF InFront(s, j) THEN HoldBack(s, j) ELSE TakeBack(s, j)

\* let_go_on: by kinds, in the order of their first jobs. One that still lacks units is passed if it holds up nobody.
RECURSIVE LetGoOn(_, _)
LetGoOn(s, passed) ==
  LET left == {j \in Firsts(s) : Kind[j] \notin passed}
      first == CHOOSE j \in left : \A other \in left \ {j} : Stands(s, j, other)
      tried == TryFirst(s, first)
  IN CASE left = {} -> s
       [] first \notin tried.queue -> LetGoOn(tried, passed)
       [] HoldsUp(tried, first) -> tried
       [] OTHER -> LetGoOn(tried, passed \cup {Kind[first]})

\* freed: at the end of each function, and before a claim. It goes on for as long as somebody leaves the queue.
RECURSIVE Freed(_)
Freed(s) == IF s.freed THEN Freed(LetGoOn([s EXCEPT !.freed = FALSE], {})) ELSE s

---------------------------------------------------------------------------
(* Clients: rules/submit.lua. *)

\* line.enter: behind all that were started or are ready, and all of its priority or more.
Enter(s, j) ==
  LET stands(other) == s.state[other] # "waiting" \/ Priority[other] >= Priority[j]
      before == {i \in DOMAIN s.line : \E n \in i..Len(s.line) : stands(s.line[n])}
      n == Cardinality(before)
      entered == [s EXCEPT !.line = SubSeq(@, 1, n) \o <<j>> \o SubSeq(@, n + 1, Len(@))]
      \* admit.enter: who is overtaken does not have its turn any more.
      overtaken == IF n = 0 /\ s.line # <<>> THEN TakeBack(entered, Head(s.line)) ELSE entered
  IN IF j \notin Keyed THEN s ELSE IF LosesItsTurn THEN overtaken ELSE entered

Submit(j) ==
  /\ State(j) = "unknown"
  /\ LET entered == Enter([store EXCEPT !.state[j] = "waiting", !.came = Append(@, j)], j)
     IN store' = Freed(IF InFront(entered, j) THEN HoldBack(entered, j) ELSE entered)
  /\ UNCHANGED <<process, losses, rests>>

---------------------------------------------------------------------------
(* Claims: rules/claim.lua. *)

\* line.unpin: back to its place, which is not in front where a greater priority came meanwhile.
Unpin(s, j) ==
  LET others == Without(s.line, j)
      n == Cardinality({i \in DOMAIN others : Priority[others[i]] > Priority[j]})
      back == SubSeq(others, 1, n) \o <<j>> \o SubSeq(others, n + 1, Len(others))
  IN IF j \in Keyed /\ Unpins THEN [s EXCEPT !.line = back] ELSE s

\* wait_for_quota: it was offered, and lacks units now. Of its lane, the one that it kept from its turn goes on.
WaitForQuota(s, j) ==
  LET back == TakeBack(s, j)
      waits == Unpin([back EXCEPT !.state[j] = "waiting"], j)
  IN CASE In(s.begun, j) -> [back EXCEPT !.queue = @ \cup {j}]
       [] InFront(waits, j) -> [waits EXCEPT !.queue = @ \cup {j}]
       [] OTHER -> AdmitLane(waits)

\* start: the process has the job, and all its units. Who holds it else is late from now on.
Start(s, p, j) ==
  LET taken == Take(s, j)
  IN [taken EXCEPT !.state[j] = "running", !.holder[j] = p,
                   !.begun = IF In(@, j) THEN @ ELSE Append(@, j),
                   !.came = IF StartedFirst THEN Without(@, j) ELSE @]

\* start_next: one job after the other, until one starts. The first is j; what comes after it is left open.
Claimable(s) == {j \in Jobs \ s.queue : s.state[j] = "ready" /\ Kind[j] \in Runs}
RECURSIVE Claimed(_, _, _)
Claimed(s, p, j) ==
  IF ~(LooksAgain /\ Lacks(s, j, 0)) THEN {<<Start(s, p, j), j>>}
  ELSE LET waits == WaitForQuota(s, j)
       IN IF Claimable(waits) = {} THEN {<<waits, None>>}
          ELSE UNION {Claimed(waits, p, other) : other \in Claimable(waits)}

Claim(p, j) ==
  /\ process[p] = None /\ j \in Claimable(store)
  /\ \E claimed \in Claimed(store, p, j) :
       /\ store' = Freed(claimed[1])
       /\ process' = [process EXCEPT ![p] = claimed[2]]
  /\ UNCHANGED <<losses, rests>>

---------------------------------------------------------------------------
(* How an attempt ends: rules/settle.lua, steps/runner.lua. *)

Idle(p) == process' = [process EXCEPT ![p] = None]

\* settle.finish: the locks and all units come back, and who stands behind in the lane goes on, before the queue does.
Finish(s, j) ==
  LET left == GiveBack(TakeBack([s EXCEPT !.line = Without(@, j)], j), j, TRUE)
      over == [left EXCEPT !.state[j] = "over", !.holder[j] = None, !.came = Without(@, j), !.begun = Without(@, j)]
  IN Freed(AdmitLane(over))

\* settle.park, settle.retry_later: it keeps its lane, and no units.
Rest(s, j) ==
  LET released == IF RestGivesBack THEN GiveBack(TakeBack(s, j), j, FALSE) ELSE TakeBack(s, j)
  IN Freed([released EXCEPT !.state[j] = "resting", !.holder[j] = None])

\* settle.put_back: it is ready, and in no list where it lacks units.
PutBack(s, j) == Freed(HoldBack([s EXCEPT !.state[j] = "ready"], j))

\* job_finish. A late holder is accepted while nobody else has claimed the job, also where the sweep has put it back.
Ours(p) == store.holder[process[p]] = p /\ State(process[p]) \in {"ready", "running"}

Succeed(p) ==
  /\ process[p] # None
  /\ store' = IF Ours(p) THEN Finish(store, process[p]) ELSE store
  /\ Idle(p) /\ UNCHANGED <<losses, rests>>

RestOf(p) ==
  /\ process[p] # None /\ Ours(p) /\ rests < MaxRests
  /\ store' = Rest(store, process[p])
  /\ Idle(p) /\ rests' = rests + 1 /\ UNCHANGED losses

\* The sub-results, or the delay, are over: the job ends, or is tried again.
Goes(j) ==
  /\ State(j) = "resting"
  /\ store' \in {Finish(store, j), PutBack(store, j)}
  /\ UNCHANGED <<process, losses, rests>>

\* kill -9: nothing is reported.
Die(p) ==
  /\ process[p] # None /\ losses < MaxLosses
  /\ Idle(p) /\ losses' = losses + 1 /\ UNCHANGED <<store, rests>>

\* The lease has ended, steps/sweep.lua: its process is dead, or it was too slow.
IsDead(j) == State(j) = "running" /\ process[store.holder[j]] # j
LeaseEnds(j) ==
  /\ State(j) = "running"
  /\ IsDead(j) \/ losses < MaxLosses
  /\ store' = PutBack(IF LossGivesBack THEN GiveBack(store, j, FALSE) ELSE store, j)
  /\ losses' = losses + (IF IsDead(j) THEN 0 ELSE 1)   \* Die has counted it
  /\ UNCHANGED <<process, rests>>

\* lease_renew: the sweep was too early, and nobody has claimed the job since.
Renew(p) ==
  /\ process[p] # None /\ Ours(p) /\ State(process[p]) = "ready"
  /\ LET j == process[p] IN store' = Freed(TakeAgain([TakeBack(store, j) EXCEPT !.state[j] = "running"], j))
  /\ UNCHANGED <<process, losses, rests>>

Next ==
  \/ \E j \in Jobs : Submit(j) \/ LeaseEnds(j) \/ Goes(j)
  \/ \E p \in Processes : Succeed(p) \/ RestOf(p) \/ Die(p) \/ Renew(p)
  \/ \E p \in Processes, j \in Jobs : Claim(p, j)

Spec == Init /\ [][Next]_vars

\* All does not stand still for ever while a body may end, a process is free for a ready job, a wait may end, or the
\* sweep may see a dead process. The other steps have bounds. (WF_vars says the same, and costs TLC hours.)
MayGoOn ==
  \/ \E p \in Processes : process[p] # None \/ Claimable(store) # {}
  \/ \E j \in Jobs : State(j) = "resting" \/ IsDead(j)
Fair == []<>(~MayGoOn) \/ []<><<TRUE>>_vars
FairSpec == Spec /\ Fair

---------------------------------------------------------------------------
(* What must hold. *)

RECURSIVE Sum(_)
Sum(some) == IF some = {} THEN 0 ELSE LET j == CHOOSE j \in some : TRUE IN Units[j] + Sum(some \ {j})

\* No more units are used than there are, but for those of whom was taken for lost and lives.
WithinLimit == store.used - Sum(store.found) <= Limit

\* The units of a running job are its own; of others, only those that are kept until the end. Nothing leaks, nothing
\* comes back twice.
Counted ==
  /\ store.used = Sum(store.users)
  /\ store.users = {j \in Jobs : Units[j] > 0 /\ (State(j) = "running" \/ (j \in Stays /\ In(store.begun, j)))}

\* Two processes are at work in the lane only where one of them is late: its lease had ended.
Late(p) == ~(store.holder[process[p]] = p /\ State(process[p]) = "running")
OneAtATime == \A p, q \in Processes :
  p # q /\ process[p] \in Keyed /\ process[q] \in Keyed => Late(p) \/ Late(q)

\* The lane is one job's from its turn, or its first claim, to its end: also while it rests, or lacks units again.
LaneIsTaken == Cardinality({j \in Keyed : State(j) \in {"ready", "running", "resting"}}) <= 1

\* Who stands in front is ready, or lacks units; and no waiting job stands before a greater priority.
LaneGoesOn ==
  /\ store.line # <<>> => State(Head(store.line)) # "waiting" \/ Head(store.line) \in store.queue
  /\ \A i, j \in DOMAIN store.line :
       i < j /\ State(store.line[i]) = "waiting" => Priority[store.line[i]] >= Priority[store.line[j]]

\* Who is started is in front of its lane.
InTurn == [][\A j \in Jobs : State(j) # "running" /\ store'.state[j] = "running" => InFront(store', j)]_vars

\* In the queue stand those that have their turn.
HasItsTurn == \A j \in store.queue :
  /\ InFront(store, j) /\ Units[j] > 0
  /\ State(j) = IF In(store.begun, j) THEN "ready" ELSE "waiting"

\* Offered are the ready jobs that need units: of a kind, as many as there may be.
Offered ==
  /\ store.offers = {j \in Jobs \ store.queue : State(j) = "ready" /\ Units[j] > 0 /\ ~Keeps(store, j)}
  /\ \A i \in store.offers : Cardinality({j \in store.offers : Kind[j] = Kind[i]}) <= Limit

\* At a claim, nobody passes a job of the queue that lacks units, nor one of its own kind.
Passed(i, s) == {j \in s.queue \ {i} :
  /\ Precedes(store, j, i, TRUE)
  /\ Kind[j] = Kind[i] \/ s.used - Units[i] + Units[j] > Limit}
NobodyPasses == [][\A p \in Processes :
  LET i == process'[p]
  IN i \notin {None, process[p]} /\ Units[i] > 0 /\ ~Keeps(store, i) => Passed(i, store') = {}]_vars

\* No wake-up is lost: the queue is as if it had just been let go on.
Woken == \A j \in Firsts(store) :
  (\A i \in Firsts(store) : Stands(store, i, j) => ~HoldsUp(store, i)) => Short(store, j, Others(store, j))

\* While a job is not over that a process may run, something goes on.
Moves ==
  (\E j \in Jobs : Kind[j] \in Runs /\ State(j) \notin {"unknown", "over"})
    => Claimable(store) # {} \/ \E j \in Jobs : State(j) \in {"running", "resting"}

\* Each job ends that a process may run, also one that needs all units while others come and go.
Ends == \A j \in Jobs : Kind[j] \in Runs => (State(j) = "waiting" \/ State(j) = "ready" ~> State(j) = "over")
=============================================================================
