"""Everything about one member node, a repository: its description, its objects, and a client of its REST API."""
