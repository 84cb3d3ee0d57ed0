"""The specification of a lane in TLA+, and what TLC says of it."""
