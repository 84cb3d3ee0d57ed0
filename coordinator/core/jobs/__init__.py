"""What a job is: how a submit is checked and written, how the record of a job is read, and the steps of a chain.

The code that runs jobs is in `coordinator/core/runner`.
"""
