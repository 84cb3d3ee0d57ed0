"""Shows people the jobs and Redis. Nothing here writes."""
