"""The warden: the clock beside each worker, and the errands, which it starts."""
