"""The core of the library: jobs, lanes, locks, grabs, the store in Redis, and the processes that run jobs."""
