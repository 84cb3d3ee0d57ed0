"""Stands before cffi on the path of the processes that tests start.

Where billiard finds it, each process of a pool compiles a header in C, which takes a tenth of a second, to call one
function. Without it billiard uses ctypes.
"""

raise ImportError("left out of this process")
