"""Finds jobs by a filter and lanes by their keys, and returns them in pages."""
