"""Runs a private Redis server and a set of child processes on one machine, and restarts those that die."""
