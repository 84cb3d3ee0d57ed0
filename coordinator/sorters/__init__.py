"""Sorters: buffers that hold jobs until no more come, and then put them in line, sorted by id."""
