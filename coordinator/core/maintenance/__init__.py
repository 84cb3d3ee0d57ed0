"""The maintenance process of a node, for work that may wait, hang or fail: sending overdue results, ending parked jobs,
raising alerts, running plugins. The supervisor starts it when there is such work.
"""
