"""A keyed task: a Celery task with the option `coordinate`, each call of which goes through a lane."""
