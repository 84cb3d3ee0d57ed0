"""The service shown on this machine, with small members or with a pipeline of batches beside it: `make run`."""
