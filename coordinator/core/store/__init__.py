"""All access to Redis: connections, names of keys, atomic steps (Redis Functions), and translation of errors."""
