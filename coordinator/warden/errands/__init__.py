"""The errands of a node: all that it does for others' jobs and that may wait, hang or fail."""
