"""An ordinary Celery project, as it was before: coordinate.diff puts its work into lanes."""
