------------------------------- MODULE Course -------------------------------
(* Is what the functions of the store did, on a real Redis, something that Lane may do? proof/spec/course.py writes down
   what was seen of the store after each call: the jobs' states, the lines, and which fences are greater. TLC looks for a
   way through Lane that shows the same, step by step; what processes do in between is theirs. *)
EXTENDS MC

CONSTANT Courses
VARIABLES number, rest   \* which course it is; what is seen now, and after that

Fits(s, seen) ==
  /\ \A j \in Jobs : s.job[j].state = seen.state[j]
  /\ s.line = seen.line
  /\ \A i, j \in Jobs : s.job[i].fence < s.job[j].fence <=> seen.fence[i] < seen.fence[j]

Begin == Init /\ number \in DOMAIN Courses /\ rest = Courses[number] /\ Fits(store, Head(rest))
Go ==
  /\ Next /\ UNCHANGED number
  /\ rest' \in {rest, Tail(rest)} \ {<<>>} /\ Fits(store', Head(rest'))
  /\ Len(rest') = 1 => PrintT(<<"followed", number>>)

WholeCourse == Begin /\ [][Go]_<<vars, number, rest>>
=============================================================================
