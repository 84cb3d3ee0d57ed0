"""The specifications of a lane and of a quota in TLA+, and what TLC says of them."""
