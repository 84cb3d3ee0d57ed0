"""The living nodes, and the state of the runners on this machine."""
