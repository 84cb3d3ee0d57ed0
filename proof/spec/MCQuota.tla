------------------------------- MODULE MCQuota -------------------------------
(* The small worlds in which TLC looks at Quota. *)
EXTENDS Quota, TLC

CONSTANTS a, b, c, d, e, p, q, x, y, z
Symmetric == Permutations({p, q}) \cup Permutations({c, d, e})

\* a and b are in the lane, in either order; b needs both units. c, d and e are alike.
SomeUnits == (a :> 1 @@ b :> 2 @@ c :> 1 @@ d :> 1 @@ e :> 1)
SomeKinds == (a :> y @@ b :> z @@ c :> x @@ d :> x @@ e :> x)
Equal == (a :> 0 @@ b :> 0 @@ c :> 0 @@ d :> 0 @@ e :> 0)

\* a goes before b, wherever b has not started.
Urgent == (a :> 1 @@ b :> 0 @@ c :> 0 @@ d :> 0 @@ e :> 0)

\* d keeps its unit, so it is not as c and e are.
Kept == {d}
KeptSymmetric == Permutations({p, q}) \cup Permutations({c, e})

\* Were jobs that use different numbers of units of one kind: in no lane; c goes before b.
MixedKinds == (a :> y @@ b :> x @@ c :> x @@ d :> x @@ e :> x)
MixedUrgent == (a :> 0 @@ b :> 0 @@ c :> 1 @@ d :> 0 @@ e :> 0)
Pair == Permutations({p, q})
=============================================================================
