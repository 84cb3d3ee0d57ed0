"""The service that keeps a DataONE federation's members synchronized; workers and beats run it: `celery -A tasks …`."""

from tasks import cli
from tasks.app import app
from tasks.ask import refresh

__all__ = ["app", "cli", "refresh"]
