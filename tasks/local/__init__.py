"""The service on one machine, and small members for its demo."""
