"""All access to Redis: connections, keys, atomic steps, and the meaning of errors."""
