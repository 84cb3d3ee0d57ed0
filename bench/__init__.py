"""Benchmarks: one script a question, figures beside peers in one run. `make bench`; see README.md here."""
