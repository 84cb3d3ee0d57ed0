"""One machine: a private Redis, and child processes that a supervisor keeps running."""
