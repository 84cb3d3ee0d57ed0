"""What the coordinator adds to a Celery worker."""
