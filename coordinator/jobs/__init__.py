"""A job: its request, its record, its steps. This folder runs no job."""
