"""The service's pages in the dashboard: members, items, components."""
