"""The inbox: takes requests from a queue of the broker."""
