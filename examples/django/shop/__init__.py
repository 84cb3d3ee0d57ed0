"""A shop in Django whose orders are worked on one at a time each.

In examples/django, with a Redis at localhost:6379:
python manage.py migrate; python manage.py createsuperuser
celery -A shop worker
celery -A shop beat    # two of these, or more
gunicorn shop.asgi:application -k asgi --graceful-timeout 3    # as long it waits for open pages

Then POST /orders/42/ orders, /orders/42/ says how far that is. In /admin/, a periodic task of shop.tasks.remind counts
the reminders of unpaid orders, and a link leads to the dashboard. `python manage.py coordinator status` looks at it
all, and `python manage.py test` runs the tests of the shop.
"""

from shop.celery import app as celery_app

__all__ = ["celery_app"]
