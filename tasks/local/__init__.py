"""Runs the whole service on one machine: Redis, nodes, beats and Flower, for the command `coordinator up`."""
