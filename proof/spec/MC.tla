--------------------------------- MODULE MC ---------------------------------
(* The small worlds in which TLC looks at Lane. *)
EXTENDS Lane

CONSTANTS a, b, c, d, k, l, p, q
Symmetric == Permutations({p, q})

\* Two lanes. a is in the first, b in both, c in the second; a waits for c, which its body submits.
Family == (a :> {k} @@ b :> {k, l} @@ c :> {l})
Equal == (a :> 0 @@ b :> 0 @@ c :> 0)
Child == (a :> c @@ b :> None @@ c :> None)

\* b is urgent. It may come to stand before c, which waits behind d: then a waits for c, c for b, and b for a.
Late == (a :> {k} @@ b :> {k, l} @@ c :> {l} @@ d :> {l})
LateUrgent == (a :> 0 @@ b :> 1 @@ c :> 0 @@ d :> 0)
LateChild == (a :> c @@ b :> None @@ c :> None @@ d :> None)

\* Two jobs over both lanes; b goes before what has not started.
Pairs == (a :> {k, l} @@ b :> {k, l})
Urgent == (a :> 0 @@ b :> 1)
Childless == (a :> None @@ b :> None)

\* Two jobs in one lane.
One == (a :> {k} @@ b :> {k})
=============================================================================
