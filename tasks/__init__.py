"""The service: it keeps every member of a federation synchronized. `celery -A tasks …`"""

from tasks import cli
from tasks.app import app
from tasks.ask import refresh

__all__ = ["app", "cli", "refresh"]
