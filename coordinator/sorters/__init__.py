"""Sorters: orders that are held until no more come, then put in line, sorted."""
