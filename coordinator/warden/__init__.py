"""The warden: two processes beside each worker, the clock and the errands."""
