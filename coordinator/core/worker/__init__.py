"""The coordinator's parts of a Celery worker: a bootstep, wake-ups through a socket, and remote control of jobs."""
