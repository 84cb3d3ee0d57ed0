"""The settings of the Celery app."""

import os

broker_url = os.environ.get("SHIPPING_BROKER", "redis://localhost:6379/0")
result_backend = os.environ.get("SHIPPING_RESULTS", "redis://localhost:6379/1")
imports = ["shipping.tasks"]
worker_prefetch_multiplier = 1
timezone = "Europe/Berlin"
