"""One module for each peer, run with the interpreter of the peer's own environment.

`WORKER` is the command line of a worker, `PORTION` the number of jobs that `send` puts in line at once.
"""
