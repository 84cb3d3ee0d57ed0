"""A member node: its description, its objects, and the client of its REST API."""
