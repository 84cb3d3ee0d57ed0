"""Synchronizes a member: lists its changed objects, fetches their system metadata, and stores that in the catalog."""
