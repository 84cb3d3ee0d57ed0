"""One module for each lock, run with the interpreter of its own environment. `lock` gives a context manager."""
