"""A keyed task: a Celery task with the option `coordinate`, each call of which goes through a lane."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.keyed_task.calls import KeyedTasks, own_keys
else:
    __getattr__, __dir__ = handing_on(__name__, {"calls": ("KeyedTasks", "own_keys")})

__all__ = ["KeyedTasks", "own_keys"]
