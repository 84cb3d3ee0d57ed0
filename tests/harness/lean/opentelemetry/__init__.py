"""Stands before OpenTelemetry on the path of the processes that tests start.

redis-py loads all of it where it is there: a tenth of a second in each of a thousand processes. A test of traces leaves
this folder out of its PYTHONPATH.
"""

raise ImportError("left out of this process")
