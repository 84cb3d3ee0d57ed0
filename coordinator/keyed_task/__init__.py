"""A keyed task: a Celery task with the option `coordinate`, each call of which goes through a lane."""

from coordinator.keyed_task.calls import KeyedTasks, own_keys

__all__ = ["KeyedTasks", "own_keys"]
