"""Async tasks: tasks of the app that are `async def`, which Celery itself does not run."""
