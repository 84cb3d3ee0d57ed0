"""The Celery app: celery -A shipping.app worker"""

from celery import Celery

app = Celery("shipping")
app.config_from_object("shipping.config")
