"""Each place where we reach into Celery, kombu or redis-py: README.md lists them."""
