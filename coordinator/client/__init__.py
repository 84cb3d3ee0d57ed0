"""The Coordinator: the one object that users hold, with all its verbs."""
