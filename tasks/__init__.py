"""The service: keep every member node of a federation synchronized. `celery -A tasks …`"""

from tasks import cli
from tasks.adhoc import refresh
from tasks.app import app

__all__ = ["app", "cli", "refresh"]
