"""Keyed tasks: Celery tasks with the option `coordinate`. Each call of such a task becomes a job in the lanes of its
keys instead of a message to the broker.
"""
