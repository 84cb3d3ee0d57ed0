"""Benchmarks. Each script answers one question, with figures beside those of its peers. `make bench`; see README.md."""
