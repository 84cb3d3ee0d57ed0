"""A Django project of the tests, laid out as users lay theirs out, with tasks of Django and of Celery."""
