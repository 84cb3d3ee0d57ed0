"""What a power cut leaves of Redis' append-only file: it is harmed at each place, and Redis is started on what is left.

`load` writes a file with real steps and notes what each of them had made of the data. `harms` cuts, flips and blanks
it, `rewriting` keeps what a rewrite has on the disk at each moment. `trial` starts a server there, and `going` has the
library go on.
"""
