"""The client part of the library: submits jobs, takes locks and grabs, with the Celery app or without one."""
