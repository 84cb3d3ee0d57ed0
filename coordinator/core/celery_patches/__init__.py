"""Changes to Celery, kombu, billiard and Flower at points that their documentation does not promise. README.md lists
each with the reason and the test that would fail.
"""
